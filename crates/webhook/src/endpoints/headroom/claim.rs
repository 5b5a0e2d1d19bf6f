//! What a review says of a migration's target pod, and whether it is true.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use sluice_api::names;
use sluice_engine::headroom::{Allowance, Need, Source};
use sluice_engine::{ChargeRules, Uid};
use sluice_headroom::{MigrationRef, Target};
use sluice_index::{PodWire, VmiRecord, VmimRecord};

use crate::review::{Operation, Review, nullable};

/// A pod's creation that claims to be for a migration. Whether it is true is not known yet.
#[derive(Clone, Debug)]
pub struct Claim {
    pub namespace: String,
    /// The pod's uid, which the API server has given it already.
    pub pod: String,
    /// It attaches volumes to a launcher, which controls it; otherwise it is a launcher.
    pub attaches: bool,
    pub migration_uid: String,
    /// The name of the migration, if the pod tells.
    pub migration_name: Option<String>,
    /// The uid of the machine, as the labels that it is found by have it.
    pub machine_uid: Option<String>,
    /// What it asks for.
    pub wire: PodWire,
}

#[derive(Deserialize)]
struct ClaimView {
    #[serde(default)]
    metadata: ClaimMeta,
}

#[derive(Default, Deserialize)]
struct ClaimMeta {
    #[serde(default, deserialize_with = "nullable")]
    uid: String,
    #[serde(default, deserialize_with = "nullable")]
    labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "nullable")]
    annotations: BTreeMap<String, String>,
}

/// What a review says of its pod. Only creations by KubeVirt's controller are of interest; what another account
/// creates, whatever its labels, is judged by the quota alone.
///
/// # Errors
/// Why no room is made.
pub fn claim(review: &Review<'_>, kubevirt_controller: Option<&str>) -> Result<Claim, &'static str> {
    if review.kind != "Pod" || review.operation != Operation::Create {
        return Err("not the creation of a pod");
    }
    if review.dry_run {
        return Err("a dry run takes nothing");
    }
    if kubevirt_controller != Some(review.user_info.username.as_str()) {
        return Err("not created by KubeVirt's controller");
    }
    let object = review.object.ok_or("the request has no object")?;
    read_claim(review, object).ok_or("not a pod of a migration")
}

fn read_claim(review: &Review<'_>, object: &RawValue) -> Option<Claim> {
    let mut metadata = serde_json::from_str::<ClaimView>(object.get()).ok()?.metadata;
    let wire: PodWire = serde_json::from_str(object.get()).ok()?;
    Some(Claim {
        namespace: review.namespace.clone(),
        pod: metadata.uid,
        attaches: wire.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "Pod"),
        migration_uid: metadata.labels.remove(names::MIGRATION_JOB_LABEL)?,
        migration_name: metadata.annotations.remove(names::MIGRATION_NAME_ANNOTATION),
        machine_uid: metadata.labels.remove(names::CREATED_BY_LABEL),
        wire,
    })
}

impl Claim {
    /// Whether the claim is true: the migration exists in this namespace and is not over, and the machine that it moves runs
    /// here, so that its pod is counted by the quotas of this namespace already.
    ///
    /// # Errors
    /// Why it is not.
    pub fn check(
        &self,
        migration: Option<&VmimRecord>,
        machine: Option<&VmiRecord>,
    ) -> Result<(), &'static str> {
        let migration = self.under_way(migration)?;
        let machine = machine.filter(|machine| machine.name.as_ref() == &*migration.machine);
        let runs = machine.is_some_and(|machine| machine.running && machine.node.is_some());
        if runs { Ok(()) } else { Err("no machine that runs in the namespace is moved") }
    }

    /// Whether the pod is a launcher of the machine that its migration moves inside this namespace.
    ///
    /// # Errors
    /// Why it is not.
    pub fn check_owner(
        &self,
        migration: Option<&VmimRecord>,
        machine: Option<&VmiRecord>,
    ) -> Result<(), &'static str> {
        let migration = self.under_way(migration)?;
        let moved = machine.filter(|machine| machine.name.as_ref() == &*migration.machine);
        let owner = self.wire.metadata.owner_references.iter().flatten().next();
        let is_of = |machine: &VmiRecord| {
            [owner.map(|owner| &owner.uid), self.machine_uid.as_ref()]
                .iter()
                .all(|uid| uid.is_some_and(|uid| Uid::parse(uid) == machine.uid))
        };
        if moved.is_some_and(is_of) { Ok(()) } else { Err("the migration is of another machine") }
    }

    fn under_way<'m>(&self, migration: Option<&'m VmimRecord>) -> Result<&'m VmimRecord, &'static str> {
        let migration = migration.filter(|migration| {
            migration.uid == Uid::parse(&self.migration_uid) && *migration.namespace == *self.namespace
        });
        let migration = migration.ok_or("there is no such migration in the namespace")?;
        if migration.is_final() {
            return Err("the migration is over");
        }
        if migration.receiving {
            return Err("the machine comes from elsewhere: the quota judges it like any other");
        }
        Ok(migration)
    }

    /// What the pod takes: for a while beside `source`, and for good what it takes more
    /// than that and what KubeVirt itself may add.
    ///
    /// # Errors
    /// When it cannot be calculated.
    pub fn need(
        &self,
        rules: ChargeRules,
        source: &Source,
        allowed: Allowance,
    ) -> Result<Need, &'static str> {
        let need = sluice_index::need_of(&self.wire, rules);
        let need = need.map_err(|_| "a quantity of the pod cannot be read")?;
        let growth = sluice_index::growth_of(&self.wire, source, allowed, rules);
        let (source, source_facts) = (source.charge.clone(), source.facts.clone());
        Ok(Need { source, source_facts, growth, ..need })
    }

    pub(super) fn target(self, migration: &VmimRecord, machine: &VmiRecord, need: Need) -> Target {
        let migration = MigrationRef::new(migration, machine);
        Target { pod: Uid::parse(&self.pod), attaches: self.attaches, migration, need }
    }
}
