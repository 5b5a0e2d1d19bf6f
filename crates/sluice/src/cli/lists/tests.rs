//! What a person reads who waits for an API server.

use std::convert::Infallible;
use std::sync::Mutex;
use std::time::Duration;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use sluice_index::{NamespaceWire, PodWire};

use super::*;

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn said() -> Vec<String> {
    std::mem::take(&mut SAID.lock().unwrap())
}

/// One to a server that takes five seconds for each answer.
fn slow() -> Connection {
    let service = tower::service_fn(|request: Request<Body>| async move {
        let body = match request.uri().path() {
            "/version" => {
                r#"{"major": "1", "minor": "36", "gitVersion": "", "gitCommit": "", "gitTreeState": "", "buildDate": "",
                    "goVersion": "", "compiler": "", "platform": ""}"#
            }
            path if path.contains("pods") && !request.uri().to_string().contains("continue=") => {
                r#"{"metadata": {"continue": "x"}, "items": [{"metadata": {"name": "a"}}]}"#
            }
            path if path.contains("pods") => r#"{"metadata": {}, "items": []}"#,
            _ => r#"{"metadata": {"name": "team"}}"#,
        };
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok::<_, Infallible>(Response::new(Body::from(body.as_bytes().to_vec())))
    });
    let mut connection = Connection::of_test(Client::new(service, "default"), Duration::from_secs(30));
    connection.say = |line| SAID.lock().unwrap().push(line.to_owned());
    connection
}

#[tokio::test(start_paused = true)]
async fn a_request_that_hangs_is_told_of_every_two_seconds_before_there_is_an_answer() {
    let connection = slow();
    let mut lists = Lists::new(&connection);
    let pods = lists.all::<PodWire>(Where::Namespace("team")).await.unwrap().unwrap();
    assert_eq!(pods.len(), 1);
    let (first, second) = ("0 pods in namespace team read …", "1 pods in namespace team read …");
    assert_eq!(said(), [first, first, second, second]);

    let mut lists = Lists::new(&connection);
    let namespaces: Api<NamespaceWire> = Api::all(connection.client.clone());
    lists.get(&namespaces, "namespaces team", "team").await.unwrap();
    assert_eq!(said(), ["reading namespaces team …"; 2]);

    connection.version().await.unwrap();
    assert_eq!(said(), ["asking the API server for its version …"; 2]);

    // Servers have logs in place of people who wait.
    let connection = connection.quiet();
    connection.version().await.unwrap();
    Lists::new(&connection).all::<PodWire>(Where::Everywhere).await.unwrap();
    assert_eq!(said(), Vec::<String>::new());
}
