//! Programs that write Sluice's objects again and again, as Flux, Argo CD, AKS and cert-manager do, while pods are created
//! and a machine migrates: no gate opens, nothing is refused, and the operator comes to rest.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::audit::{AuditEventExt as _, AuditTrail, assert_none_rejected};
use sluice_e2e::objects::TARGETED;
use sluice_e2e::reappliers::{CAINJECTOR, INJECT, Reapplier, aks_requirements};
use sluice_e2e::tenant::{self, Tenant};
use sluice_e2e::traffic::{Load, Traffic, migrations};
use sluice_e2e::{Running, Setup};
use sluice_testbed::{Bed, wait};

use crate::context::SOON;

/// So many seconds it lasts, a minute if nothing is said: `make soak` says ten.
const SECONDS: &str = "SLUICE_REAPPLY_SECONDS";
/// At most so long the operator may write before it has to rest.
const SETTLING: Duration = Duration::from_secs(60);
/// How often Flux applies, and pods are created.
const EVERY: Duration = Duration::from_secs(5);
const LOAD: Load = Load { every: Duration::from_millis(250), limit: 20, life: Duration::from_secs(1) };
const MANIFESTS: [&str; 2] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/install.yaml"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/aaq-cr.yaml"),
];
/// What is created to ask something, and leases.
const NO_OBJECTS: [&str; 4] = ["leases", "subjectaccessreviews", "selfsubjectaccessreviews", "tokenreviews"];

fn manifests() -> Vec<Value> {
    let read = |path: &str| -> Vec<Value> {
        serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap()
    };
    MANIFESTS.into_iter().flat_map(read).filter(|object| !object.is_null()).collect()
}

/// What the operator wrote since then.
async fn written_since(bed: &Bed, since: Timestamp) -> Vec<String> {
    let mut events = bed.audit_events_with(names::OPERATOR).await.unwrap();
    events.retain(|event| event.is_by(names::OPERATOR) && event.is_write() && !event.is_dry_run());
    events.retain(|event| event.received > since && !NO_OBJECTS.contains(&event.resource.as_str()));
    events.into_iter().map(|event| format!("{} {} {}", event.received, event.verb, event.uri)).collect()
}

/// A webhook of others that asks cainjector for its bundle.
fn annotated() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "of-others", "annotations": { INJECT: "others/serving" } },
        "webhooks": [{
            "name": "others.example.test", "clientConfig": { "url": "https://127.0.0.1:9/" },
            "rules": [{
                "apiGroups": ["none.example.test"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"],
            }],
            "failurePolicy": "Ignore", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        }],
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_applies_again_and_again_opens_no_gate_and_the_operator_rests() {
    let seconds = std::env::var(SECONDS).map_or(60, |text| text.parse().unwrap());
    let all = Duration::from_secs(seconds);
    let settling = SETTLING.min(all / 2);
    let bed = tenant::own().await;
    let running = Running::on(&bed, Setup::default()).await.unwrap();
    let client = bed.admin().unwrap();
    let namespace = bed.namespace("applied", TARGETED).await.unwrap();
    let traffic = Traffic::start(bed.admin_identity(), &namespace.name, LOAD).await;
    let tenant = Tenant::with(&bed, "moves", TARGETED).await;
    let vm = tenant.vm("web").await;
    tenant.full_quota("full", &["requests.memory"]).await;
    tenant.unlimited().await;

    let manifests = manifests();
    let flux = Reapplier::flux(&client, &manifests, EVERY).await.unwrap();
    let argo = Reapplier::argo(&client, &manifests).await.unwrap();
    let aks = Reapplier::aks(&client);
    let cainjector = Reapplier::cainjector(&client, bed.ca_pem());
    bed.apply_objects([annotated()]).await.unwrap();

    let (over, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let passing = async {
        tokio::time::sleep(settling).await;
        let settled = Timestamp::now();
        tokio::time::sleep(all - settling).await;
        over.store(true, Ordering::SeqCst);
        settled
    };
    let (settled, ()) = tokio::join!(passing, migrations(&vm, &count, &over));
    let migrated = count.load(Ordering::SeqCst);
    let written = written_since(&bed, settled).await;
    let outcome = traffic.end().await;
    println!(
        "{seconds} s: {} pods, at most {} at a time, {migrated} migrations; {} objects applied by Flux, {} by \
         Argo CD, {} edited by AKS; {} writes of the operator in the last {:?}",
        outcome.created,
        outcome.most,
        flux.writes(),
        argo.writes(),
        aks.writes(),
        written.len(),
        all - settling,
    );
    assert_eq!(written, Vec::<String>::new(), "the operator rests");
    outcome.assert_right(LOAD);
    assert_eq!([flux.refused(), argo.refused()].concat(), Vec::<String>::new());
    assert!(migrated > 0 && flux.writes() > manifests.len() && argo.writes() >= manifests.len());
    assert_none_rejected(&tenant).await;
    let trail = AuditTrail::of(&tenant).await;
    assert_eq!(trail.attempts().filter(|event| event.is_target() && event.is_gated()).count(), 0, "targets");
    // Both of ours; that of others is edited too.
    assert!(aks.writes() >= 2, "{}", aks.writes());
    assert!(cainjector.writes() >= 1);
    configurations_are_whole(&client).await;
    assert!(running.installation.operator().unwrap().is_running(), "without a restart");
    assert!(running.controller.program.is_running() && running.webhook.program.is_running());
}

/// They have what AKS adds, and cainjector has left them alone.
async fn configurations_are_whole(client: &Client) {
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let whole = || async {
        let mutating = mutating.get(names::MUTATING_CONFIG).await.ok()?;
        let validating = validating.get(names::VALIDATING_CONFIG).await.ok()?;
        for fields in [mutating.managed_fields(), validating.managed_fields()] {
            assert!(fields.iter().all(|field| field.manager.as_deref() != Some(CAINJECTOR)), "{fields:?}");
        }
        let entries = [json!(mutating.webhooks), json!(validating.webhooks)];
        let mut entries = entries.iter().flat_map(|webhooks| webhooks.as_array().into_iter().flatten());
        let has_both = |entry: &Value| {
            let expressions = entry["namespaceSelector"]["matchExpressions"].as_array();
            aks_requirements().iter().all(|each| expressions.is_some_and(|all| all.contains(each)))
        };
        entries.all(has_both).then_some(())
    };
    wait::eventually(SOON, whole, "what AKS adds to be in all webhooks").await.unwrap();
}
