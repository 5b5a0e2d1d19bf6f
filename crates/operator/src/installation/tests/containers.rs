//! Containers that `Evaluator`s name.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_api::{MOST_SIDECARS, names};
use tokio::time::Instant;

use super::super::kind::Kind;
use super::super::left_out::LeftOut;
use super::super::named::NamedSidecar;
use super::super::observe::World;
use super::super::operands::{Plan, asked, plan};
use super::server::{Server, options};
use super::{VERSION, ask, world};

fn container(name: &str) -> Value {
    json!({ "name": name, "image": "i" })
}

fn name_them<'n>(world: &mut World, names: impl IntoIterator<Item = (&'n str, i64)>) {
    let named = |(name, created): (&str, i64)| {
        let container = (!name.starts_with("rule")).then(|| container(name));
        let is_refused = name.starts_with("wrong");
        (name.to_owned(), NamedSidecar { created, container, is_refused })
    };
    world.evaluators.named = Some(names.into_iter().map(named).collect());
}

/// Names of the containers beside the controller, and the flags by which they are asked.
fn shown(server: &mut Server) -> (Vec<String>, Vec<String>) {
    let pod = &server.get(Kind::Deployment, names::CONTROLLER).object["spec"]["template"]["spec"];
    let texts = |list: &Value, key: Option<&str>| -> Vec<String> {
        let text = |it: &Value| key.map_or(it, |key| &it[key]).as_str().unwrap().to_owned();
        list.as_array().unwrap().iter().map(text).collect()
    };
    let mut flags = texts(&pod["containers"][0]["args"], None);
    flags.retain(|flag| flag.starts_with("--evaluator"));
    (texts(&pod["containers"], Some("name")).split_off(1), flags)
}

fn told_of(world: &World, left_out: &LeftOut) -> String {
    asked(world, left_out).unwrap().1.join("; ")
}

fn told(world: &World) -> String {
    told_of(world, &LeftOut::default())
}

fn flag(name: &str) -> String {
    format!("--evaluator-of-object={name}=/var/run/aaq-sockets/evaluator-{name}")
}

/// Beside those of the `AAQ`. Each has a directory by its name: the end of another changes nothing of it.
#[test]
fn containers_that_evaluators_name_run_beside_the_controller() {
    let (mut server, mut world) = (Server::default(), world());
    let refused =
        json!({ "name": "b", "image": "i", "volumeMounts": [{ "name": "token", "mountPath": "/t" }] });
    ask(&mut world, &json!({ "configuration": { "sidecarEvaluators": [container("label"), refused] } }));
    name_them(&mut world, [("a", 2), ("b", 1), ("label", 1), ("rule", 0), ("wrong", 3)]);
    server.round(&mut world, &options());
    let (containers, flags) = shown(&mut server);
    assert_eq!(containers, ["label", "a", "b"], "that of the AAQ runs of two with one name, if it may");
    let of_aaq = ["label=/var/run/aaq-sockets/0", "refused-1=/var/run/aaq-sockets/1"];
    let of_aaq = of_aaq.map(|it| format!("--evaluator={it}"));
    // What may not run is asked all the same: its pods wait.
    assert_eq!(flags, [&of_aaq[..], &["a", "b", "wrong"].map(flag)].concat());
    assert_eq!(server.planned(&mut world, &options()), []);
    name_them(&mut world, [("a", 2), ("rule", 0)]);
    server.round(&mut world, &options());
    assert_eq!(shown(&mut server).1, [&of_aaq[..], &[flag("a")]].concat());
    let deployment = |server: &mut Server, field: &str| {
        server.get(Kind::Deployment, names::CONTROLLER).object["spec"][field].clone()
    };
    assert_eq!(deployment(&mut server, "minReadySeconds"), json!(10));
    ask(&mut world, &json!({}));
    name_them(&mut world, []);
    server.round(&mut world, &options());
    assert_eq!(shown(&mut server), (vec![], vec![]));
    assert_eq!(deployment(&mut server, "minReadySeconds"), Value::Null);
}

#[test]
fn what_has_no_place_is_told_and_the_eldest_have_one() {
    let (mut server, mut world) = (Server::default(), world());
    let names: Vec<_> = (0..=MOST_SIDECARS).map(|n| format!("e{n:02}")).collect();
    let by_age = (0..).map(|age| 100 - age);
    name_them(&mut world, names.iter().map(String::as_str).zip(by_age));
    server.round(&mut world, &options());
    let (containers, _) = shown(&mut server);
    assert_eq!(containers, names[1..]);
    let told = told(&world);
    assert!(told.starts_with("the container of the Evaluator e00 does not run"), "{told}");
    assert_eq!(server.planned(&mut world, &options()), []);
}

/// What is not known may not take containers away, nor what may be named by anybody bring some.
#[test]
fn containers_stay_as_they_are_while_it_is_not_known_who_may_name_which() {
    let (mut server, mut world) = (Server::default(), world());
    name_them(&mut world, [("a", 1), ("wrong", 2)]);
    server.round(&mut world, &options());
    let before = shown(&mut server);
    type Change = fn(&mut World);
    let kept: [(Change, &str); 4] = [
        (
            |world| world.evaluators.is_served = Some(false),
            "the CRD evaluators.quota.sluice.dev is not there",
        ),
        (
            |world| (world.evaluators.named, world.evaluators.unread) = (None, Some("forbidden".to_owned())),
            "Evaluators cannot be read (forbidden)",
        ),
        (
            |world| (world.evaluators.is_served, world.evaluators.unread) = (None, Some("words".to_owned())),
            "Evaluators cannot be read (words)",
        ),
        // What was read before may not be how it is.
        (
            |world| world.evaluators.unread = Some("forbidden".to_owned()),
            "Evaluators cannot be read (forbidden)",
        ),
    ];
    for (change, said) in kept {
        let mut world = world.clone();
        name_them(&mut world, [("other", 1)]);
        change(&mut world);
        // All else is made.
        server.delete(&mut world, Kind::Service, names::WEBHOOK);
        assert_eq!(server.round(&mut world, &options()).len(), 1, "{said}");
        assert_eq!(shown(&mut server), before, "{said}");
        assert!(told(&world).starts_with(said), "{}", told(&world));
        assert_eq!(server.planned(&mut world, &options()), [], "{said}");
    }
    assert_eq!(server.planned(&mut world, &options()), []);
    world.admission.guards_containers = false;
    assert_eq!(told(&world), "", "they are as they would be");
    world.evaluators.named = None;
    let nothing = plan(&world, &options(), VERSION, &LeftOut::default());
    assert_eq!(nothing, Plan::default(), "they are looked for");
}

/// Who may name a container is not known before the policy is in force, and its pods may not be counted without it.
#[test]
fn a_container_that_anybody_may_have_named_does_not_run_and_its_pods_wait() {
    for is_there in [true, false] {
        let (mut server, mut world) = (Server::default(), world());
        if is_there {
            name_them(&mut world, [("a", 1)]);
            server.round(&mut world, &options());
        }
        world.admission.guards_containers = false;
        name_them(&mut world, [("a", 1), ("other", 2)]);
        server.round(&mut world, &options());
        assert!(told(&world).starts_with("sluice-evaluators and its binding are not in force"));
        let (containers, flags) = shown(&mut server);
        assert_eq!(containers, if is_there { vec!["a"] } else { vec![] });
        assert_eq!(flags, [flag("a"), flag("other")]);
        assert_eq!(server.planned(&mut world, &options()), []);
    }
}

#[test]
fn what_the_api_server_does_not_take_is_left_out_and_told_and_its_pods_wait() {
    let (mut server, mut world) = (Server::default(), world());
    name_them(&mut world, [("a", 1), ("b", 2)]);
    server.round(&mut world, &options());
    assert_eq!(server.planned(&mut world, &options()), []);
    let without_a = LeftOut::default().with(&container("a"), "422", Instant::now());
    let plan = plan(&world, &options(), VERSION, &without_a);
    let [write] = &plan.writes[..] else { panic!("{:?}", plan.writes) };
    let own = write.body["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    let all: BTreeMap<_, _> = own.iter().map(|it| (it["name"].as_str().unwrap(), it)).collect();
    assert_eq!(all.keys().copied().collect::<Vec<_>>(), ["b", names::CONTROLLER]);
    assert!(all[names::CONTROLLER]["args"].as_array().unwrap().contains(&json!(flag("a"))));
    let told = told_of(&world, &without_a);
    assert!(
        told.starts_with("the container of the Evaluator a is left out") && told.contains("(422)"),
        "{told}"
    );
}

/// The letters of the text have two bytes each.
#[test]
fn what_would_be_larger_than_an_object_may_be_is_left_out_and_told_and_its_pods_wait() {
    let (mut server, mut world) = (Server::default(), world());
    let names: Vec<_> = (0..MOST_SIDECARS).map(|n| format!("e{n:02}")).collect();
    name_them(&mut world, names.iter().map(String::as_str).zip(0..));
    let of_64_kib: Vec<_> = (0..64).map(|_| "ä".repeat(512)).collect();
    for named in world.evaluators.named.iter_mut().flat_map(BTreeMap::values_mut) {
        named.container.as_mut().unwrap()["args"] = json!(of_64_kib);
    }
    server.round(&mut world, &options());
    let (containers, flags) = shown(&mut server);
    assert_eq!(containers, names[..15], "the eldest run");
    assert_eq!(flags, Vec::from_iter(names.iter().map(|name| flag(name))));
    let written = server.get(Kind::Deployment, names::CONTROLLER).object.to_string();
    assert!(written.len() < 3 << 19, "{}", written.len());
    let said = told(&world);
    assert!(
        said.starts_with("the container of the Evaluator e15 is left out") && said.contains("larger"),
        "{said}"
    );
    assert_eq!(server.planned(&mut world, &options()), []);
}
