//! Growth against Kubernetes' own quota: what pods that run may come to take, under Sluice and under native quotas with the
//! same limits, must be let in and refused alike, in the same words, and be counted alike.
//!
//! The steps are made from a seed that is printed; `SLUICE_SEED=<seed>` repeats them.

mod namespaces;
mod quotas;
mod steps;

use std::fmt::Write as _;

use anyhow::{Context as _, ensure};
use namespaces::{Native, Ours, Verdict};
use quotas::{Members, shown, used};
use sluice_e2e::random::{self, Random};
use sluice_testbed::wait;
use steps::{Outcome, Step, Wanted};

use crate::context::SOON;
use crate::growth::pending;

/// So many outcomes of each kind there are at least: where everything is let in, nothing is compared.
const WANTED: [(Outcome, usize); 9] = [
    (Outcome::ScopeChanged, 4),
    (Outcome::ScopeRefused, 4),
    (Outcome::Created, 6),
    (Outcome::CreationRefused, 5),
    (Outcome::Grown, 8),
    (Outcome::GrowthRefused, 8),
    (Outcome::Shrunk, 5),
    (Outcome::DeadlineEarlier, 2),
    (Outcome::Deleted, 4),
];
/// About fifty are needed.
const MOST_STEPS: usize = 120;

struct Comparison {
    ours: Ours,
    native: Native,
    /// The pods of both namespaces.
    members: Members,
    wanted: Wanted,
    played: Vec<String>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn growth_is_let_in_refused_and_counted_as_by_native_quotas() {
    let seed = random::seed();
    println!("growth: seed {seed}");
    let bed = pending().await;
    let ours = Ours::on(bed).await;
    let native = Native::on(bed, &ours).await;
    let wanted = Wanted::from(WANTED);
    let mut comparison = Comparison { ours, native, members: Members::new(), wanted, played: Vec::new() };
    let played = comparison.play(&mut Random::of_case(seed, 5, 0)).await;
    if let Err(error) = played {
        let told = comparison.told().await;
        panic!("{error:#}\n{told}repeat with SLUICE_SEED={seed}");
    }
}

impl Comparison {
    async fn play(&mut self, random: &mut Random) -> anyhow::Result<()> {
        self.settled().await?;
        self.native.until_in_force().await?;
        while self.wanted.values().any(|left| *left > 0) {
            let number = self.played.len();
            ensure!(number < MOST_STEPS, "{MOST_STEPS} steps were not enough: {:?} are missing", self.wanted);
            let step = Step::choose(random, &self.members, &self.wanted, number);
            self.step(&step).await?;
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> anyhow::Result<()> {
        self.played.push(format!("{step:?}"));
        let verdict = self.ours.judge(step).await?;
        self.native.judge_like(step, &verdict).await?;
        let outcome = step.outcome(&self.members, verdict == Verdict::LetIn);
        if let Some(played) = self.played.last_mut() {
            write!(played, ": {outcome:?}")?;
        }
        if let Some(left) = self.wanted.get_mut(&outcome) {
            *left = left.saturating_sub(1);
        }
        if verdict != Verdict::LetIn {
            return self.settled().await;
        }
        step.apply(&mut self.members);
        // Of a resize that its node has not done yet, both count the larger of both sizes
        // (`k8s.io/component-helpers/resource/helpers.go`).
        self.settled().await?;
        let Some((name, size)) = step.sized() else { return Ok(()) };
        // Nor can they be compared after a second resize before the node has done the first: native quotas give back what
        // became less only when the node's report has changed, which need not even happen then
        // (`pkg/quota/v1/install/update_filter.go`).
        self.ours.report(name, size).await?;
        self.native.report(name, size).await?;
        if let Some(member) = self.members.get_mut(name) {
            member.reported = size;
        }
        self.settled().await
    }

    /// Waits until both namespaces say that their quotas are used by what the pods take. It is not enough that both say the
    /// same: after a deletion both may still say what was before it.
    async fn settled(&self) -> anyhow::Result<()> {
        let expected = &used(&self.members);
        let ours = || async {
            let (used, held) = self.ours.used().await?;
            (used == *expected && held == 0).then_some(())
        };
        wait::eventually(2 * SOON, ours, "what is used of Sluice's quotas").await?;
        let native = || async { (self.native.used().await? == *expected).then_some(()) };
        let what = "what is used of native quotas";
        if wait::eventually(SOON, native, what).await.is_ok() {
            return Ok(());
        }
        // kube-controller-manager counts the pods that its watch has shown and replaces what admission has charged; of a pod
        // that the watch of quotas has outrun nothing is left then, until something makes it count again
        // (`pkg/controller/resourcequota/resource_quota_controller.go`).
        self.native.count_again().await?;
        wait::eventually(2 * SOON, native, what).await.context("counted twice")
    }

    async fn told(&self) -> String {
        let ours = self.ours.used().await.map(|(used, held)| format!("{}, {held} held", shown(&used)));
        let native = self.native.used().await.map(|used| shown(&used));
        let mut told = String::new();
        for (number, step) in self.played.iter().enumerate() {
            told.push_str(&format!("{number:>4} {step}\n"));
        }
        let unknown = || "not known".to_owned();
        told.push_str(&format!("used, the pods:       {}\n", shown(&used(&self.members))));
        told.push_str(&format!("used, Sluice:         {}\n", ours.unwrap_or_else(unknown)));
        told.push_str(&format!("used, native quotas:  {}\n", native.unwrap_or_else(unknown)));
        told
    }
}
