//! A second cluster, whose Sluice has the rights of `deploy/rancher.yaml`. Tests use it together, or alone when they change
//! what all of it sees.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use sluice_e2e::tenant::{Tenant, own_shared};
use sluice_e2e::{Installation, Running, Setup};
use sluice_manifests::{InstallOptions, rancher_objects};
use sluice_testbed::Bed;
use tokio::sync::{OnceCell, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The cluster, for as long as this lives.
pub struct BedUse {
    pub bed: &'static Bed,
    _permit: Permit,
}

#[allow(dead_code, reason = "held, not read")]
enum Permit {
    Together(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

static USE: RwLock<()> = RwLock::const_new(());
/// A use has changed KubeVirt's configuration.
static CHANGED: AtomicBool = AtomicBool::new(false);

/// The cluster with KubeVirt's usual configuration, together with other tests.
pub async fn together() -> BedUse {
    loop {
        let permit = Permit::Together(USE.read().await);
        if !CHANGED.load(Ordering::SeqCst) {
            return BedUse { bed: second_bed().await, _permit: permit };
        }
        drop(permit);
        drop(alone().await);
    }
}

/// The cluster with KubeVirt's usual configuration, without other tests.
pub async fn alone() -> BedUse {
    let permit = Permit::Alone(USE.write().await);
    let bed_use = BedUse { bed: second_bed().await, _permit: permit };
    if CHANGED.load(Ordering::SeqCst) {
        bed_use.overhead_ratio(None).await;
        bed_use.parallel(100, 100).await;
        CHANGED.store(false, Ordering::SeqCst);
    }
    bed_use
}

async fn second_bed() -> &'static Bed {
    static STARTED: OnceCell<Running<'static>> = OnceCell::const_new();
    let started = STARTED.get_or_init(|| async {
        let bed = own_shared().await;
        let installation = Installation::apply(bed, Setup::default()).await.unwrap();
        bed.apply_objects(rancher_objects(&InstallOptions::default())).await.unwrap();
        let controller = installation.controller().await.unwrap();
        let webhook = installation.webhook().await.unwrap();
        installation.until_gating().await.unwrap();
        until_granting(bed).await;
        Running { bed, installation, controller, webhook }
    });
    started.await.bed
}

/// A migration that needs head-room passes only when Sluice's policies are in force.
async fn until_granting(bed: &'static Bed) {
    let tenant = Tenant::on(bed, "first").await;
    let vm = tenant.vm("web").await;
    tenant.full_quota("full", &["requests.memory"]).await;
    tenant.unlimited().await;
    vm.migrate().await.unwrap().until_succeeded().await.unwrap();
    tenant.until_clear().await;
}

/// Changes hold until the end of the use.
impl BedUse {
    /// KubeVirt's `additionalGuestMemoryOverheadRatio`; `None`: unset.
    pub async fn overhead_ratio(&self, ratio: Option<&str>) {
        self.configure(json!({ "additionalGuestMemoryOverheadRatio": ratio })).await;
    }

    /// How many migrations KubeVirt lets run at once.
    pub async fn parallel(&self, cluster: u32, outbound: u32) {
        CHANGED.store(true, Ordering::SeqCst);
        self.bed.kubevirt().unwrap().migrate_at_a_time(cluster, outbound).await.unwrap();
    }

    async fn configure(&self, configuration: Value) {
        CHANGED.store(true, Ordering::SeqCst);
        self.bed.kubevirt().unwrap().configure(configuration).await.unwrap();
    }
}
