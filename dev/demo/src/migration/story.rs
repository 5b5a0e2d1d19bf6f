//! A VM fills a native quota and migrates all the same.

use anyhow::{Context as _, ensure};
use futures::stream::select_all;
use kube::api::{Api, ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use sluice_testbed::Bed;

use super::audit::Facts;
use super::passage::Passage;
use crate::examples::{HEADROOM, ONE_VM, ONE_VM_MIGRATION, ONE_VM_QUOTA, POLICY, TEAM_B};
use crate::follow::{Updates, follow};
use crate::scene::Scene;
use crate::screen::Screen;
use crate::stage::Stage;

/// The namespace that the files name.
pub const NAMESPACE: &str = "team-b";

/// Plays the act on a control plane with KubeVirt, Sluice, nodes and an audit log, and says what came of it.
///
/// # Errors
/// When a step does not come true in time, or the quota was not left alone.
pub async fn act(scene: &Scene, bed: &Bed, screen: Screen) -> anyhow::Result<Screen> {
    let mut stage = Stage::open(scene, updates(scene), screen);
    let played = play(scene, bed, &mut stage).await;
    stage.close(played)
}

fn updates(scene: &Scene) -> Updates<Passage> {
    let (client, any) = (|| scene.client.clone(), watcher::Config::default);
    let of_kubevirt = |kind| {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kubevirt.io", "v1", kind));
        Api::namespaced_with(client(), NAMESPACE, &kind)
    };
    select_all([
        follow(Api::namespaced(client(), NAMESPACE), any(), Passage::quotas),
        follow(Api::namespaced(client(), NAMESPACE), any(), Passage::pods),
        follow(of_kubevirt("VirtualMachineInstance"), any(), Passage::vms),
        follow(of_kubevirt("VirtualMachineInstanceMigration"), any(), Passage::migrations),
        follow(Api::namespaced(client(), NAMESPACE), any(), Passage::events),
    ])
}

async fn play(scene: &Scene, bed: &Bed, stage: &mut Stage<Passage>) -> anyhow::Result<()> {
    stage.tell("A namespace whose native ResourceQuota has room for one VM. KubeVirt's virt-controller is the real one, \
                what runs on nodes is simulated.")?;
    stage.during(scene.apply(&[TEAM_B])).await?;
    stage.during(scene.account(NAMESPACE)).await?;
    stage.watching().await?;
    stage.during(scene.apply(&[ONE_VM_QUOTA])).await?;
    stage.until("the status of the quota", Passage::is_clear).await?;
    stage.during(scene.apply(&[ONE_VM])).await?;
    stage.until("the VM to run and to fill the quota", runs_full).await?;
    stage.tell("The quota is full: not one pod more gets in, unless a budget for migrations is granted.")?;
    stage.pause().await?;

    let words =
        "It is, and the VM migrates. The pod it moves to has to get in while the one it leaves still counts.";
    let files = scene.apply(&[HEADROOM, POLICY, ONE_VM_MIGRATION]);
    let what = "the VM to have moved, all to be as before, and the event on the migration";
    stage.step(words, files, what, |passage| moved(passage) && granted(passage)).await?;
    let events = stage.during(bed.audit_events()).await?;
    stage.board.verdict = Some(verdict(&stage.board, &Facts::read(events, NAMESPACE))?);
    Ok(())
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
                "never changed (generation 3 before and after), the quota was locked for 27.3 ms and \
                 31.0 ms, no attempt was rejected"
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
