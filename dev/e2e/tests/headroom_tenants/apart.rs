//! A cluster for tests that change what all of it sees.

use std::sync::OnceLock;

use serde_json::json;
use sluice_e2e::tenant::own;
use sluice_e2e::{Controller, Installation, Setup, Webhook};
use sluice_testbed::Bed;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

struct Apart {
    bed: &'static Bed,
    _installation: Installation<'static>,
    _controller: Controller,
    _webhook: Webhook,
}

/// The cluster, for as long as the guard lives.
pub struct Turn {
    pub bed: &'static Bed,
    _guard: MutexGuard<'static, ()>,
}

/// Waits for one's turn. Who changes the cluster changes it back before the turn ends.
pub async fn apart() -> Turn {
    static APART: OnceCell<Apart> = OnceCell::const_new();
    static BED: OnceLock<Bed> = OnceLock::new();
    static TURN: Mutex<()> = Mutex::const_new(());
    let guard = TURN.lock().await;
    let apart = APART.get_or_init(|| async {
        let fresh = own().await;
        let bed = BED.get_or_init(|| fresh);
        let (installation, controller, webhook) = Installation::running(bed, Setup::default()).await.unwrap();
        installation.until_locking().await.unwrap();
        Apart { bed, _installation: installation, _controller: controller, _webhook: webhook }
    });
    Turn { bed: apart.await.bed, _guard: guard }
}

impl Turn {
    /// KubeVirt's `additionalGuestMemoryOverheadRatio`; `None`: unset.
    pub async fn overhead_ratio(&self, ratio: Option<&str>) {
        let configuration = json!({ "additionalGuestMemoryOverheadRatio": ratio });
        self.bed.kubevirt().unwrap().configure(configuration).await.unwrap();
    }

    /// How many migrations KubeVirt lets run at once.
    pub async fn parallel(&self, cluster: u32, outbound: u32) {
        let limits =
            json!({ "parallelMigrationsPerCluster": cluster, "parallelOutboundMigrationsPerNode": outbound });
        self.bed.kubevirt().unwrap().configure(json!({ "migrations": limits })).await.unwrap();
    }
}
