//! Clusters with KubeVirt and Sluice's objects. The webhooks are brought by the tests: see [`super::gate::Gate`].

use std::ops::Deref;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::DeleteParams;
use kube::{Api, Client};
use serde_json::json;
use sluice_api::names;
use sluice_e2e::{Controller, Installation, Setup};
use sluice_testbed::proxy::FaultProxy;
use sluice_testbed::{Bed, BedOptions, Identity};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// A lease that outlives the restart of an API server.
pub const LEASE: [&str; 2] = ["--lease-duration=30s", "--lease-renew-deadline=25s"];

/// A cluster whose controller runs all the time.
pub struct World {
    pub bed: &'static Bed,
    pub installation: Installation<'static>,
    _controller: Controller,
}

/// The cluster in which tests keep to their own namespaces.
pub async fn shared() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    WORLD.get_or_init(|| async { equip(Bed::shared_with_kubevirt().await.unwrap(), &[]).await }).await
}

/// A cluster with two API servers, at both of which Sluice's controller proves its windows. KubeVirt's controller speaks
/// with the second, everybody else with the first. One test at a time has it.
pub async fn pair() -> Turn {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    static TURN: Mutex<()> = Mutex::const_new(());
    let turn = TURN.lock().await;
    let start = || async {
        let options =
            BedOptions { kubevirt: true, second_api_server: true, etcd_relay: true, ..BedOptions::default() };
        let bed: &'static Bed = Box::leak(Box::new(Bed::start(options).await.unwrap()));
        let servers = [bed.server_url(), bed.second_server_url()];
        let args = servers.map(|url| format!("--api-server={url}"));
        equip(bed, &args.each_ref().map(String::as_str)).await
    };
    Turn { world: WORLD.get_or_init(start).await, _turn: turn }
}

impl World {
    pub const fn of(bed: &'static Bed, installation: Installation<'static>, controller: Controller) -> Self {
        Self { bed, installation, _controller: controller }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() || std::env::var_os("SLUICE_KEEP").is_some() {
            self.bed.keep();
        }
    }
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

impl Drop for Turn {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.world.bed.keep();
        }
    }
}

async fn equip(bed: &'static Bed, controller_args: &[&str]) -> World {
    let mut installation = installed(bed).await;
    installation.add_controller_args(controller_args);
    let controller = installation.controller().await.unwrap();
    installation.until_locking().await.unwrap();
    World { bed, installation, _controller: controller }
}

/// Nodes, limits that do not limit, and Sluice's objects but the webhook's.
pub async fn installed(bed: &Bed) -> Installation<'_> {
    let kubevirt = bed.kubevirt().unwrap();
    kubevirt.add_nodes(3).await.unwrap();
    limits(bed, 100, 100).await;
    let controller_args = LEASE.into_iter().chain(["--no-webhook-setup"]).map(str::to_owned).collect();
    Installation::apply(bed, Setup { controller_args, without_webhook: true }).await.unwrap()
}

/// How many migrations KubeVirt lets run, in the cluster and away from a node.
pub async fn limits(bed: &Bed, cluster: u32, outbound: u32) {
    let limits =
        json!({"parallelMigrationsPerCluster": cluster, "parallelOutboundMigrationsPerNode": outbound});
    bed.kubevirt().unwrap().configure(json!({ "migrations": limits })).await.unwrap();
}

/// The administrator at the second API server.
pub fn at_second(bed: &Bed) -> Client {
    bed.at_second_server(bed.admin_identity()).unwrap().client().unwrap()
}

/// The account of one of Sluice's programs.
pub async fn account(bed: &Bed, name: &str) -> Identity {
    bed.service_account(names::INSTALL_NAMESPACE, name).await.unwrap()
}

/// A proxy between the controller and the API server.
pub async fn controller_proxy(bed: &Bed) -> FaultProxy {
    FaultProxy::start(bed, &account(bed, names::CONTROLLER).await).await.unwrap()
}

/// Lets the next controller lead at once instead of after the dead one's lease.
pub async fn forget_leader(bed: &Bed) {
    let leases: Api<Lease> = Api::namespaced(bed.admin().unwrap(), names::INSTALL_NAMESPACE);
    leases.delete_collection(&DeleteParams::default(), &Default::default()).await.unwrap();
}
