//! A VM fills a native quota and migrates all the same.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use kube::Client;
use sluice_testbed::Bed;

use super::audit::Facts;
use super::files::{self, NAMESPACE};
use super::passage::Passage;
use super::watches::{self, Watched};
use crate::screen::Screen;
use crate::signals::Signals;
use crate::stage::Stage;
use crate::story::{SOON, account};
use crate::table::Ink;

/// Where the act plays.
pub struct Place<'b> {
    /// A control plane with KubeVirt, Sluice, nodes and an audit log.
    pub bed: &'b Bed,
    /// Who plays.
    pub client: Client,
    /// Time to read after each step.
    pub pace: Duration,
}

/// Plays the act and says what came of it.
///
/// # Errors
/// When a step does not come true in time, or the quota was not left alone.
pub async fn act(place: &Place<'_>, screen: Screen, signals: Signals) -> anyhow::Result<Screen> {
    let mut stage = Stage::open(watches::open(&place.client), screen, signals);
    let played = play(place, &mut stage).await;
    let (board, mut screen) = stage.close()?;
    let verdict = verdict(&board.passage, &played?)?;
    screen.say("")?;
    screen.say_in(Ink::Green, &verdict)?;
    Ok(screen)
}

async fn play(place: &Place<'_>, stage: &mut Stage<Watched>) -> anyhow::Result<Facts> {
    stage.tell("A namespace whose native ResourceQuota has room for one VM. KubeVirt's virt-controller is the real one, what runs on nodes is simulated.")?;
    stage.during(files::apply(&place.client, files::TEAM)).await?;
    stage.during(account(&place.client, NAMESPACE)).await?;
    stage.until(SOON, "the watches to begin", Watched::is_complete).await?;
    stage.during(files::apply(&place.client, files::QUOTA)).await?;
    let counted = |board: &Watched| board.passage.is_clear();
    stage.until(SOON, "the status of the quota", counted).await?;
    stage.during(files::apply(&place.client, files::VM)).await?;
    stage.until(SOON, "the VM to run and to fill the quota", |board| runs_full(&board.passage)).await?;
    stage.tell("The quota is full: not one pod more gets in, unless a budget for migrations is granted.")?;
    stage.pause(place.pace).await?;

    stage.tell(
        "It is, and the VM migrates. The pod it moves to has to get in while the one it leaves still counts.",
    )?;
    for file in [files::HEADROOM, files::POLICY, files::MIGRATION] {
        stage.during(files::apply(&place.client, file)).await?;
    }
    stage.until(SOON, "the VM to have moved and all to be as before", |board| moved(&board.passage)).await?;
    stage.until(SOON, "the event on the migration", |board| granted(&board.passage)).await?;
    stage.pause(place.pace).await?;
    let events = stage.during(place.bed.audit_events()).await?;
    Ok(Facts::read(events, NAMESPACE))
}

/// The VM runs in its only pod, and there may be no other.
fn runs_full(passage: &Passage) -> bool {
    let is_full = passage
        .quota
        .as_ref()
        .is_some_and(|quota| quota.used.get("pods").is_some_and(|used| Some(used) == quota.hard.get("pods")));
    let running = passage.launchers().iter().filter(|launcher| launcher.phase == "Running").count();
    let phase = passage.vm.as_ref().map(|[phase, _]| phase.as_str());
    passage.is_clear() && is_full && running == 1 && phase == Some("Running")
}

/// The migration is over, and the quota is as full as before.
fn moved(passage: &Passage) -> bool {
    let phase = passage.migration.as_ref().map(|[_, phase]| phase.as_str());
    let target = passage.launchers().into_iter().find(|launcher| launcher.phase == "Running");
    phase == Some("Succeeded") && runs_full(passage) && target.is_some_and(|launcher| launcher.is_target)
}

/// Sluice said that it made room for the migration.
fn granted(passage: &Passage) -> bool {
    passage.told.as_ref().is_some_and(|[reason, _]| reason == "HeadroomGranted")
}

/// The last line, from what was observed.
fn verdict(passage: &Passage, facts: &Facts) -> anyhow::Result<String> {
    let (first, last) = (passage.first.as_ref(), passage.quota.as_ref());
    let (first, last) = first.zip(last).context("the quota was not seen")?;
    ensure!(
        first.spec == last.spec
            && first.generation == last.generation
            && passage.spec_changes == 0
            && facts.spec_writes == 0,
        "the promise was broken: the spec of quota {} was written {} times",
        last.name,
        facts.spec_writes.max(passage.spec_changes)
    );
    ensure!(!facts.locks.is_empty(), "the VM migrated without a lock: quota {} was not full", last.name);
    ensure!(
        facts.rejected == 0,
        "the promise was broken: {} attempts to create the target were rejected",
        facts.rejected
    );
    let node = |is_target| {
        let launchers = passage.launchers();
        let of_role = launchers.into_iter().find(|launcher| launcher.is_target == is_target);
        of_role.and_then(|launcher| launcher.node.clone()).unwrap_or_else(|| "nowhere".to_owned())
    };
    let generation = match last.generation {
        Some(generation) => format!("generation {generation} before and after"),
        None => "written 0 times".to_owned(),
    };
    let locks: Vec<String> =
        facts.locks.iter().map(|lock| format!("{:.1} ms", lock.as_secs_f64() * 1e3)).collect();
    Ok(format!(
        "The VM moved from {} to {}. The quota's spec never changed ({generation}), the quota was locked for {}, \
         no attempt was rejected",
        node(false),
        node(true),
        locks.join(" and ")
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::verdict;
    use crate::migration::audit::Facts;
    use crate::migration::passage::{Amounts, Passage, Quota};

    fn quota(pods: &str, generation: i64) -> Quota {
        let spec = Amounts::from([("pods".to_owned(), pods.to_owned())]);
        Quota { name: "q".to_owned(), generation: Some(generation), spec, ..Quota::default() }
    }

    #[test]
    fn the_last_line_is_what_was_observed() {
        let locks = vec![Duration::from_micros(27_340), Duration::from_millis(31)];
        let facts = Facts { locks, rejected: 0, spec_writes: 0 };
        let mut passage = Passage::default();
        (passage.first, passage.quota) = (Some(quota("1", 3)), Some(quota("1", 3)));
        let line = verdict(&passage, &facts).unwrap();
        assert!(
            line.ends_with(
                "never changed (generation 3 before and after), the quota was locked for 27.3 ms and 31.0 ms, no attempt was rejected"
            ),
            "{line}"
        );
        assert!(verdict(&passage, &Facts::default()).is_err(), "no lock");
        assert!(verdict(&passage, &Facts { spec_writes: 1, ..facts.clone() }).is_err());
        assert!(verdict(&passage, &Facts { rejected: 1, ..facts.clone() }).is_err());
        passage.quota = Some(quota("1", 4));
        assert!(verdict(&passage, &facts).is_err());
        passage.quota = Some(quota("2", 3));
        assert!(verdict(&passage, &facts).is_err());
    }
}
