//! What head-room has for the next pod of a VM, decided as the webhook decides and read with the rights of the user.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::Api;
use sluice_engine::headroom::{Budget, Need, Plan, Refusal, lasting, plan, sentence};
use sluice_index::{
    Cluster, HeadroomPolicyWire, Key, LauncherRecord, Mode, NamespaceWire, PodWire, ResourceQuotaWire,
    VmiWire, VmimWire, VmmrqWire, Watched,
};

use super::lists::{ListError, Lists, Where};
use super::proven::{NOT_PROVEN, without_preface};
use super::world::World;

/// A word for programs, and a sentence.
pub type Told = (&'static str, String);

/// When a pod of a migration is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goes {
    /// At once.
    Now,
    /// When something has ended that ends by itself.
    Later,
    /// Only after a quota or the VM was changed.
    Never,
}

/// What is decided about a pod of a migration.
#[derive(Clone, Debug)]
pub struct Verdict {
    pub plan: Plan,
    /// Something is granted.
    is_granted: bool,
    /// Why nothing is raised in this cluster.
    unproven: Option<String>,
    /// The grant that is enough.
    pub source: Option<Arc<str>>,
}

impl Verdict {
    /// As the webhook decides: by quotas and grants, and then by what explains the usage above the quotas. `live`: all pods
    /// of the namespace, where they are known.
    pub fn of(
        cluster: &Cluster,
        (namespace, need): (&str, &Need),
        live: Option<&[LauncherRecord]>,
        unproven: Option<&str>,
        now: i64,
    ) -> Self {
        let (quotas, budget) = (cluster.quotas_in(namespace), cluster.budget(namespace, now));
        let is_granted = !budget.grants.is_empty();
        let mut decided = plan(need, &quotas, &budget);
        if let Plan::Raise(raises) = &decided
            && is_granted
        {
            let objections = cluster.account(namespace, live, now).objections(need, raises, &quotas);
            if !objections.is_empty() {
                decided = Plan::Refused(objections);
            }
        }
        let is_enough = |grant: &&sluice_engine::headroom::Grant| {
            let alone = Budget { grants: vec![(*grant).clone()] };
            matches!(plan(need, &quotas, &alone), Plan::Raise(_))
        };
        let source = match decided {
            Plan::Raise(_) => budget.grants.iter().find(is_enough).map(|grant| Arc::clone(grant.source())),
            _ => None,
        };
        Self { plan: decided, is_granted, unproven: unproven.map(str::to_owned), source }
    }

    /// A decision that nothing stands in the way of.
    pub const fn granted(plan: Plan) -> Self {
        Self { plan, is_granted: true, unproven: None, source: None }
    }

    /// When the pod is created, if nothing but what was looked at changes.
    pub fn goes(&self) -> Goes {
        match &self.plan {
            Plan::Fits { .. } => Goes::Now,
            // The limit is about to be enforced as it is wanted.
            Plan::Raise(_) if !self.is_granted => Goes::Later,
            Plan::Raise(_) if self.unproven.is_some() => Goes::Never,
            Plan::Raise(_) => Goes::Now,
            Plan::NotEnough(_) => Goes::Never,
            Plan::Refused(refusals) if lasting(refusals).is_none() => Goes::Later,
            Plan::Refused(_) => Goes::Never,
        }
    }

    /// Why nothing is raised, where a raise would be needed.
    pub fn unproven(&self) -> Option<&str> {
        let needs_raise = matches!(self.plan, Plan::Raise(_)) && self.is_granted;
        self.unproven.as_deref().filter(|_| needs_raise)
    }

    /// The same as reason and sentence.
    pub fn told(&self, migration: &str, vm: &str) -> Told {
        if let Some(why) = self.unproven() {
            let message = format!(
                "gets no head-room, VM {vm} keeps running: Sluice raises no quota in this cluster: {why} \
                 (docs/headroom.md, Proof)"
            );
            return ("HeadroomNotProven", message);
        }
        match &self.plan {
            Plan::Fits { .. } => {
                ("HeadroomAvailable", format!("the quotas have room for the next pod of VM {vm}"))
            }
            Plan::Raise(_) if !self.is_granted => {
                let message = format!(
                    "waits until a quota's new limit is in force, VM {vm} keeps running: kube-controller-manager is about \
                     to write it"
                );
                ("PendingEvaluation", message)
            }
            Plan::Raise(raises) => {
                let quotas: Vec<&str> = raises.iter().map(|raise| &*raise.quota).collect();
                let message = format!(
                    "head-room is granted: quotas {} are raised for the next pod of VM {vm} when KubeVirt creates it",
                    quotas.join(", ")
                );
                ("HeadroomAvailable", message)
            }
            Plan::NotEnough(shortages) => {
                let message = format!(
                    "waits for head-room, VM {vm} keeps running: {}",
                    sentence(migration, vm, shortages)
                );
                ("HeadroomExhausted", message)
            }
            Plan::Refused(refusals) => {
                let is_opted_out = refusals.iter().any(|why| matches!(why, Refusal::OptedOut { .. }));
                let reason = if is_opted_out { "HeadroomOptedOut" } else { "HeadroomRefused" };
                let why: Vec<String> = refusals.iter().map(ToString::to_string).collect();
                (reason, format!("gets no head-room, VM {vm} keeps running: {}", why.join("; ")))
            }
        }
    }
}

/// Why Sluice raises no quota, as the condition of the AAQ says, or what grants head-room: a tenant may read no more than
/// the latter. `None`: none of them says so.
pub fn unproven(cluster: &Cluster, aaq: Option<&Result<(), String>>, namespace: &str) -> Option<String> {
    if let Some(Err(why)) = aaq {
        return Some(why.clone());
    }
    let own = cluster.vmmrqs.in_namespace(namespace).iter().filter_map(|it| it.stated.as_ref());
    let own = own.flat_map(|stated| &stated.status.status.conditions);
    let policies = cluster.policies.all().iter().filter_map(|it| it.stated.as_ref());
    let policies = policies.flat_map(|stated| &stated.status.conditions);
    let mut told = own.chain(policies).filter(|it| it.status == "False" && it.reason == NOT_PROVEN);
    told.next().map(|it| without_preface(&it.message))
}

/// What head-room decides from in a namespace, as far as it may be read.
pub async fn cluster(lists: &mut Lists<'_>, world: &World, namespace: &str) -> Result<Cluster, ListError> {
    let mut cluster = Cluster::default();
    learn(&mut cluster, lists, world, namespace).await?;
    learn_sharers(&mut cluster, lists, &BTreeSet::from([namespace])).await?;
    Ok(cluster)
}

/// As [`cluster`], into one that knows other namespaces too, without those that share a pool with them. Returns the quotas.
pub async fn learn(
    cluster: &mut Cluster,
    lists: &mut Lists<'_>,
    world: &World,
    namespace: &str,
) -> Result<Vec<ResourceQuotaWire>, ListError> {
    let place = Where::Namespace(namespace);
    let quotas = lists.all::<ResourceQuotaWire>(place).await?;
    upsert(&mut cluster.resource_quotas, quotas.iter().flatten());
    upsert(&mut cluster.vmmrqs, lists.all::<VmmrqWire>(place).await?.iter().flatten());
    if cluster.policies.all().is_empty() {
        upsert(&mut cluster.policies, lists.all_of_cluster::<HeadroomPolicyWire>().await?.iter().flatten());
    }
    let namespaces = Api::<NamespaceWire>::all(lists.connection.client.clone());
    if let Some(wire) = lists.get(&namespaces, &format!("namespaces {namespace}"), namespace).await? {
        cluster.namespaces.upsert(&wire);
    }
    upsert(&mut cluster.kubevirts, &world.kubevirts);
    upsert(&mut cluster.vmis, &world.machines);
    upsert(&mut cluster.launchers, &world.pods);
    upsert(&mut cluster.vmims, &world.migrations);
    Ok(quotas.unwrap_or_default())
}

/// The namespaces that have taken of a pool which covers one of these: what is left of it depends on them. Returns their
/// quotas.
pub async fn learn_sharers(
    cluster: &mut Cluster,
    lists: &mut Lists<'_>,
    known: &BTreeSet<&str>,
) -> Result<Vec<ResourceQuotaWire>, ListError> {
    let pools = |cluster: &Cluster, namespace: &str| {
        let record = cluster.namespaces.get(namespace);
        cluster
            .policies
            .all()
            .iter()
            .any(|policy| policy.mode == Mode::Pool && record.is_some_and(|record| policy.covers(record)))
    };
    if !known.iter().any(|namespace| pools(cluster, namespace)) {
        return Ok(Vec::new());
    }
    upsert(&mut cluster.namespaces, lists.all_of_cluster::<NamespaceWire>().await?.iter().flatten());
    let mut quotas = lists.all::<ResourceQuotaWire>(Where::Everywhere).await?.unwrap_or_default();
    quotas.retain(|quota| {
        let namespace = quota.metadata.namespace.as_deref().unwrap_or_default();
        !known.contains(namespace) && pools(cluster, namespace)
    });
    upsert(&mut cluster.resource_quotas, &quotas);
    let above: BTreeSet<Arc<str>> =
        cluster.resource_quotas.above().map(|Key { namespace, .. }| Arc::clone(namespace)).collect();
    for namespace in above.iter().filter(|namespace| !known.contains(&***namespace)) {
        let place = Where::Namespace(namespace);
        upsert(&mut cluster.launchers, lists.all::<PodWire>(place).await?.iter().flatten());
        upsert(&mut cluster.vmis, lists.all::<VmiWire>(place).await?.iter().flatten());
        upsert(&mut cluster.vmims, lists.all::<VmimWire>(place).await?.iter().flatten());
    }
    quotas.retain(|quota| above.iter().any(|it| quota.metadata.namespace.as_deref() == Some(it)));
    Ok(quotas)
}

fn upsert<'w, R: Watched>(records: &mut R, wires: impl IntoIterator<Item = &'w R::Wire>)
where
    R::Wire: 'w,
{
    for wire in wires {
        records.upsert(wire);
    }
}
