//! Which pods of a namespace are told of, and how it ends where something may not be read.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::cli::printed::Exit;
use crate::cli::why::Kind;

const NS: &str = "/api/v1/namespaces/default/pods?";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn pod(name: &str, owner: Option<&str>) -> Value {
    let owners = owner
        .map(|uid| json!({ "apiVersion": "a/v1", "kind": "K", "name": "n", "uid": uid, "controller": true }));
    json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": name, "resourceVersion": "1", "labels": { "app": "web" },
            "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": owners.as_slice(),
        },
        "spec": { "schedulingGates": [{ "name": sluice_api::names::GATE }], "containers": [{ "name": "main" }] },
    })
}

fn named(name: &str, owner: Option<&str>) -> Value {
    json!({ "metadata": pod(name, owner)["metadata"], "spec": { "selector": { "matchLabels": { "app": "web" } } } })
}

/// A Deployment and a Job whose labels are those of pods of others, too.
fn cluster(path: &str) -> (u16, Value) {
    let list = |items: &[Value]| (200, json!({ "metadata": { "resourceVersion": "1" }, "items": items }));
    match path {
        _ if path.starts_with("/version") => (
            200,
            json!({
                "major": "1", "minor": "36", "gitVersion": "", "gitCommit": "", "gitTreeState": "", "buildDate": "",
                "goVersion": "", "compiler": "", "platform": "",
            }),
        ),
        _ if path.starts_with(NS) => list(&[
            pod("web-old-1", Some("web-old")),
            pod("web-new-1", Some("web-new")),
            pod("other-1", Some("other-rs")),
            pod("train-1", Some("train")),
            pod("alone", None),
        ]),
        _ if path.starts_with("/apis/apps/v1/namespaces/default/replicasets?") => list(&[
            named("web-old", Some("web")),
            named("web-new", Some("web")),
            named("other-rs", Some("other")),
        ]),
        "/apis/apps/v1/namespaces/default/deployments/web" => (200, named("web", None)),
        "/apis/batch/v1/namespaces/default/jobs/train" => (200, named("train", None)),
        _ if path.starts_with(&format!("{DEPLOYMENTS}?")) => {
            list(&[named("web", None), named("other", None)])
        }
        _ if path.contains("limit=") => list(&[]),
        _ => status(404),
    }
}

fn status(code: u16) -> (u16, Value) {
    (code, json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "m", "code": code }))
}

/// Lines, names of the pods, why there is no answer, rights that were missing, and how the command ends.
async fn told(
    kind: &str,
    name: &str,
    forbidden: &'static [&'static str],
) -> (Vec<String>, Vec<String>, Option<String>, Vec<String>, Exit) {
    let service = tower::service_fn(move |request: Request<Body>| async move {
        let path = request.uri().to_string();
        let (code, body) = match forbidden.iter().any(|part| path.contains(part)) {
            true => status(403),
            false => cluster(&path),
        };
        let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
        Ok::<_, Infallible>(response.unwrap())
    });
    let connection = Connection::of_test(Client::new(service, "default"), Duration::from_secs(30));
    let world = World::of_namespace(&connection, "default").await.unwrap();
    let answer = crate::cli::why::answer(&connection, &world, Kind::read(kind).unwrap(), name).await.unwrap();
    let pods = answer.explanations.iter().map(|it| it.json()["name"].as_str().unwrap().to_owned()).collect();
    let exit = answer.exit(&world);
    (answer.lines, pods, answer.unknown, answer.missing, exit)
}

#[tokio::test]
async fn the_pods_are_those_that_the_controller_controls_whatever_their_labels_are() {
    let (lines, pods, unknown, ..) = told("deployment", "web", &[]).await;
    assert_eq!(pods, ["web-old-1", "web-new-1"]);
    assert_eq!((lines.len(), unknown), (1, None), "{lines:?}");
    assert!(lines[0].starts_with("web has 2 pods, held: "), "{lines:?}");
    let (_, pods, ..) = told("job", "train", &[]).await;
    assert_eq!(pods, ["train-1"]);
}

#[tokio::test]
async fn a_name_of_nothing_has_near_names() {
    let (_, _, unknown, missing, exit) = told("deploy", "wbe", &[]).await;
    assert_eq!(unknown.unwrap(), "wbe not found in namespace default: is it web?");
    assert_eq!((missing, exit), (Vec::new(), Exit::Unknown));
}

#[tokio::test]
async fn what_may_not_be_read_is_a_missing_right() {
    let rights = [
        (&["/deployments"][..], "get deployments.apps web in namespace default"),
        (&["/replicasets"], "list replicasets.apps in namespace default"),
        (&["/pods?"], "list pods in namespace default"),
    ];
    for (forbidden, right) in rights {
        let (_, pods, unknown, missing, exit) = told("deployment", "web", forbidden).await;
        assert!(pods.is_empty() && unknown.is_some_and(|told| !told.contains("not found")), "{right}");
        assert_eq!((missing, exit), (vec![right.to_owned()], Exit::Unknown));
    }
}
