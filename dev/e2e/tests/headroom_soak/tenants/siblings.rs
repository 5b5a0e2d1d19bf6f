//! Another validating webhook on pods answers late, or refuses. Webhooks are called at once, and quotas are asked after the
//! slowest of them.

use std::time::Duration;

use rstest::rstest;
use serde_json::json;
use sluice_api::names;
use sluice_e2e::audit::AuditTrail;
use sluice_e2e::intruders::editor;
use sluice_e2e::objects::pod;
use sluice_e2e::simulated_webhook::{SimulatedWebhook, Verdict, WebhookOptions, rule};
use sluice_e2e::tenant::{SOON, Tenant, amount, shared, used};
use sluice_testbed::kubevirt::MigrationPhase;
use sluice_testbed::wait;

use crate::tenants::quota_history::exact;

const SIBLING: &str = "images.simulated.test";
const MEMORY: &str = "requests.memory";
/// A round in which the thief was too early or too late says nothing.
const ROUNDS: usize = 5;
/// How often a machine is refused before the namespace is looked at: virt-controller's back-off, 5 ms doubling, is at
/// seconds then.
const ATTEMPTS: usize = 10;
/// The most raises that may come of a migration which never passes.
const RAISES: usize = 4;
/// The rests of as many locks of a few seconds.
const RECOVERED: Duration = Duration::from_secs(300);

fn on_pods(tenant: &Tenant<'_>) -> WebhookOptions {
    WebhookOptions::new(SIBLING, tenant.name(), vec![rule(&["CREATE"], &["pods"])])
}

/// The first attempt is admitted, and a pod that was on its way before the raise does not take the room.
#[rstest]
#[case::of_a_good_part_of_a_second(Duration::from_millis(800))]
#[case::of_three_seconds(Duration::from_secs(3))]
#[case::of_eight_seconds(Duration::from_secs(8))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_passes_a_delay_and_an_earlier_pod_does_not_take_its_room(#[case] delay: Duration) {
    for _ in 0..ROUNDS {
        if thief_was_on_its_way(delay).await {
            return;
        }
    }
    panic!("in {ROUNDS} rounds no pod was on its way at the raise");
}

/// One migration with one thief; whether the thief was asked for before the raise and answered after it.
async fn thief_was_on_its_way(delay: Duration) -> bool {
    let tenant = Tenant::on(shared().await.bed, "slow").await;
    let vm = tenant.vm("web").await;
    let full = tenant.full_quota("full", &[MEMORY]).await;
    assert!(amount(&used(&full), MEMORY) > exact("128Mi"), "the thief would fit into the raise");
    tenant.unlimited().await;
    let sibling =
        SimulatedWebhook::start(tenant.bed, on_pods(&tenant), move |_| Verdict::allow().after(delay));
    let sibling = sibling.await.unwrap();
    let (pods, thief) = (tenant.pods.clone(), pod("thief", &[("memory", "128Mi")]));
    let theft = tokio::spawn(async move { pods.create(&Default::default(), &thief).await });
    sibling.until_review_of("thief", SOON).await.unwrap();
    vm.migrate().await.unwrap().until_succeeded().await.unwrap();
    assert!(theft.await.unwrap().is_err(), "the thief was admitted");
    vm.until_alone().await.unwrap();
    tenant.until_clear().await;
    let trail = AuditTrail::of(&tenant).await;
    assert!(trail.rejections().is_empty(), "{:#?}", trail.rejections());
    trail.assert_no_spec_written();
    let (locks, thief) = (trail.locks(), trail.creation_of("thief"));
    assert_eq!(locks.len(), 1, "{locks:?}");
    sibling.stop().await.unwrap();
    thief.received < locks[0].from && locks[0].from < thief.answered
}

/// The quota is raised for nothing: a few times at most, with long rests, in which others create pods.
#[rstest]
#[case::of_one_machine(1)]
#[case::of_five_machines(5)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_denies_targets_does_not_lock_the_namespace(#[case] machines: usize) {
    let tenant = Tenant::on(shared().await.bed, "denying").await;
    let mut vms = Vec::new();
    for number in 0..machines {
        vms.push(tenant.vm(&format!("vm{number}")).await);
    }
    let full = tenant.full_quota("measured", &[MEMORY]).await;
    tenant.quotas.delete("measured", &Default::default()).await.unwrap();
    // Room for one pod of the tenant, not for a target.
    let limit = amount(&used(&full), MEMORY).saturating_add(exact("200Mi"));
    let limit = limit.quantity(sluice_engine::Format::BinarySi).to_string();
    tenant.quota("full", json!({ MEMORY: limit })).await;
    tenant.unlimited().await;
    let sibling = SimulatedWebhook::start(tenant.bed, on_pods(&tenant), |review| {
        match review.label("object", names::MIGRATION_JOB_LABEL) {
            "" => Verdict::allow(),
            _ => Verdict::deny(403, "the image is not signed"),
        }
    });
    let sibling = sibling.await.unwrap();
    let mut migrations = Vec::new();
    for vm in &vms {
        migrations.push(vm.migrate().await.unwrap());
    }
    let attempted = || async { (sibling.denials() >= ATTEMPTS * machines).then_some(()) };
    wait::eventually(2 * SOON, attempted, "attempts of virt-controller").await.unwrap();
    let client = editor(&tenant).await.client().unwrap();
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::namespaced(client, tenant.name());
    let own = pod("own", &[("memory", "128Mi")]);
    let admitted = || async { pods.create(&Default::default(), &own).await.ok() };
    wait::eventually(SOON, admitted, "the tenant's own pod to be admitted").await.unwrap();
    assert_mostly_open(&tenant).await;
    pods.delete("own", &Default::default()).await.unwrap();
    sibling.stop().await.unwrap();
    let first = &migrations[0];
    let passed = || async { (first.phase().await.ok()? == MigrationPhase::Succeeded).then_some(()) };
    wait::eventually(RECOVERED, passed, "a migration to pass when the namespace has rested").await.unwrap();
}

/// After a useless lock of some time there is none for nine times as long; half of it is asserted.
async fn assert_mostly_open(tenant: &Tenant<'_>) {
    let locks = AuditTrail::of(tenant).await.locks();
    assert!(!locks.is_empty() && locks.len() <= RAISES, "{locks:?}");
    for two in locks.windows(2) {
        let rest = two[1].from.duration_since(two[0].to());
        assert!(rest >= two[0].duration() * 9 / 2, "{rest:?} between {two:?}");
    }
}
