//! Refuses pods without a gate that look like targets of local migrations and are none (`docs/vms.md`,
//! *Targets without a gate*).
//!
//! Policies let in what looks like one and is created by KubeVirt's controller. Who decides what other mutating admission
//! does to KubeVirt's pods could give that look to any of them. Nothing is refused by what a watch says, which may be late,
//! nor when it is not known.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use sluice_api::names;
use sluice_engine::Uid;
use sluice_headroom::Headroom;
use sluice_index::{VmiRecord, VmimRecord};
use sluice_runtime::events::{EventType, Report};
use tokio::time::timeout;

use super::AsyncEndpoint;
use super::headroom::{Claim, claim};
use crate::http::body::HeldBody;
use crate::review::{Review, Verdict};
use crate::settings::Settings;

/// How long a target may wait at most, less than the API server waits.
const PATIENCE: Duration = Duration::from_secs(2);

/// Reason of the event of a machine whose pod was refused.
const REFUSED: &str = "TargetRefused";
const ACTION: &str = "RefuseTarget";

/// The endpoint's own state.
pub struct TargetEndpoint {
    headroom: Arc<Headroom>,
    tell: Box<dyn Fn(Report) + Send + Sync>,
}

impl TargetEndpoint {
    /// Compares pods with the migrations and machines that `headroom` knows. `tell` hears what is refused.
    pub fn new(headroom: Arc<Headroom>, tell: impl Fn(Report) + Send + Sync + 'static) -> Self {
        Self { headroom, tell: Box::new(tell) }
    }

    async fn judge(&self, claim: &Claim) -> Verdict {
        let known = self.headroom.observed().read(|index| {
            let migration = index.vmims.by_uid(&Uid::parse(&claim.migration_uid))?;
            let machine = index.vmis.get(&claim.namespace, &migration.machine);
            Some(claim.check_owner(Some(migration), machine.map(AsRef::as_ref)))
        });
        if known == Some(Ok(())) {
            return Verdict::allow("it is the target of a migration");
        }
        let live = timeout(PATIENCE, self.headroom.requests().machines(&claim.namespace)).await;
        let Ok(Ok((machines, migrations))) = live else {
            return Verdict::allow("the migration cannot be read");
        };
        let uid = Uid::parse(&claim.migration_uid);
        let migration = migrations.iter().map(VmimRecord::read).find(|migration| migration.uid == uid);
        let machine = migration.as_ref().and_then(|migration| {
            machines.iter().map(VmiRecord::read).find(|machine| *machine.name == *migration.machine)
        });
        match claim.check_owner(migration.as_ref(), machine.as_ref()) {
            Ok(()) => Verdict::allow("it is the target of a migration"),
            Err(why) => self.refuse(claim, why),
        }
    }

    fn refuse(&self, claim: &Claim, why: &str) -> Verdict {
        let Claim { namespace, migration_uid, migration_name, wire, .. } = claim;
        let migration = migration_name.as_ref().unwrap_or(migration_uid);
        tracing::warn!(namespace, migration, why, "a pod of KubeVirt passes for the target of a migration");
        let note = format!(
            "the pod has the label {} and no scheduling gate as a target of migration \"{migration}\", but {why}: have no \
             other admission plugin give pods that label or take {} from them, and try again",
            names::MIGRATION_JOB_LABEL,
            names::GATE
        );
        // Its labels are what it is refused for.
        let mut owners = wire.metadata.owner_references.iter().flatten();
        if let Some(machine) = owners.find(|owner| owner.kind == "VirtualMachineInstance") {
            (self.tell)(Report {
                regarding: ObjectReference {
                    api_version: Some("kubevirt.io/v1".to_owned()),
                    kind: Some("VirtualMachineInstance".to_owned()),
                    namespace: Some(namespace.clone()),
                    name: Some(machine.name.clone()),
                    uid: Some(machine.uid.clone()),
                    ..ObjectReference::default()
                },
                related: None,
                type_: EventType::Warning,
                reason: REFUSED.to_owned(),
                action: ACTION.to_owned(),
                note: note.clone(),
            });
        }
        Verdict::deny(note)
    }
}

impl AsyncEndpoint for TargetEndpoint {
    fn decide(
        self: Arc<Self>,
        review: &Review<'_>,
        _settings: &Settings,
        _body: &HeldBody,
    ) -> BoxFuture<'static, Verdict> {
        let controller = self.headroom.observed().read(|index| index.kubevirt_controller());
        let claim = claim(review, controller.as_deref());
        async move {
            match claim {
                Ok(claim) => self.judge(&claim).await,
                Err(why) => Verdict::allow(why),
            }
        }
        .boxed()
    }
}
