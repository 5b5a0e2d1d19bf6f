//! Clusters with KubeVirt and Sluice's objects, whose webhooks reach the API server through proxies.

use std::ops::Deref;
use std::sync::LazyLock;

use k8s_openapi::api::core::v1::ResourceQuota;
use kube::Api;
use sluice_api::names;
use sluice_e2e::tenant::prepare;
use sluice_e2e::{Controller, Installation, Setup, pair};
use sluice_testbed::{Bed, BedOptions, Identity, TestNamespace};
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::faults::gate::Gate;

/// What tests share outlives each of them: its proxy runs here.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// A cluster whose controller and one webhook run all the time.
pub struct World {
    pub bed: &'static Bed,
    pub installation: Installation<'static>,
    pub controller: Controller,
}

impl World {
    /// The controller stands still for as long as this lives, and less long than its lease.
    pub fn without_controller(&self) -> Away<'_> {
        self.controller.program.pause();
        Away(&self.controller)
    }
}

/// A controller that stands still.
pub struct Away<'w>(&'w Controller);

impl Drop for Away<'_> {
    /// A test that fails leaves the controller to the others.
    fn drop(&mut self) {
        self.0.program.resume();
    }
}

/// The cluster in which tests keep to their own namespaces, and its webhook.
pub struct Shared {
    world: World,
    pub gate: Gate,
}

impl Deref for Shared {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

/// Started by the first that asks.
pub async fn shared() -> &'static Shared {
    static WORLD: OnceCell<Shared> = OnceCell::const_new();
    let start = || async {
        let start = || {
            RUNTIME.block_on(async {
                let world = equip(Bed::shared_with_kubevirt().await.unwrap(), &[]).await;
                let gate = Gate::start(&world, &account(world.bed, names::WEBHOOK).await, &[]).await;
                gate.serve_all(world.bed, &[world.bed.admin().unwrap()]).await;
                Shared { world, gate }
            })
        };
        tokio::task::spawn_blocking(start).await.unwrap()
    };
    WORLD.get_or_init(start).await
}

/// A cluster with two API servers. KubeVirt's controller speaks with the second, everything else with the first. One test at
/// a time has it.
pub async fn pair() -> Turn {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    static TURN: Mutex<()> = Mutex::const_new(());
    let turn = TURN.lock().await;
    let start = || async {
        let options = BedOptions {
            etcd_relay: true,
            // What was answered is in the log, even if the API server is killed at once.
            api_server_args: vec!["--audit-log-mode=blocking".to_owned()],
            ..pair::options()
        };
        let bed = Bed::start_shared(options).await.unwrap();
        equip(bed, &pair::both(bed)).await
    };
    Turn { world: WORLD.get_or_init(start).await, _turn: turn }
}

/// A world that one test has for itself at the moment.
pub struct Turn {
    world: &'static World,
    _turn: MutexGuard<'static, ()>,
}

impl Deref for Turn {
    type Target = World;

    fn deref(&self) -> &World {
        self.world
    }
}

/// Nodes, limits that do not limit, Sluice's objects but the webhook's, and a controller.
async fn equip(bed: &'static Bed, controller_args: &[String]) -> World {
    prepare(bed).await;
    // The lease outlives the restart of an API server, and a controller that stands still for longer than a mark lasts.
    let args = ["--lease-duration=60s", "--lease-renew-deadline=50s"];
    let args = args.into_iter().map(str::to_owned).chain(controller_args.iter().cloned());
    let setup = Setup { controller_args: args.collect(), without_webhook: true, ..Setup::default() };
    let installation = Installation::apply(bed, setup).await.unwrap();
    let controller = installation.controller().await.unwrap();
    installation.until_guarded().await.unwrap();
    World { bed, installation, controller }
}

/// The account of one of Sluice's programs.
pub async fn account(bed: &Bed, name: &str) -> Identity {
    bed.service_account(names::INSTALL_NAMESPACE, name).await.unwrap()
}

/// The quotas of a namespace, as this account sees them.
pub fn quotas_as(identity: &Identity, namespace: &TestNamespace) -> Api<ResourceQuota> {
    Api::namespaced(identity.client().unwrap(), &namespace.name)
}
