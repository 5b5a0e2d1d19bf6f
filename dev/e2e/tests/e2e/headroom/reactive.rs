//! Migrations that a quota rejected get through without the webhook.

use k8s_openapi::api::core::v1::{Event, ResourceQuota};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use serde_json::json;
use sluice_api::VirtualMachineMigrationResourceQuota as Vmmrq;
use sluice_e2e::{Controller, Installation, Setup};
use sluice_testbed::kubevirt::{Migration, Vm};
use sluice_testbed::{Bed, BedOptions, TestNamespace, wait};

use crate::context::SOON;

/// KubeVirt, a controller of ours and no webhook, and a namespace whose quota one virtual machine fills.
struct Scene {
    bed: Bed,
    _controller: Controller,
    namespace: TestNamespace,
    vm: Vm,
}

impl Scene {
    async fn new() -> Self {
        let bed = Bed::start(BedOptions { kubevirt: true, ..BedOptions::default() }).await.unwrap();
        let setup = Setup { without_webhook: true, ..Setup::default() };
        let installation = Installation::apply(&bed, setup).await.unwrap();
        let controller = installation.controller().await.unwrap();
        let kubevirt = bed.kubevirt().unwrap();
        kubevirt.add_nodes(2).await.unwrap();
        let namespace = bed.namespace("mig", &[]).await.unwrap();
        let vm = kubevirt.vm(&namespace.name, "web").start().await.unwrap();
        let scene = Self { _controller: controller, namespace, vm, bed };
        scene.quota("700Mi").await;
        scene
    }

    fn quotas(&self) -> Api<ResourceQuota> {
        Api::namespaced(self.bed.admin().unwrap(), &self.namespace.name)
    }

    async fn quota(&self, memory: &str) {
        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "rq" },
            "spec": { "hard": { "requests.memory": memory } },
        });
        let quota = serde_json::from_value(quota).unwrap();
        self.quotas().create(&PostParams::default(), &quota).await.unwrap();
        let counted = |quota: Option<&ResourceQuota>| {
            let used = quota.and_then(|quota| quota.status.as_ref()?.used.as_ref()?.get("requests.memory"));
            used.is_some_and(|used| used.0 != "0")
        };
        wait::wait_for(&self.quotas(), "rq", SOON, "the machine to be counted", counted).await.unwrap();
    }

    fn vmmrqs(&self) -> Api<Vmmrq> {
        Api::namespaced(self.bed.admin().unwrap(), &self.namespace.name)
    }

    async fn grant(&self, memory: &str) {
        let grant = json!({
            "apiVersion": "mtq.kubevirt.io/v1alpha1", "kind": "VirtualMachineMigrationResourceQuota",
            "metadata": { "name": "grant" },
            "spec": { "additionalMigrationResources": { "requests.memory": memory } },
        });
        let apply = PatchParams::apply("test").force();
        self.vmmrqs().patch("grant", &apply, &Patch::Apply(grant)).await.unwrap();
    }

    /// Bytes.
    async fn used(&self) -> i64 {
        let status = self.quotas().get("rq").await.unwrap().status.unwrap();
        status.used.unwrap()["requests.memory"].0.parse().unwrap()
    }

    async fn rejected(&self) -> Migration {
        let migration = self.vm.migrate().await.unwrap();
        migration.until_rejected().await.unwrap();
        migration
    }

    async fn until_restored(&self) {
        let same = |quota: Option<&ResourceQuota>| {
            quota.is_some_and(|quota| {
                let wanted = quota.spec.as_ref().and_then(|spec| spec.hard.clone());
                wanted == quota.status.as_ref().and_then(|status| status.hard.clone())
            })
        };
        wait::wait_for(&self.quotas(), "rq", SOON, "status.hard to be spec.hard", same).await.unwrap();
    }

    async fn until_told(&self, kind: &str, reason: &str) -> Event {
        let events: Api<Event> = Api::namespaced(self.bed.admin().unwrap(), &self.namespace.name);
        let is = |event: &Event| {
            event.reason.as_deref() == Some(reason) && event.involved_object.kind.as_deref() == Some(kind)
        };
        let what = format!("event {reason} on a {kind}");
        let config = watcher::Config::default();
        let told = |events: &[Event]| events.iter().any(is);
        let events = wait::wait_for_all(&events, config, SOON, &what, told).await.unwrap();
        events.into_iter().find(is).unwrap()
    }
}

#[tokio::test]
async fn a_grant_created_after_the_rejection_lets_it_through() {
    let scene = Scene::new().await;
    let migration = scene.rejected().await;
    for kind in ["VirtualMachineInstanceMigration", "VirtualMachineInstance"] {
        let event = scene.until_told(kind, "NotEnoughHeadroom").await;
        let text = event.message.unwrap();
        assert!(text.contains("requests.memory") && text.contains("quota rq"), "{text}");
    }
    let legacy = scene.until_told("Pod", "NotEnoughResourceToRelease").await;
    assert_eq!(legacy.involved_object.name, None);
    scene.grant("1Gi").await;
    migration.until_succeeded().await.unwrap();
    scene.until_restored().await;
}

#[tokio::test]
async fn a_grant_that_is_short_by_a_thousandth_of_a_byte_is_not_enough_until_it_is_enlarged() {
    let scene = Scene::new().await;
    // The target is like the source: twice what is used now has to fit.
    let exactly = 2 * scene.used().await - 700 * 1024 * 1024;
    scene.grant(&format!("{}m", exactly * 1000 - 1)).await;
    let migration = scene.rejected().await;
    let lacks = |vmmrq: Option<&Vmmrq>| {
        let conditions = vmmrq.and_then(|vmmrq| Some(vmmrq.status.as_ref()?.conditions.clone()));
        conditions.into_iter().flatten().any(|condition| {
            condition.type_ == "NotEnough"
                && condition.status == "True"
                && condition.message.ends_with("missing 1m")
        })
    };
    wait::wait_for(&scene.vmmrqs(), "grant", SOON, "the condition", lacks).await.unwrap();
    assert!(migration.target_pod().await.unwrap().is_none());
    scene.grant(&exactly.to_string()).await;
    migration.until_succeeded().await.unwrap();
    scene.until_restored().await;
    let enough = |vmmrq: Option<&Vmmrq>| {
        let conditions = vmmrq.and_then(|vmmrq| Some(vmmrq.status.as_ref()?.conditions.clone()));
        conditions
            .into_iter()
            .flatten()
            .any(|condition| condition.type_ == "NotEnough" && condition.status == "False")
    };
    wait::wait_for(&scene.vmmrqs(), "grant", SOON, "the condition to end", enough).await.unwrap();
}
