//! What is made, and what is put back.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_api::names;
use sluice_manifests::{InstallOptions, Naming};
use tokio::time::Instant;

use super::super::apply::{Target, Write};
use super::super::kind::{Kind, Operand};
use super::super::left_out::LeftOut;
use super::super::live::Live;
use super::super::observe::World;
use super::super::operands::{self, Plan};
use super::super::unseen_until;
use super::server::{Server, options};
use super::{VERSION, aaq, ask, asking, mtq, world};
use crate::owner::Owner;
use crate::version::Version;

fn plan(world: &World, options: &InstallOptions, version: Version<'_>) -> Plan {
    operands::plan(world, options, version, &LeftOut::default())
}

fn targets(writes: &[Write]) -> Vec<String> {
    let contested =
        |write: &Write| write.contested.as_ref().map(|what| format!(": {what}")).unwrap_or_default();
    writes.iter().map(|write| format!("{}{}", write.target, contested(write))).collect()
}

/// With everything made.
fn installed(mut world: World) -> (Server, World) {
    let mut server = Server::default();
    assert_eq!(server.round(&mut world, &options()).len(), 11);
    (server, world)
}

#[test]
fn everything_is_made_pods_last_and_then_nothing_is_written() {
    let (mut server, mut world) = (Server::default(), world());
    let made = server.round(&mut world, &options());
    assert_eq!(
        targets(&made),
        [
            "NetworkPolicy sluice-controller",
            "NetworkPolicy sluice-webhook",
            "PriorityLevelConfiguration sluice",
            "FlowSchema sluice",
            "ResourceQuota sluice-headroom-proof",
            "Service sluice-metrics",
            "Service sluice-webhook",
            "PodDisruptionBudget sluice-controller",
            "PodDisruptionBudget sluice-webhook",
            "Deployment sluice-controller",
            "Deployment sluice-webhook",
        ]
    );
    for write in &made {
        let metadata = &write.body["metadata"];
        assert_eq!(metadata["annotations"], json!({ "quota.sluice.dev/writer-version": "1.2.3" }));
        assert_eq!(metadata["ownerReferences"][0]["uid"], "role");
    }
    assert_eq!(server.planned(&mut world, &options()), []);
}

#[test]
fn what_is_edited_or_deleted_is_put_back_and_what_others_add_stays() {
    let (mut server, mut world) = installed(world());
    let other = ["metadata", "labels", "team"];
    for (kind, name) in [(Kind::Deployment, names::WEBHOOK), (Kind::Service, names::WEBHOOK)] {
        server.get(kind, name).edit("keeps", &other, json!("theirs"));
    }
    assert_eq!(server.planned(&mut world, &options()), []);
    let edits: [(Kind, &str, &[&str], Value); 8] = [
        (Kind::Deployment, names::WEBHOOK, &["spec", "replicas"], json!(0)),
        (
            Kind::Deployment,
            names::CONTROLLER,
            &["spec", "template", "spec", "priorityClassName"],
            json!("mine"),
        ),
        (Kind::Service, names::WEBHOOK, &["spec", "selector"], json!({ "a": "b" })),
        (Kind::NetworkPolicy, names::CONTROLLER, &["spec", "ingress"], json!([{}])),
        (Kind::DisruptionBudget, names::WEBHOOK, &["spec", "minAvailable"], json!(0)),
        (Kind::FlowSchema, names::FLOW, &["spec", "priorityLevelConfiguration", "name"], json!("exempt")),
        (Kind::ResourceQuota, names::PROOF_QUOTA, &["spec", "hard"], json!({})),
        (
            Kind::Service,
            names::METRICS_SERVICE,
            &["metadata", "labels", "app.kubernetes.io/name"],
            json!("mine"),
        ),
    ];
    for (kind, name, path, edited) in edits {
        server.get(kind, name).edit("kubectl-edit", path, edited);
        let put_back = server.round(&mut world, &options());
        let expected = format!("{}: kubectl-edit changes it", Target::Operand(Operand::new(kind, name)));
        assert_eq!(targets(&put_back), [expected]);
        assert_eq!(server.planned(&mut world, &options()), [], "{path:?}");
    }
    let label = &server.get(Kind::Service, names::WEBHOOK).object["metadata"]["labels"]["team"];
    assert_eq!(label, "theirs");
    for (kind, name) in [(Kind::DisruptionBudget, names::CONTROLLER), (Kind::Deployment, names::CONTROLLER)] {
        let mut rested_on = Vec::new();
        for _ in 0..2 {
            server.delete(&mut world, kind, name);
            let put_back = server.round(&mut world, &options());
            assert_eq!(put_back.len(), 1, "{name}");
            assert_eq!(put_back[0].contested.as_deref(), Some("another client deletes it"));
            rested_on.push(put_back[0].rests_on.clone());
        }
        rested_on.dedup();
        assert_eq!(rested_on.len(), 2, "each time is a new case");
    }
}

/// The operator takes over once what another client applied, such as a manifest of an older version.
#[test]
fn what_somebody_else_has_made_is_taken_over() {
    let (mut server, mut world) = installed(world());
    server.planned(&mut world, &options());
    let services = world.operands.get_mut(&Kind::Service).unwrap();
    services.live.get_mut(names::WEBHOOK).unwrap().owned = Value::Null;
    assert_eq!(targets(&plan(&world, &options(), VERSION).writes), ["Service sluice-webhook"]);
}

#[test]
fn nothing_is_written_before_everything_was_looked_for() {
    assert_eq!(plan(&world(), &options(), VERSION).writes.len(), 11);
    for forget in [
        |world: &mut World| world.aaqs = None,
        |world: &mut World| world.mtqs = None,
        |world: &mut World| world.priority_classes = None,
        |world: &mut World| drop(world.operands.remove(&Kind::Service)),
        |world: &mut World| world.owner = Owner::Unknown,
    ] {
        let mut world = world();
        forget(&mut world);
        assert_eq!(plan(&world, &options(), VERSION), Default::default());
    }
}

#[test]
fn without_the_role_that_they_go_with_nothing_is_made_and_that_is_said() {
    let mut world = world();
    world.owner = Owner::Absent;
    let plan = plan(&world, &options(), VERSION);
    assert_eq!(plan.writes, []);
    insta::assert_snapshot!(plan.withheld.unwrap(), @"controller and webhook are not kept: the ClusterRole sluice-operator does not exist, with which they have to go: apply the manifest or the chart again");
}

fn pod(body: &Value) -> Value {
    let pod = &body["spec"]["template"]["spec"];
    let shown = ["nodeSelector", "tolerations", "affinity", "priorityClassName"];
    let mut shown: serde_json::Map<_, _> =
        shown.into_iter().filter_map(|name| Some((name.to_owned(), pod.get(name)?.clone()))).collect();
    shown.insert("pull".to_owned(), pod["containers"][0]["imagePullPolicy"].clone());
    Value::Object(shown)
}

#[test]
fn what_is_asked_holds_and_what_is_asked_no_more_is_that_of_the_options() {
    let (mut server, mut world) = installed(world());
    let options = options();
    // A user has set a toleration by hand.
    let tolerations = ["spec", "template", "spec", "tolerations"];
    server.get(Kind::Deployment, names::CONTROLLER).edit("keeps", &tolerations, json!([{ "key": "mine" }]));
    assert_eq!(server.planned(&mut world, &options), []);
    ask(
        &mut world,
        &json!({
            "infra": { "nodeSelector": { "disk": "" }, "affinity": { "podAntiAffinity": {} } },
            "imagePullPolicy": "Always", "priorityClass": "high",
        }),
    );
    let writes = server.round(&mut world, &options);
    let taken_back = "Deployment sluice-controller: keeps changes it";
    assert_eq!(targets(&writes), [taken_back, "Deployment sluice-webhook"]);
    let asked = json!({ "nodeSelector": { "disk": "" }, "priorityClassName": "high", "pull": "Always" });
    let mut with_null = asked.clone();
    with_null["tolerations"] = Value::Null;
    assert_eq!(pod(&writes[0].body), with_null, "null takes away what others have set");
    assert_eq!(pod(&writes[1].body), asked, "and is not sent where there is nothing");
    ask(&mut world, &json!({ "infra": { "nodeSelector": {}, "affinity": null }, "imagePullPolicy": "" }));
    let writes = server.round(&mut world, &options);
    let by_options = json!({ "priorityClassName": "system-cluster-critical", "pull": "IfNotPresent" });
    assert_eq!(
        writes.iter().map(|write| pod(&write.body)).collect::<Vec<_>>(),
        [by_options.clone(), by_options]
    );
    assert!(writes.iter().all(|write| write.contested.is_none()));
}

/// Without a right of a newer manifest, for example.
#[test]
fn a_kind_that_cannot_be_listed_is_named() {
    let mut world = world();
    world.operands.remove(&Kind::DisruptionBudget);
    assert_eq!(plan(&world, &options(), VERSION), Plan::default(), "a list may take a moment");
    world.unlisted.insert(Kind::DisruptionBudget, "403".to_owned());
    let plan = plan(&world, &options(), VERSION);
    assert_eq!(plan.writes, []);
    insta::assert_snapshot!(plan.withheld.unwrap(), @"controller and webhook are not kept: poddisruptionbudgets cannot be listed (403): apply the manifest or the chart again, with its rights");
}

#[test]
fn what_was_written_and_is_never_seen_is_written_again() {
    let now = Instant::now();
    let write = plan(&world(), &options(), VERSION).writes.remove(0);
    let last = (write.rests_on.clone(), now);
    let due = unseen_until(Some(&last), &write, now).unwrap();
    assert_eq!(due - now, Duration::from_secs(30));
    assert_eq!(unseen_until(Some(&last), &write, due), None);
    let other = ("another version".to_owned(), now);
    assert_eq!(unseen_until(Some(&other), &write, now), None);
    assert_eq!(unseen_until(None, &write, now), None);
}

/// Roles of nodes are labels without a value.
#[test]
fn labels_without_a_value_are_told_from_none_and_from_each_other() {
    let (mut server, mut world) = installed(world());
    for labels in [json!({ "infra": "" }), json!({ "storage": "" }), json!({}), json!({ "infra": "" })] {
        ask(&mut world, &json!({ "infra": { "nodeSelector": labels } }));
        let writes = server.round(&mut world, &options());
        let expected = if labels == json!({}) { Value::Null } else { labels };
        assert_eq!(
            writes.iter().map(|write| pod(&write.body)["nodeSelector"].clone()).collect::<Vec<_>>(),
            [expected.clone(), expected]
        );
        assert_eq!(server.planned(&mut world, &options()), []);
    }
    let selector = ["spec", "template", "spec", "nodeSelector"];
    server.get(Kind::Deployment, names::WEBHOOK).edit("kubectl-edit", &selector, json!({}));
    assert_eq!(
        targets(&server.round(&mut world, &options())),
        ["Deployment sluice-webhook: kubectl-edit changes it"]
    );
}

#[test]
fn the_priority_class_is_one_that_exists() {
    let chosen = |naming: Naming, spec: &Value, exists: &[&str]| {
        let mut world = asking(spec);
        world.naming = naming;
        world.priority_classes = Some(exists.iter().map(|class| (*class).to_owned()).collect());
        let writes = plan(&world, &InstallOptions { naming, ..options() }, VERSION).writes;
        writes.last().unwrap().body["spec"]["template"]["spec"]["priorityClassName"].clone()
    };
    let (named, of_kubevirt) = (json!({ "priorityClass": "high" }), "kubevirt-cluster-critical");
    for naming in [Naming::Sluice, Naming::Aaq] {
        assert_eq!(chosen(naming, &named, &["high", of_kubevirt]), "high");
        assert_eq!(chosen(naming, &named, &["other"]), "system-cluster-critical");
    }
    // `pkg/aaq-operator/cr-manager.go` of application-aware-quota, commit `c7d385c6`.
    assert_eq!(chosen(Naming::Aaq, &json!({}), &[of_kubevirt]), of_kubevirt);
    assert_eq!(chosen(Naming::Aaq, &json!({}), &["other"]), "system-cluster-critical");
    assert_eq!(chosen(Naming::Sluice, &json!({}), &[of_kubevirt]), "system-cluster-critical");
}

#[test]
fn an_older_operator_leaves_what_a_newer_one_wrote_unless_it_may_go_back() {
    let writes = |writer: &str, may_downgrade: bool| {
        let mut world = world();
        let live = Live { writer: Some(writer.to_owned()), ..super::deployment(2) };
        world.operands.entry(Kind::Deployment).or_default().live.insert(names::WEBHOOK.to_owned(), live);
        let plan = plan(&world, &options(), Version { may_downgrade, ..VERSION });
        let is_named = |left: &String| left.contains(&format!("Deployment sluice-webhook of {writer}"));
        let is_written = targets(&plan.writes).contains(&"Deployment sluice-webhook".to_owned());
        assert_eq!(plan.left.is_some_and(|left| is_named(&left)), !is_written, "{writer}");
        targets(&plan.writes).contains(&"Deployment sluice-webhook".to_owned())
    };
    assert!(!writes("1.2.4", false));
    assert!(writes("1.2.4", true));
    assert!(writes("1.2.3", false));
}

#[test]
fn what_is_wanted_no_more_is_deleted_and_nothing_of_others() {
    let (mut server, mut world) = installed(world());
    let alone = InstallOptions { replicas: 1, ..options() };
    server.planned(&mut world, &alone);
    // That of the operator has our labels, and comes from the manifest.
    let budgets = world.operands.get_mut(&Kind::DisruptionBudget).unwrap();
    budgets.live.insert(names::OPERATOR.to_owned(), Live::default());
    let deleted: Vec<_> = plan(&world, &alone, VERSION)
        .writes
        .into_iter()
        .filter_map(|write| match write.target {
            Target::Needless { operand, uid } => Some((operand.name, uid)),
            _ => None,
        })
        .collect();
    assert_eq!(deleted, [names::CONTROLLER, names::WEBHOOK].map(|name| (name.to_owned(), "uid".to_owned())));
}

#[test]
fn the_oldest_aaq_holds_and_an_mtq_only_without_one() {
    let policy =
        |world: &World| pod(&plan(world, &options(), VERSION).writes.last().unwrap().body)["pull"].clone();
    let pulls = |policy: &str| json!({ "imagePullPolicy": policy });
    let mut world = world();
    world.mtqs = Some([("mtq".to_owned(), mtq("mtq", &pulls("Never")))].into());
    assert_eq!(policy(&world), "Never");
    let (a, b) = (aaq("a", 2, &pulls("Never"), &Value::Null), aaq("b", 1, &pulls("Always"), &Value::Null));
    world.aaqs = Some([("a".to_owned(), a), ("b".to_owned(), b)].into());
    assert_eq!(policy(&world), "Always");
}
