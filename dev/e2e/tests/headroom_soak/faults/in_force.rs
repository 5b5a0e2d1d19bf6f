//! The admission policies are deleted, their API server is killed, Sluice is dead:
//! nothing gets in, and it ends by the clock.

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use sluice_api::{HeadroomProbe, HeadroomProbeSpec, names};
use sluice_e2e::objects;
use sluice_e2e::pair::{at_second, both};
use sluice_e2e::tenant::{SOON, Tenant, hard, used};
use sluice_engine::headroom::MARK;
use sluice_manifests::{InstallOptions, admission_policies};
use sluice_testbed::{Component, wait};

use crate::faults::gate::Gate;
use crate::faults::invariants::Invariants;
use crate::faults::scene::Scene;
use crate::faults::world::{self, Turn, account, quotas_as};

async fn delete_policies(world: &Turn) {
    let (now, client) = (DeleteParams::default(), world.bed.admin().unwrap());
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client);
    for name in [names::LOCK_POLICY, names::CHARGE_POLICY] {
        policies.delete(name, &now).await.unwrap();
        bindings.delete(name, &now).await.unwrap();
    }
}

/// As the operator does; none runs here, for it would put back the webhook configurations too.
async fn put_back_policies(world: &Turn) {
    let policies = admission_policies(&InstallOptions::default()).into_iter();
    let deleted = policies.filter(|each| [names::LOCK_POLICY, names::CHARGE_POLICY].contains(&each.name));
    world.bed.apply_objects(deleted.flat_map(|each| [each.policy, each.binding])).await.unwrap();
}

/// By effect, for an API server goes on with what was deleted for up to a second.
async fn until_missing(servers: &[Client], namespace: &str) {
    let probe = HeadroomProbe::new(names::PROBE_NAME, HeadroomProbeSpec { mark: 0 });
    let dry = PostParams { dry_run: true, ..Default::default() };
    for server in servers {
        let probes: Api<HeadroomProbe> = Api::namespaced(server.clone(), namespace);
        let is_missing = || async { probes.create(&dry, &probe).await.ok() };
        wait::eventually(SOON, is_missing, "the policies to be missing").await.unwrap();
    }
}

/// That they were in force was proven before, and nothing says that they no longer are: the first raise notices, and ends
/// without letting its target in. The policies count for the whole cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raise_without_policies_lets_no_target_in_and_one_goes_when_they_are_back() {
    let world = world::pair().await;
    let bed = world.bed;
    let servers = both(bed);
    let gate =
        Gate::start(&world, &account(bed, names::WEBHOOK).await, &servers.each_ref().map(String::as_str))
            .await;
    let scene = Scene::unlimited(bed, "deleted").await;
    gate.serve_all(bed, &[bed.admin().unwrap(), at_second(bed)]).await;
    delete_policies(&world).await;
    until_missing(&[bed.admin().unwrap(), at_second(bed)], scene.tenant.name()).await;
    let migration = scene.vm.migrate().await.unwrap();
    let unproven = || async { (gate.endings("unproven").await >= 1).then_some(()) };
    wait::eventually(SOON, unproven, "the raise to end").await.unwrap();
    let said = gate.webhook.program.log();
    assert!(said.contains("does not know of the raise"), "{said}");
    scene.tenant.until_clear().await;
    put_back_policies(&world).await;
    scene.settled_when_woken(&migration).await;
    Invariants::of(bed, scene.tenant.name()).await.holds(2);
}

/// A namespace with a pod and the quota `rq` of 4 pods, and how to mark it.
struct Marked {
    tenant: Tenant<'static>,
    webhook: Api<ResourceQuota>,
}

impl Marked {
    async fn new(world: &Turn, prefix: &str) -> Self {
        let tenant = Tenant::on(world.bed, prefix).await;
        tenant.pods.create(&PostParams::default(), &objects::pod("own", &[])).await.unwrap();
        tenant.quota("rq", json!({ "pods": "4" })).await;
        tenant.until_quota("rq", "the pod to be counted", |quota| used(quota)["pods"].0 == "1").await;
        let identity = account(world.bed, names::WEBHOOK).await;
        Self { webhook: quotas_as(&identity, &tenant.namespace), tenant }
    }

    /// Raises the pods as a webhook does that dies then.
    async fn raise(&self, seconds: i64) -> Timestamp {
        let end = Timestamp::from_second(Timestamp::now().as_second() + seconds).unwrap();
        let mark = (end.as_second() * 1000 + 7).to_string();
        let status = json!({ "hard": { "pods": "9", MARK: mark }, "used": { MARK: mark } });
        let params =
            PatchParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..Default::default() };
        let patch = Patch::Merge(json!({ "status": status }));
        self.webhook.patch_status("rq", &params, &patch).await.unwrap();
        end
    }
}

/// An API server that was killed lets no pod in before it enforces the marks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_starts_lets_nothing_into_a_marked_quota() {
    let world = world::pair().await;
    let bed = world.bed;
    let marked = Marked::new(&world, "starts").await;
    let pods: Api<Pod> = Api::namespaced(at_second(bed), marked.tenant.name());
    let pod = objects::pod("intruder", &[]);
    for _ in 0..2 {
        marked.raise(10).await;
        bed.stop(Component::SecondApiServer);
        bed.start_component(Component::SecondApiServer).unwrap();
        let denied = || async {
            let end = marked.raise(10).await;
            match pods.create(&PostParams::default(), &pod).await {
                Ok(_) => panic!("a pod got in while the mark was live, until {end}"),
                Err(kube::Error::Api(status))
                    if status.message.contains("exceeded quota: rq is reserved") =>
                {
                    Some(())
                }
                Err(_) => None,
            }
        };
        wait::eventually(SOON, denied, "the API server to deny pods").await.unwrap();
    }
    let end = marked.raise(1).await;
    let let_in = || async { pods.create(&PostParams::default(), &pod).await.ok().map(|_| Timestamp::now()) };
    let entered = wait::eventually(SOON, let_in, "the mark to be over").await.unwrap();
    assert!(entered >= end, "{entered} before {end}");
}

/// The codes of kube-controller-manager's writes of the status, with the times at which they were asked for.
async fn recounts(tenant: &Tenant<'_>) -> Vec<(Timestamp, u64)> {
    let events = tenant.bed.audit_events_with(tenant.name()).await.unwrap();
    let by_kcm = events.iter().filter(|event| {
        event.namespace == tenant.name()
            && matches!(event.resource.as_str(), "resourcequotas" | "resourcequotas/status")
            && event.user == names::quota_controller_username()
    });
    by_kcm.map(|event| (event.received, event.code)).collect()
}

/// The controller stands still, as if Sluice were dead everywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_sluice_left_is_restored_by_kube_controller_manager_after_its_end() {
    let world = world::pair().await;
    let marked = Marked::new(&world, "dead").await;
    let away = world.without_controller();
    let end = marked.raise(4).await;
    let raised = Timestamp::now();
    // It counts again when a pod goes.
    marked.tenant.pods.delete("own", &DeleteParams::default().grace_period(0)).await.unwrap();
    let restored = |quota: &ResourceQuota| {
        hard(quota)["pods"].0 == "4" && hard(quota).len() == 1 && used(quota)["pods"].0 == "0"
    };
    let quota = marked.tenant.until_quota("rq", "to be restored", restored).await;
    drop(away);
    assert!(!used(&quota).contains_key(MARK));
    let writes: Vec<_> = recounts(&marked.tenant).await.into_iter().filter(|(at, _)| *at > raised).collect();
    let (early, late): (Vec<_>, Vec<_>) = writes.into_iter().partition(|(at, _)| *at < end);
    assert!(!early.is_empty() && early.iter().all(|(_, code)| *code == 403), "{early:?}");
    assert!(late.iter().any(|(_, code)| *code == 200), "{late:?}");
}
