//! Lets the target pods of live migrations pass full quotas (`docs/protocols.md`, *Raise and restore*).
//!
//! The answer about a pod is always "allowed": this endpoint makes room before it gives it, or leaves the judgement to the
//! quota. What a review claims, and whether that is true, is decided in [`claim`](self::claim()) and [`Claim::check`]. The
//! answer about a machine that gets another size is "no" where its target would find no room.

mod claim;

pub use claim::{Claim, claim};

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use sluice_engine::headroom::{Allowance, Source};
use sluice_engine::{ChargeRules, Uid};
use sluice_headroom::{Headroom, Target};
use sluice_index::{VmiRecord, VmiWire, VmimRecord};
use tokio::sync::watch;
use tokio::time::timeout;

use super::AsyncEndpoint;
use super::growth::{Change, VMI};
use crate::http::body::HeldBody;
use crate::review::{Review, Verdict};
use crate::settings::Settings;

/// How long a target may wait at most: KubeVirt's controller creates one target after the other, for the whole cluster.
const PATIENCE: Duration = Duration::from_secs(1);

/// The endpoint's own state.
#[derive(Debug)]
pub struct HeadroomEndpoint {
    headroom: Arc<Headroom>,
    rules: watch::Receiver<ChargeRules>,
}

impl HeadroomEndpoint {
    /// Makes room with `headroom`; charges are counted by the rules of the API server's version.
    pub fn new(headroom: Arc<Headroom>, rules: watch::Receiver<ChargeRules>) -> Self {
        Self { headroom, rules }
    }

    /// Whether a machine may have another size. Growth that a quota cannot take would leave the machine unable to migrate.
    fn judge(&self, review: &Review<'_>) -> Verdict {
        let change = match Change::<VmiWire>::read(review, "a VirtualMachineInstance") {
            Ok(change) => change,
            Err(malformed) => return malformed,
        };
        let [before, after] = [&change.before, &change.after].map(VmiRecord::read);
        let outgrown = self.headroom.outgrown(&before, &after);
        outgrown.map_or_else(|| Verdict::allow(""), Verdict::deny)
    }

    /// Returns when the creation may go on, and why; an error is why no room is made for it.
    async fn make_room(&self, claim: Result<Claim, &'static str>) -> Result<&'static str, &'static str> {
        let target = self.target(claim?).await?;
        Ok(self.headroom.admit(target, PATIENCE).await)
    }

    async fn target(&self, claim: Claim) -> Result<Target, &'static str> {
        let migration = self.migration(&claim).await?;
        let observed = self.headroom.observed();
        let machine = observed.read(|index| index.vmis.get(&claim.namespace, &migration.machine).cloned());
        claim.check(Some(&migration), machine.as_deref())?;
        let machine = machine.ok_or("the machine is not known")?;
        let source = self.source(&claim, &machine).await?;
        // What KubeVirt adds is for the guest; a pod that attaches volumes has none.
        let allowed = match claim.attaches {
            true => Allowance::default(),
            false => observed.read(|index| index.allowance(&machine)),
        };
        let need = claim.need(*self.rules.borrow(), &source, allowed)?;
        Ok(claim.target(&migration, &machine, need))
    }

    /// What the pod is compared with; nothing if the machine has no such pod.
    async fn source(&self, claim: &Claim, machine: &VmiRecord) -> Result<Source, &'static str> {
        let (observed, now) = (self.headroom.observed(), self.headroom.server_now_ms().div_euclid(1000));
        let known = observed.read(|index| index.source(machine, None, claim.attaches, now));
        if let Some(known) = known {
            return Ok(known);
        }
        // The watches may be late: of pods, or of where the machine runs.
        let live = self.headroom.find_live(&machine.namespace, |index, pods| {
            let machine = index.vmis.get(&machine.namespace, &machine.name)?;
            index.source(machine, Some(pods), claim.attaches, now)
        });
        Ok(live.await.map_err(|_| "the pods of the machine cannot be read")?.unwrap_or_default())
    }

    async fn migration(&self, claim: &Claim) -> Result<Arc<VmimRecord>, &'static str> {
        let uid = Uid::parse(&claim.migration_uid);
        if let Some(known) = self.headroom.observed().read(|index| index.vmims.by_uid(&uid).cloned()) {
            return Ok(known);
        }
        // virt-controller may be faster than our watch.
        let name = claim.migration_name.as_deref().ok_or("the pod does not name its migration")?;
        let live = self.headroom.requests().migration(&claim.namespace, name).await;
        live.map_err(|_| "the migration cannot be read")?.map(Arc::new).ok_or("there is no such migration")
    }
}

impl AsyncEndpoint for HeadroomEndpoint {
    fn decide(
        self: Arc<Self>,
        review: &Review<'_>,
        _settings: &Settings,
        _body: &HeldBody,
    ) -> BoxFuture<'static, Verdict> {
        if review.kind == VMI {
            return ready(self.judge(review)).boxed();
        }
        let controller = self.headroom.observed().read(|index| index.kubevirt_controller());
        let claim = claim(review, controller.as_deref());
        async move {
            let made = timeout(PATIENCE, self.make_room(claim)).await;
            Verdict::allow(made.unwrap_or(Err("it took too long")).unwrap_or_else(|why| why))
        }
        .boxed()
    }
}
