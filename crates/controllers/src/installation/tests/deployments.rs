//! What is applied to the Deployments.

use serde_json::{Value, json};
use sluice_api::names;

use super::super::apply::Target;
use super::super::observe::World;
use super::super::operands::plan;
use super::{VERSION, aaq, asking, mtq, read, world};

const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// What is applied to the controller.
fn applied(world: &World) -> Option<Value> {
    let writes = plan(world, VERSION);
    writes
        .into_iter()
        .find(|write| write.target == Target::Deployment(names::CONTROLLER))
        .map(|write| write.body)
}

/// With the controller like this.
fn with(mut world: World, writer: &str, owned: &Value, pod: &Value) -> World {
    let annotations = json!({ (names::WRITER_VERSION_ANNOTATION): writer });
    let is = read(names::CONTROLLER, &annotations, owned, pod, 2);
    world.deployments.insert(names::CONTROLLER, Some(is));
    world
}

#[test]
fn what_nobody_asks_for_is_left_alone() {
    let pod = json!({ "nodeSelector": { "a": "b" }, "pull": "Always", "priorityClassName": "mine" });
    let unset = json!({ "infra": { "nodeSelector": {}, "affinity": null }, "imagePullPolicy": "" });
    for world in [world(), asking(&json!({})), asking(&unset)] {
        assert_eq!(plan(&with(world, VERSION, &json!({}), &pod), VERSION), []);
    }
}

#[test]
fn nothing_is_written_before_everything_was_looked_for() {
    let asked = asking(&json!({ "imagePullPolicy": "Always" }));
    assert_eq!(plan(&asked, VERSION).len(), 2);
    for forget in [
        |world: &mut World| world.aaqs = None,
        |world: &mut World| world.mtqs = None,
        |world: &mut World| world.priority_classes = None,
        |world: &mut World| drop(world.deployments.remove(names::OPERATOR)),
        |world: &mut World| drop(world.deployments.insert(names::OPERATOR, None)),
    ] {
        let mut world = asked.clone();
        forget(&mut world);
        assert_eq!(plan(&world, VERSION), []);
    }
}

#[test]
fn placement_is_replaced_as_a_whole() {
    let world = asking(&json!({ "infra": {
        "nodeSelector": { "disk": "" },
        "affinity": { "podAffinity": { PREFERRED: [{ "weight": 1 }] }, "podAntiAffinity": {} },
    }}));
    let pod = json!({
        "nodeSelector": { "a": "b" },
        "tolerations": [{ "operator": "Exists" }],
        "affinity": { "podAntiAffinity": { PREFERRED: [{ "weight": 100 }] } },
        "priorityClassName": "system-cluster-critical",
    });
    let world = with(world, "1.0.0", &json!({}), &pod);
    assert_eq!(
        applied(&world),
        Some(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "sluice-controller", "annotations": { "quota.sluice.dev/writer-version": "1.2.3" } },
            "spec": { "template": { "spec": {
                "nodeSelector": { "disk": "" },
                "tolerations": null,
                "affinity": {
                    "podAffinity": { PREFERRED: [{ "weight": 1 }] },
                    "podAntiAffinity": { PREFERRED: null },
                },
            }}},
        }))
    );
}

#[test]
fn what_is_so_is_not_written_and_an_edit_is_put_back() {
    let spec = json!({
        "infra": { "nodeSelector": { "disk": "" }, "tolerations": [{ "key": "k", "effect": "", "operator": "Exists" }] },
        "imagePullPolicy": "Always", "priorityClass": "high",
    });
    let owned = json!({
        "f:nodeSelector": {}, "f:tolerations": {}, "f:priorityClassName": {},
        "f:affinity": { "f:podAntiAffinity": { (format!("f:{PREFERRED}")): {} } },
        "f:containers": { "k:{\"name\":\"sluice-controller\"}": { ".": {}, "f:name": {}, "f:imagePullPolicy": {} } },
    });
    let pod = json!({
        "nodeSelector": { "disk": "" }, "tolerations": [{ "key": "k", "operator": "Exists" }],
        "priorityClassName": "high", "pull": "Always",
        "affinity": { "podAntiAffinity": {} },
    });
    assert_eq!(applied(&with(asking(&spec), VERSION, &owned, &pod)), None);
    for (field, edited) in [
        ("nodeSelector", json!({})),
        ("nodeSelector", json!({ "disk": "", "b": "c" })),
        ("tolerations", json!([])),
        ("priorityClassName", json!("system-cluster-critical")),
        ("pull", json!("Never")),
    ] {
        let mut pod = pod.clone();
        pod[field] = edited;
        let body = applied(&with(asking(&spec), VERSION, &owned, &pod)).unwrap();
        let pod = &body["spec"]["template"]["spec"];
        assert_eq!(pod["nodeSelector"], json!({ "disk": "" }), "{field}: all that is owned is stated again");
        assert_eq!(pod["containers"], json!([{ "name": "sluice-controller", "imagePullPolicy": "Always" }]));
    }
}

#[test]
fn what_is_asked_for_no_more_gets_the_shipped_value() {
    let owned = json!({
        "f:nodeSelector": {}, "f:priorityClassName": {},
        "f:affinity": { "f:podAffinity": { (format!("f:{PREFERRED}")): {} } },
    });
    let pod = json!({ "nodeSelector": { "disk": "ssd" }, "priorityClassName": "high" });
    let world = with(asking(&json!({})), VERSION, &owned, &pod);
    let body = applied(&world).unwrap();
    assert_eq!(
        body["spec"]["template"]["spec"],
        json!({ "priorityClassName": "system-cluster-critical" }),
        "what is not shipped is given up"
    );
    // Where the manifest places all Deployments.
    let mut world = world;
    let shipped = json!({ "nodeSelector": { "pool": "infra" } });
    world
        .deployments
        .insert(names::OPERATOR, Some(read(names::OPERATOR, &json!({}), &json!({}), &shipped, 1)));
    let body = applied(&world).unwrap();
    assert_eq!(body["spec"]["template"]["spec"], json!({ "nodeSelector": { "pool": "infra" } }));
    // The last field that was owned.
    let world = with(asking(&json!({})), VERSION, &json!({ "f:tolerations": {} }), &pod);
    let body = applied(&world).unwrap();
    assert_eq!(
        body,
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "sluice-controller" } })
    );
}

#[test]
fn the_priority_class_is_one_that_exists() {
    let chosen = |spec: Value, exists: &[&str]| {
        let mut world = asking(&spec);
        world.priority_classes = Some(exists.iter().map(|class| (*class).to_owned()).collect());
        applied(&world).map(|body| body["spec"]["template"]["spec"]["priorityClassName"].clone())
    };
    let named = json!({ "priorityClass": "high" });
    assert_eq!(chosen(named.clone(), &["high", "other"]), Some(json!("high")));
    assert_eq!(chosen(named, &["other"]), None);
    assert_eq!(chosen(json!({}), &["kubevirt-cluster-critical"]), None, "what was installed stays");
}

#[test]
fn an_older_operator_leaves_what_a_newer_one_wrote() {
    for (writer, is_written) in [
        ("1.2.4", false),
        ("v1.10.0-rc.1", false),
        ("2.0.0", false),
        ("1.2.3", true),
        ("1.1.9", true),
        ("nonsense", true),
    ] {
        let world = with(asking(&json!({ "imagePullPolicy": "Always" })), writer, &json!({}), &json!({}));
        assert_eq!(applied(&world).is_some(), is_written, "{writer}");
    }
}

#[test]
fn the_oldest_aaq_holds_and_an_mtq_only_without_one() {
    let policy = |world: &World| {
        let body = applied(world)?;
        let policy = body["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"].clone();
        Some(policy.as_str()?.to_owned())
    };
    let pulls = |policy: &str| json!({ "imagePullPolicy": policy });
    let mut world = world();
    world.mtqs = Some([("mtq".to_owned(), mtq("mtq", &pulls("Never")))].into());
    assert_eq!(policy(&world).as_deref(), Some("Never"));
    let (a, b) = (aaq("a", 2, &pulls("Never"), &Value::Null), aaq("b", 1, &pulls("Always"), &Value::Null));
    world.aaqs = Some([("a".to_owned(), a), ("b".to_owned(), b)].into());
    assert_eq!(policy(&world).as_deref(), Some("Always"));
}
