//! An admission step that keeps Sluice from writing the status of quotas is named, and is not asked all the time.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_api::{HeadroomPolicy, HeadroomProbe, HeadroomProbeSpec, names};
use sluice_e2e::audit::{AuditEventExt as _, AuditTrail, until_refused};
use sluice_e2e::tenant::{SOON, Tenant};
use sluice_testbed::wait;

use crate::context::{MEMORY, crowded, rejected, set_limit, shared_metric, until_told};

/// The least time between the first two tries, of the webhook and of the controller. Each further pause is twice as long.
const FIRST_REST: SignedDuration = SignedDuration::from_millis(500);

/// How often the administrator edits the quota.
const EDITS: usize = 5;

/// The time in which API servers have to know of a raise: none is waited for that denies probes.
const SETTLED: SignedDuration = SignedDuration::from_secs(1);

const FORBIDDEN: u64 = 403;
const CONFLICT: u64 = 409;

/// Forbids to write the status of quotas in one namespace to Sluice's accounts.
fn fence(namespace: &str) -> [Value; 2] {
    let writes = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"],
        "resources": ["resourcequotas/status"],
    });
    forbidding(namespace, &writes, "status is immutable")
}

/// Forbids something in one namespace to Sluice's accounts.
fn forbidding(namespace: &str, what: &Value, message: &str) -> [Value; 2] {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": namespace },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [what] },
            "validations": [{
                "expression": "!request.userInfo.username.startsWith('system:serviceaccount:sluice')",
                "message": message, "reason": "Forbidden",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": namespace },
        "spec": {
            "policyName": namespace, "validationActions": ["Deny"],
            "matchResources": { "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } } },
        },
    });
    [policy, binding]
}

/// Policies take a moment to be in force.
async fn until_fenced(tenant: &Tenant<'_>) {
    let user = format!("system:serviceaccount:{}:probe", names::INSTALL_NAMESPACE);
    let probe = tenant.bed.client_as_user(&user, &["system:masters"]).unwrap().client().unwrap();
    let quotas: Api<ResourceQuota> = Api::namespaced(probe, tenant.name());
    let denied = || async {
        let change = Patch::Merge(json!({ "status": { "hard": { MEMORY: "701Mi" } } }));
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        quotas.patch_status("rq", &params, &change).await.err().map(drop)
    };
    wait::eventually(SOON, denied, "the fence to be in force").await.unwrap();
}

/// Tries of one account to write the status, all refused, with longer and longer pauses. A try on a version that is not the
/// newest any more is made again at once.
fn rested(trail: &AuditTrail, account: &str) -> usize {
    let by_account = trail.status_writes().filter(|event| event.is_by(account));
    let (conflicts, tries): (Vec<_>, Vec<_>) = by_account.partition(|event| event.code == CONFLICT);
    // Each takes a write of somebody else: the administrator's edits, and what kube-controller-manager writes after them.
    assert!(conflicts.len() <= 2 * EDITS, "{account} met {} conflicts", conflicts.len());
    assert!(tries.iter().all(|event| event.code == FORBIDDEN));
    for (doublings, two) in (0..).zip(tries.windows(2)) {
        let pause = two[1].received.duration_since(two[0].received);
        assert!(pause >= FIRST_REST * 2_i32.pow(doublings), "{account} tried again after {pause}");
    }
    tries.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_told_on_policy_migration_and_machine_and_backed_off() {
    let (tenant, vm) = crowded("fenced").await;
    tenant.bed.apply_objects(fence(tenant.name())).await.unwrap();
    until_fenced(&tenant).await;
    tenant.unlimited().await;
    let _migration = rejected(&vm).await;
    for kind in ["VirtualMachineInstanceMigration", "VirtualMachineInstance", "ResourceQuota"] {
        let event = until_told(&tenant, kind, "HeadroomForbidden").await;
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        let said = event.message.unwrap();
        assert!(said.contains("status is immutable"), "{kind}: {said}");
    }
    let policies: Api<HeadroomPolicy> = Api::all(tenant.client.clone());
    let said = |policy: Option<&HeadroomPolicy>| {
        let conditions = policy.and_then(|policy| Some(policy.status.as_ref()?.conditions.clone()));
        conditions.into_iter().flatten().any(|condition| {
            (&*condition.type_, &*condition.status, &*condition.reason)
                == ("Ready", "False", "StatusForbidden")
                && condition.message.contains("status is immutable")
        })
    };
    wait::wait_for(&policies, tenant.name(), SOON, "the condition of the policy", said).await.unwrap();
    assert!(shared_metric("sluice_headroom_forbidden_namespaces").await >= 1.0);
    assert!(shared_metric("sluice_headroom_forbidden_total").await >= 1.0);

    // KubeVirt's controller tries again at every change of a quota.
    for attempt in 1..=EDITS {
        set_limit(&tenant, &format!("{}Ki", 700 * 1024 + attempt)).await;
        until_refused(&tenant, 1 + attempt).await;
    }
    let trail = AuditTrail::of(&tenant).await;
    assert!(rested(&trail, names::WEBHOOK) >= 2);
    // Before it tells of a refusal it tries again.
    assert!(rested(&trail, names::CONTROLLER) >= 3);
}

/// Where nothing is forbidden, everything goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_in_one_namespace_does_not_concern_another() {
    let ((fenced, blocked), (free, vm)) = tokio::join!(crowded("shut"), crowded("free"));
    fenced.bed.apply_objects(fence(fenced.name())).await.unwrap();
    until_fenced(&fenced).await;
    fenced.unlimited().await;
    free.unlimited().await;
    let _blocked = rejected(&blocked).await;
    let migration = vm.migrate().await.unwrap();
    migration.until_succeeded().await.unwrap();
    free.until_clear().await;
    assert_eq!(free.rejected_attempts().await, 0);
}

/// A policy of another product that denies everything it does not know denies probes, and will again: there is nothing to
/// wait for.
#[tokio::test(flavor = "multi_thread")]
async fn a_denied_probe_is_told_and_ends_the_raise_at_once() {
    let (tenant, vm) = crowded("unprobed").await;
    let probes = json!({
        "apiGroups": [names::OWN_GROUP], "apiVersions": ["*"], "operations": ["CREATE"],
        "resources": ["headroomprobes"],
    });
    let policy = forbidding(tenant.name(), &probes, "unknown kinds are not welcome");
    tenant.bed.apply_objects(policy).await.unwrap();
    let user = format!("system:serviceaccount:{}:probe", names::INSTALL_NAMESPACE);
    let account = tenant.bed.client_as_user(&user, &["system:masters"]).unwrap().client().unwrap();
    let api: Api<HeadroomProbe> = Api::namespaced(account, tenant.name());
    let denied = || async {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let probe = HeadroomProbe::new("probe", HeadroomProbeSpec { mark: 1 });
        api.create(&dry, &probe).await.err().filter(|error| error.to_string().contains("not welcome"))
    };
    wait::eventually(SOON, denied, "probes to be denied").await.unwrap();

    tenant.unlimited().await;
    let _migration = rejected(&vm).await;
    let told = until_told(&tenant, "VirtualMachineInstanceMigration", "HeadroomNotProven").await;
    let said = told.message.unwrap();
    assert!(said.contains("another admission step denies probes"), "{said}");
    assert!(said.contains("unknown kinds are not welcome"), "{said}");
    tenant.until_clear().await;
    let trail = AuditTrail::of(&tenant).await;
    let mut writes = trail.status_writes().filter(|event| event.is_by(names::WEBHOOK) && event.code == 200);
    let (raised, ended) = (writes.next().unwrap(), writes.next().unwrap());
    let locked = ended.received.duration_since(raised.received);
    assert!(locked < SETTLED, "locked for {locked}");
}
