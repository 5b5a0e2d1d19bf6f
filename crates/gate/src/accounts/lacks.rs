//! Why there is no room for a class of pods, or for growth.

use std::sync::Arc;

use sluice_engine::{Amount, ClassId, PodId, QuotaKind, Reason, ShareId};
use sluice_index::PodRecord;

use super::Accounts;
use crate::cluster::Cluster;
use crate::explain::{Lack, Obstacle};
use crate::messages::{Text, reasons};
use crate::stage::Stage;

impl Accounts {
    /// Why there is no room for a pod of a namespace.
    pub(super) fn text_about_lack(&self, cluster: &Cluster, reason: &Reason, share: ShareId) -> Option<Text> {
        let obstacle = self.obstacle_of(cluster, reason, share)?;
        // What runs may take less than before, so nothing is said of how it could never be.
        let reason = if obstacle.never() { reasons::EXCEEDED } else { obstacle.reason() };
        Some((reason, obstacle.sentence()))
    }

    /// What is in the way of a class, by the names of quotas: their handles are another process's others.
    pub fn obstacles(&self, cluster: &Cluster, class: ClassId) -> Vec<Obstacle> {
        let Some(share) = self.stages.queue().class(class).map(|class| class.quotas().share()) else {
            return Vec::new();
        };
        let reasons = self.stages.queue().obstacles(class);
        let mut obstacles: Vec<Obstacle> =
            reasons.iter().filter_map(|reason| self.obstacle_of(cluster, reason, share)).collect();
        obstacles.sort_by_cached_key(|it| (it.quota.kind == QuotaKind::Cluster, Arc::clone(&it.quota.name)));
        obstacles
    }

    /// What the queue has found, for pods of a namespace.
    fn obstacle_of(&self, cluster: &Cluster, reason: &Reason, share: ShareId) -> Option<Obstacle> {
        let quota = cluster.quotas.get(reason.quota)?;
        let compiled = quota.compiled.as_ref().ok()?;
        // The pod that is ahead may have gone since the queue was looked at, and its handle may be another pod's.
        let waits = |pod: &PodId| matches!(self.stages.get(*pod), Stage::Waiting(_));
        // A tenant is told nothing of another one's pods.
        let is_of_the_same = |pod: &&PodRecord| pod.namespace.share() == share;
        let own = reason.behind.filter(waits).and_then(|pod| cluster.pods.get(pod)).filter(is_of_the_same);
        let lack = match (reason.behind, own) {
            (None, _) => Lack::Exceeded,
            (Some(_), Some(pod)) => Lack::KeptForOwn(pod.name.clone()),
            (Some(_), None) => Lack::KeptForOther,
        };
        let name = cluster.quota_name(reason.quota)?;
        Some(Obstacle::of(name, compiled, reason, lack, |excess| {
            let queue = self.stages.queue();
            let shares = queue.shares(reason.quota)?;
            let lines = queue.ledger(reason.quota)?.lines().iter();
            let mut own = lines.zip(shares.get(share)).filter(|(line, _)| line.resource == excess.resource);
            Some(own.next().map_or(Amount::ZERO, |(_, amount)| *amount))
        }))
    }
}
