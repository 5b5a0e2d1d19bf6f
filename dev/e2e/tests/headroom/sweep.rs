//! What is left raised or open is put back, whoever left it.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, ResourceQuota};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::{MigrationWindow, VirtualMachineMigrationResourceQuota as Vmmrq, names};
use sluice_e2e::tenant::SOON;
use sluice_e2e::{Installation, Setup};
use sluice_testbed::{Bed, BedOptions, wait};

use crate::context::{is_ours, metric, turn};

async fn bed() -> Bed {
    Bed::start(BedOptions { kwok: false, scheduler: false, ..BedOptions::default() }).await.unwrap()
}

async fn installation(bed: &Bed) -> Installation<'_> {
    Installation::apply(bed, Setup { without_webhook: true, ..Setup::default() }).await.unwrap()
}

fn quotas(client: &Client, namespace: &str) -> Api<ResourceQuota> {
    Api::namespaced(client.clone(), namespace)
}

fn enforced(quota: Option<&ResourceQuota>) -> Option<String> {
    let hard = quota?.status.as_ref()?.hard.as_ref()?;
    Some(hard.get("pods")?.0.clone())
}

async fn until_enforced(client: &Client, namespace: &str, pods: &str) {
    let what = format!("status.hard of pods to be {pods}");
    let is = |quota: Option<&ResourceQuota>| enforced(quota).as_deref() == Some(pods);
    wait::wait_for(&quotas(client, namespace), "rq", SOON, &what, is).await.unwrap();
}

/// A quota of 4 pods that kube-controller-manager has seen.
async fn quota(client: &Client, namespace: &str) {
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "rq" },
        "spec": { "hard": { "pods": "4" } },
    });
    let quota = serde_json::from_value(quota).unwrap();
    quotas(client, namespace).create(&PostParams::default(), &quota).await.unwrap();
    until_enforced(client, namespace, "4").await;
}

/// As a process would leave it that died right after a raise.
async fn raise(client: &Client, namespace: &str) {
    let raised = Patch::Merge(json!({ "status": { "hard": { "pods": "9" } } }));
    quotas(client, namespace).patch_status("rq", &PatchParams::default(), &raised).await.unwrap();
}

fn window(until: Timestamp) -> MigrationWindow {
    let until = Timestamp::from_second(until.as_second()).unwrap();
    serde_json::from_value(json!({
        "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "MigrationWindow",
        "metadata": { "name": names::WINDOW_NAME },
        "spec": {
            "holder": "dead", "nonce": "n-1", "creator": "system:serviceaccount:kubevirt:kubevirt-controller",
            "until": until.to_string(), "migration": { "name": "mig", "uid": "6a1e", "vmi": "web" },
        },
    }))
    .unwrap()
}

#[tokio::test]
async fn a_quota_that_is_raised_without_a_window_is_restored() {
    let _turn = turn().await;
    let bed = bed().await;
    let installation = installation(&bed).await;
    let client = bed.admin().unwrap();
    let (running, before) =
        (bed.namespace("sweep", &[]).await.unwrap(), bed.namespace("sweep", &[]).await.unwrap());
    quota(&client, &before.name).await;
    quota(&client, &running.name).await;
    raise(&client, &before.name).await;
    let controller = installation.controller().await.unwrap();
    until_enforced(&client, &before.name, "4").await;
    raise(&client, &running.name).await;
    until_enforced(&client, &running.name, "4").await;
    let counted =
        || async { (metric(&controller, "sluice_headroom_swept_quotas_total").await >= 2.0).then_some(()) };
    wait::eventually(SOON, counted, "both to be counted").await.unwrap();
    assert!(metric(&controller, "sluice_headroom_sweeps_total").await >= 2.0);
    let quota = quotas(&client, &running.name).get("rq").await.unwrap();
    assert_eq!(quota.spec.unwrap().hard.unwrap()["pods"].0, "4", "the spec was never written");
}

#[tokio::test]
async fn an_expired_window_is_cleared_and_a_live_one_is_left_until_then() {
    let _turn = turn().await;
    let bed = bed().await;
    let installation = installation(&bed).await;
    let client = bed.admin().unwrap();
    let namespace = bed.namespace("sweep", &[]).await.unwrap();
    let windows: Api<MigrationWindow> = Api::namespaced(client.clone(), &namespace.name);
    quota(&client, &namespace.name).await;
    let until = Timestamp::now().checked_add(SignedDuration::from_secs(5)).unwrap();
    windows.create(&PostParams::default(), &window(until)).await.unwrap();
    raise(&client, &namespace.name).await;
    let _controller = installation.controller().await.unwrap();
    let gone = |window: Option<&MigrationWindow>| window.is_none();
    wait::wait_for(&windows, names::WINDOW_NAME, SOON, "the window to go", gone).await.unwrap();
    // The same machine's clock: the API server's is this one.
    assert!(Timestamp::now() >= Timestamp::from_second(until.as_second()).unwrap(), "not before its time");
    let quota = quotas(&client, &namespace.name).get("rq").await.unwrap();
    assert_eq!(enforced(Some(&quota)).as_deref(), Some("4"), "restored before the window went");
}

/// Leaves a namespace as a holder does that is killed after a raise: its lock holds for some seconds more.
async fn leave_locked(client: &Client, namespace: &str) -> Timestamp {
    let windows: Api<MigrationWindow> = Api::namespaced(client.clone(), namespace);
    let until = Timestamp::from_second(Timestamp::now().as_second() + 5).unwrap();
    windows.create(&PostParams::default(), &window(until)).await.unwrap();
    raise(client, namespace).await;
    until
}

/// Waits until this millisecond of a second, whichever.
async fn until_millisecond(wanted: i64) {
    let is_now = || async {
        let now = Timestamp::now().as_millisecond().rem_euclid(1_000);
        (wanted..wanted + 50).contains(&now).then_some(())
    };
    wait::eventually(SOON, is_now, "that part of a second").await.unwrap();
}

/// When our controller asked for something in a namespace: the first such request that was done.
fn first_done(events: &[Value], namespace: &str, (verb, resource): (&str, &str)) -> Timestamp {
    let is_it = |event: &&Value| {
        is_ours(event)
            && event["objectRef"]["namespace"] == json!(namespace)
            && event["objectRef"]["resource"] == json!(resource)
            && event["verb"] == json!(verb)
            && event["responseStatus"]["code"] == json!(200)
    };
    let done = events.iter().find(is_it).unwrap_or_else(|| panic!("{verb} {resource} in {namespace}"));
    done["requestReceivedTimestamp"].as_str().unwrap().parse().unwrap()
}

/// In the last second of a window its holder has stopped: what is raised then was left by a dead one. Windows end at whole
/// seconds, so some are left at each part of one.
#[tokio::test]
async fn what_a_dead_holder_left_raised_is_restored_while_its_lock_still_holds() {
    let _turn = turn().await;
    let bed = bed().await;
    let installation = installation(&bed).await;
    installation.until_locking().await.unwrap();
    let _controller = installation.controller().await.unwrap();
    let client = bed.admin().unwrap();
    let mut left = Vec::new();
    for part in [0, 200, 400, 600, 800] {
        let namespace = bed.namespace("left", &[]).await.unwrap();
        quota(&client, &namespace.name).await;
        until_millisecond(part).await;
        let until = leave_locked(&client, &namespace.name).await;
        left.push((namespace, until));
    }
    for (namespace, _) in &left {
        let windows: Api<MigrationWindow> = Api::namespaced(client.clone(), &namespace.name);
        let gone = |window: Option<&MigrationWindow>| window.is_none();
        wait::wait_for(&windows, names::WINDOW_NAME, SOON, "the window to go", gone).await.unwrap();
    }
    let events = bed.audit_events().await.unwrap();
    for (namespace, until) in &left {
        let name = &namespace.name;
        let restored = first_done(&events, name, ("patch", "resourcequotas"));
        let closed = first_done(&events, name, ("delete", names::MIGRATION_WINDOWS));
        assert!(restored < *until, "{name}: restored at {restored}, locked until {until}");
        assert!(until.duration_since(restored) <= SignedDuration::from_secs(1), "its holder may still write");
        assert!(closed >= *until, "{name}: closed at {closed}, locked until {until}");
        let quota = quotas(&client, name).get("rq").await.unwrap();
        assert_eq!(enforced(Some(&quota)).as_deref(), Some("4"));
    }
}

/// Forbids to write the status of quotas in one namespace to everybody but Kubernetes' own controllers.
fn fence(namespace: &str) -> [Value; 2] {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": "fence" },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"],
                "resources": ["resourcequotas/status"],
            }] },
            "validations": [{
                "expression": "!request.userInfo.username.startsWith('system:serviceaccount:sluice')",
                "message": "status is immutable", "reason": "Forbidden",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": "fence" },
        "spec": {
            "policyName": "fence", "validationActions": ["Deny"],
            "matchResources": { "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } } },
        },
    });
    [policy, binding]
}

#[tokio::test]
async fn who_forbids_to_write_a_status_is_named_and_nobody_else_suffers() {
    let _turn = turn().await;
    let bed = bed().await;
    let installation = installation(&bed).await;
    let client = bed.admin().unwrap();
    let (fenced, free) =
        (bed.namespace("fenced", &[]).await.unwrap(), bed.namespace("free", &[]).await.unwrap());
    for namespace in [&fenced, &free] {
        quota(&client, &namespace.name).await;
    }
    bed.apply_objects(fence(&fenced.name)).await.unwrap();
    until_fenced(&bed, &fenced.name).await;
    raise(&client, &fenced.name).await;
    let grants: Api<Vmmrq> = Api::namespaced(client.clone(), &fenced.name);
    grants.create(&PostParams::default(), &grant()).await.unwrap();
    let controller = installation.controller().await.unwrap();
    let events: Api<Event> = Api::namespaced(client.clone(), &fenced.name);
    let told = |events: &[Event]| {
        events.iter().any(|event| {
            event.reason.as_deref() == Some("HeadroomForbidden")
                && event.involved_object.name.as_deref() == Some("rq")
                && event.message.as_deref().is_some_and(|text| text.contains("status is immutable"))
        })
    };
    wait::wait_for_all(&events, watcher::Config::default(), SOON, "the event on the quota", told)
        .await
        .unwrap();
    let said = |grant: Option<&Vmmrq>| {
        let conditions = grant.and_then(|grant| Some(grant.status.as_ref()?.conditions.clone()));
        conditions.into_iter().flatten().any(|condition| {
            (&*condition.type_, &*condition.status, &*condition.reason)
                == ("Ready", "False", "StatusForbidden")
                && condition.message.contains("status is immutable")
        })
    };
    wait::wait_for(&grants, "grant", SOON, "the condition of the grant", said).await.unwrap();
    for _ in 0..3 {
        raise(&client, &free.name).await;
        until_enforced(&client, &free.name, "4").await;
    }
    let quota = quotas(&client, &fenced.name).get("rq").await.unwrap();
    assert_eq!(enforced(Some(&quota)).as_deref(), Some("9"));
    assert!((metric(&controller, "sluice_headroom_forbidden_namespaces").await - 1.0).abs() < 0.1);
    let tried = bed.audit_events().await.unwrap().into_iter().filter(|event| {
        is_ours(event)
            && event["objectRef"]["namespace"] == json!(fenced.name)
            && event["objectRef"]["resource"] == "resourcequotas"
            && event["verb"] == "patch"
    });
    let (tried, counted) = (tried.count(), metric(&controller, "sluice_headroom_forbidden_total").await);
    assert!((1..=2).contains(&tried), "not before half a minute is over: {tried}");
    assert!(counted >= 1.0, "{counted}");
}

fn grant() -> Vmmrq {
    serde_json::from_value(json!({
        "apiVersion": "mtq.kubevirt.io/v1alpha1", "kind": "VirtualMachineMigrationResourceQuota",
        "metadata": { "name": "grant" }, "spec": { "additionalMigrationResources": { "pods": "1" } },
    }))
    .unwrap()
}

/// Policies take a moment to be in force.
async fn until_fenced(bed: &Bed, namespace: &str) {
    let user = format!("system:serviceaccount:{}:probe", names::INSTALL_NAMESPACE);
    let probe = bed.client_as_user(&user, &["system:masters"]).unwrap().client().unwrap();
    let denied = || async {
        let nothing = Patch::Merge(json!({ "status": { "hard": { "pods": "4" } } }));
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        quotas(&probe, namespace).patch_status("rq", &params, &nothing).await.err().map(drop)
    };
    wait::eventually(SOON, denied, "the fence to be in force").await.unwrap();
}
