//! Which targets of migrations need no gate.

use rstest::rstest;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::audit::{AuditEventExt as _, AuditTrail, assert_none_rejected};
use sluice_e2e::call::post;
use sluice_e2e::simulated_webhook::{SimulatedWebhook, Verdict, WebhookOptions, rule};
use sluice_e2e::targets::{beside, expect, is_gated, migrate, receive, try_by_kubevirt, until_gated};
use sluice_testbed::kubevirt::CONTROLLER;
use sluice_testbed::wait;

use crate::context::{Counting, SOON, VMI};

#[rstest]
#[case("DedicatedVirtualResources", false)]
#[case("VirtualResources", false)]
#[case("GuestEffectiveResources", true)]
#[case("VmiPodUsage", true)]
#[case("IgnoreVmiCalculator", true)]
#[tokio::test(flavor = "multi_thread")]
async fn targets_are_gated_where_what_pods_take_is_charged(#[case] calculator: &str, #[case] gated: bool) {
    let counting = Counting::by(calculator).await;
    let team = counting.team("targets").await;
    let vm = team.tenant.vm("vm").await;
    until_gated(&team.tenant, &migrate(&vm).await, gated).await;

    let second = vm.migrate().await.unwrap();
    let made = second.until_target_pod().await.unwrap().metadata.name.unwrap();
    second.until_succeeded().await.unwrap();
    let trail = AuditTrail::of(&team.tenant).await;
    assert_eq!(trail.creation_of(&made).is_gated(), gated);
}

/// The pod that KubeVirt makes, as it is and as others might make it.
#[tokio::test(flavor = "multi_thread")]
async fn a_target_is_let_in_that_kubevirt_keeps_away_from_its_source_and_no_other_pod() {
    let counting = Counting::by("DedicatedVirtualResources").await;
    let team = counting.team("targets").await;
    let vm = team.tenant.vm("vm").await;
    let target = migrate(&vm).await;
    until_gated(&team.tenant, &target, false).await;

    let nodes = |operator: &str| {
        let requirement =
            json!({ "key": names::HOSTNAME_LABEL, "operator": operator, "values": ["elsewhere"] });
        let terms = json!({ "nodeSelectorTerms": [{ "matchExpressions": [requirement] }] });
        json!({ "spec": { "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } } } })
    };
    // A quota with the scope CrossNamespacePodAffinity may be about this target, and not about its source.
    let across = |kind: &str, when: &str, namespaces: &Value| {
        let mut term = json!({ "labelSelector": {}, "topologyKey": names::HOSTNAME_LABEL });
        json_patch::merge(&mut term, namespaces);
        let term = if when == "required" { term } else { json!({ "weight": 1, "podAffinityTerm": term }) };
        let mut pod = target.clone();
        let terms =
            &mut pod["spec"]["affinity"][kind][format!("{when}DuringSchedulingIgnoredDuringExecution")];
        match terms.as_array_mut() {
            Some(terms) => terms.push(term),
            None => *terms = json!([term]),
        }
        json!({ "spec": { "affinity": pod["spec"]["affinity"] } })
    };
    let without = |label: &str| json!({ "metadata": { "labels": { label: null } } });
    for (change, gated) in [
        (json!({}), false),
        (nodes("In"), false),
        (nodes("NotIn"), true),
        (across("podAffinity", "required", &json!({})), false),
        (across("podAntiAffinity", "preferred", &json!({})), false),
        (across("podAffinity", "required", &json!({ "namespaceSelector": {} })), true),
        (across("podAffinity", "preferred", &json!({ "namespaces": ["other"] })), true),
        (across("podAntiAffinity", "required", &json!({ "namespaces": ["other"] })), true),
        (across("podAntiAffinity", "preferred", &json!({ "namespaceSelector": {} })), true),
        (without(names::MIGRATION_JOB_LABEL), true),
        (without(names::CREATED_BY_LABEL), true),
        (json!({ "spec": { "affinity": beside("another") } }), true),
        (json!({ "spec": { "affinity": null } }), true),
    ] {
        let mut pod = target.clone();
        json_patch::merge(&mut pod, &change);
        let answer = try_by_kubevirt(&team.tenant, &pod).await;
        assert!(answer.is_ok(), "{change}: {answer:?}");
        assert_eq!(is_gated(&answer.body), gated, "{change}");
        assert_eq!(answer.body["metadata"]["annotations"][names::CREATED_BY_ANNOTATION], CONTROLLER);
    }
    // Nor do others make one.
    let path = format!("/api/v1/namespaces/{}/pods?dryRun=All", team.tenant.name());
    let answer = post(&team.tenant.client, &path, &target).await.unwrap();
    assert!(is_gated(&answer.body), "{answer:?}");
}

/// Who decides what other admission plugins make of KubeVirt's pods starts no machine above a quota by it.
#[tokio::test(flavor = "multi_thread")]
async fn no_launcher_becomes_a_target_by_another_admission_plugin() {
    let counting = Counting::by("DedicatedVirtualResources").await;
    let team = counting.team("costume").await;
    let [instances, ..] = VMI;
    team.quota("vms", &[(instances, "1")]).await;
    let vm = team.tenant.vm("vm").await;
    let target = migrate(&vm).await;
    until_gated(&team.tenant, &target, false).await;
    let bed = counting.running.bed;
    let kubevirt = bed.client_as_user(CONTROLLER, &["system:masters"]).unwrap().client().unwrap();
    let pods = format!("/api/v1/namespaces/{}/pods", team.tenant.name());
    let mut stranger = target.clone();
    stranger["metadata"]["labels"][names::MIGRATION_JOB_LABEL] =
        json!("0e5b1c52-51b5-4a1c-8a7d-9c1f2ad8a001");
    for (pod, why) in
        [(&target, "the migration is over"), (&stranger, "there is no such migration in the namespace")]
    {
        let answer = post(&kubevirt, &pods, pod).await.unwrap();
        assert_eq!(answer.code, 403, "{answer:?}");
        let said = answer.message();
        assert!(said.contains("target.quota.sluice.dev") && said.contains(why), "{said}");
    }

    let (label, plain) = (names::MIGRATION_JOB_LABEL.replace('/', "~1"), target["spec"]["affinity"].clone());
    let name = |path: &str| format!("/metadata/labels/{path}");
    let mut options =
        WebhookOptions::new("dresses.simulated.test", team.tenant.name(), vec![rule(&["CREATE"], &["pods"])]);
    options.mutates = true;
    let costume = json!([
        { "op": "add", "path": name(&label), "value": stranger["metadata"]["labels"][names::MIGRATION_JOB_LABEL] },
        { "op": "add", "path": name(&names::CREATED_BY_LABEL.replace('/', "~1")),
          "value": target["metadata"]["labels"][names::CREATED_BY_LABEL] },
        { "op": "add", "path": "/spec/affinity", "value": plain },
        { "op": "remove", "path": "/spec/schedulingGates" },
    ]);
    let dressing =
        SimulatedWebhook::start(bed, options, move |_| Verdict::patch(costume.clone())).await.unwrap();
    let other = team.tenant.kubevirt.vm(team.tenant.name(), "other").create().await.unwrap();
    let refused = || async {
        let events = other.events("FailedCreate").await.ok()?;
        events.iter().any(|event| format!("{event:?}").contains("target.quota.sluice.dev")).then_some(())
    };
    wait::eventually(SOON, refused, "the launcher to be refused").await.unwrap();
    assert!(other.pods().await.unwrap().is_empty());
    other.until_event("TargetRefused").await.unwrap();
    dressing.stop().await.unwrap();
    let held = team.until_held("other").await;
    assert!(team.until_told(&held).await.starts_with("exceeded quota: vms"));
}

/// A tenant may have containers injected by an annotation of its machine.
#[tokio::test(flavor = "multi_thread")]
async fn where_pods_count_a_target_waits_for_what_another_webhook_adds() {
    let counting = Counting::by("VmiPodUsage").await;
    let team = counting.team("injected").await;
    let key = "requests.ephemeral-storage";
    let vm = team.tenant.vm("vm").await;
    team.quota("vms", &[(key, "0")]).await;
    // What a launcher takes of it is KubeVirt's matter.
    let used = team.until_any_used("vms", key).await;
    team.set_hard("vms", key, &used).await;
    let injected = json!([{ "op": "add", "path": "/spec/containers/-", "value": {
        "name": "injected", "image": "none", "resources": { "requests": { "ephemeral-storage": "1Gi" } },
    } }]);
    let mut options =
        WebhookOptions::new("injects.simulated.test", team.tenant.name(), vec![rule(&["CREATE"], &["pods"])]);
    options.mutates = true;
    let injector =
        SimulatedWebhook::start(counting.running.bed, options, move |_| Verdict::patch(injected.clone()));
    let injector = injector.await.unwrap();

    let migration = vm.migrate().await.unwrap();
    let held = team.until_held("vm").await;
    let told = team.until_told(&held).await;
    assert!(
        told.starts_with(&format!("exceeded quota: vms, requested: {key}=1073741824, ")),
        "what is injected, and no more ({used} are used): {told}"
    );
    team.set_hard("vms", key, "2Gi").await;
    migration.until_succeeded().await.unwrap();
    injector.stop().await.unwrap();
    assert_none_rejected(&team.tenant).await;
}

/// A tenant may change the affinity of a machine that waits, and knows its uid by then.
#[rstest]
#[case::as_it_is(false)]
#[case::that_pretends_to_be_beside_its_source(true)]
#[tokio::test(flavor = "multi_thread")]
async fn the_target_of_a_machine_from_elsewhere_waits_for_room(#[case] pretends: bool) {
    let counting = Counting::by("DedicatedVirtualResources").await;
    let team = counting.team("elsewhere").await;
    let [instances, ..] = VMI;
    team.quota("vms", &[(instances, "1")]).await;
    let vm = team.tenant.vm("here").await;
    until_gated(&team.tenant, &migrate(&vm).await, false).await;

    let guest = expect(&team.tenant, "guest").await;
    if pretends {
        let uid = guest.object().await.unwrap().metadata.uid.unwrap();
        guest.change(json!({ "affinity": beside(&uid) })).await.unwrap();
    }
    receive(&team.tenant, "guest").await;
    let held = team.until_held("guest").await;
    if pretends {
        let affinity = serde_json::to_value(held.spec.as_ref().unwrap().affinity.as_ref()).unwrap();
        let uid = held.metadata.labels.as_ref().unwrap()[names::CREATED_BY_LABEL].as_str();
        assert!(affinity.to_string().contains(uid), "the test forges nothing: {affinity}");
    }
    assert!(held.metadata.labels.as_ref().unwrap().contains_key(names::MIGRATION_JOB_LABEL));
    let told = team.until_told(&held).await;
    assert_eq!(
        told,
        "exceeded quota: vms, requested: requests.instances/vmi=1, used: requests.instances/vmi=1, \
         limited: requests.instances/vmi=1"
    );
}
