//! From a request to its answer.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Response, StatusCode, Uri};
use serde_json::{Value, json};
use sluice_api::names;

use super::Shared;
use super::kept::How;
use super::kind::Kind;
use super::lists::list;
use super::policies::{denied, gate_probe};
use super::query::Query;
use super::watches::Watch;
use super::world::Written;
use crate::cluster_json;
use crate::pod_json::{Facts, namespace_number, pod_number};

/// A whole answer, or the stream of a watch.
pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

pub(super) fn answer(shared: &Arc<Shared>, method: &Method, uri: &Uri, body: &[u8]) -> Response<Body> {
    let path: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
    match *method {
        Method::GET => look_up(shared, &path, &Query::read(uri.query().unwrap_or_default())),
        Method::POST | Method::PUT | Method::PATCH => write(shared, method, &path, body),
        _ => refusal(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "the fake takes no such request"),
    }
}

fn look_up(shared: &Arc<Shared>, path: &[&str], query: &Query) -> Response<Body> {
    match path {
        ["version"] => whole(StatusCode::OK, version()),
        ["api", "v1", "pods"] => collection(shared, Kind::Pods, query),
        ["api", "v1", "namespaces"] => collection(shared, Kind::Namespaces, query),
        ["apis", names::GROUP, names::VERSION, names::ARQS] => collection(shared, Kind::Quotas, query),
        ["api", "v1", "namespaces", namespace, "pods", name] => {
            object(shared.read(|world| world.pod(namespace_number(namespace)?, pod_number(name)?)), |pod| {
                print(shared, pod)
            })
        }
        ["apis", names::GROUP, names::VERSION, "namespaces", namespace, names::ARQS] => {
            let quota =
                namespace_number(namespace).and_then(|number| shared.read(|world| world.quota(number)));
            let page = cluster_json::page(
                Kind::Quotas.names(),
                (shared.read(super::World::version), ""),
                0,
                quota.into_iter(),
                |quota, text| text.push_str(&quota),
            );
            whole(StatusCode::OK, page)
        }
        ["apis", names::GROUP, names::VERSION, "namespaces", namespace, names::ARQS, cluster_json::QUOTA] => {
            object(shared.read(|world| world.quota(namespace_number(namespace)?)), |quota| quota)
        }
        ["apis", "coordination.k8s.io" | "events.k8s.io", "v1", "namespaces", _, "leases" | "events", _] => {
            object(shared.read(|world| world.kept(&path.join("/")).map(Value::to_string)), |kept| kept)
        }
        _ => collection(shared, Kind::Other, query),
    }
}

fn write(shared: &Arc<Shared>, method: &Method, path: &[&str], body: &[u8]) -> Response<Body> {
    match (method, path) {
        (&Method::PATCH, ["api", "v1", "namespaces", namespace, "pods", name]) => {
            release(shared, namespace, name, body)
        }
        (
            &Method::PUT,
            [
                "apis",
                names::GROUP,
                names::VERSION,
                "namespaces",
                namespace,
                names::ARQS,
                cluster_json::QUOTA,
                "status",
            ],
        ) => record(shared, namespace, body),
        (
            _,
            ["apis", "coordination.k8s.io" | "events.k8s.io", "v1", "namespaces", _, "leases" | "events", ..],
        ) => keep(shared, method, path, body),
        (&Method::POST, ["apis", names::OWN_GROUP, names::OWN_VERSION, names::GATE_PROBES]) => {
            gate_probe(body)
        }
        (&Method::POST, ["apis", names::OWN_GROUP, _, "namespaces", _, names::HEADROOM_PROBES]) => {
            denied(names::PROBE_DENIED)
        }
        (&Method::PATCH, ["api", "v1", "namespaces", _, "resourcequotas", names::PROOF_QUOTA, "status"]) => {
            denied(names::CHARGE_DENIED)
        }
        _ => refusal(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "the fake takes no such request"),
    }
}

fn collection(shared: &Arc<Shared>, kind: Kind, query: &Query) -> Response<Body> {
    let kind = if query.selects { Kind::Other } else { kind };
    if query.watch {
        return Response::new(Watch::since(shared, kind, query.version).into_body());
    }
    whole(StatusCode::OK, list(shared, kind, query))
}

/// Removes the gate of a pod, if the patch applies to the pod as it is.
fn release(shared: &Shared, namespace: &str, name: &str, patch: &[u8]) -> Response<Body> {
    let released = shared.change(|world| {
        let pod = world.pod(namespace_number(namespace)?, pod_number(name)?)?;
        let removes = removes_gates(&print(shared, pod), patch);
        Some(if removes { world.release(pod.number) } else { None })
    });
    match released {
        None => missing(),
        Some(None) => refusal(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            "the server rejected our request due to an error in our request",
        ),
        Some(Some(pod)) => whole(StatusCode::OK, print(shared, pod)),
    }
}

fn removes_gates(pod: &str, patch: &[u8]) -> bool {
    let (pod, patch) =
        (serde_json::from_str::<Value>(pod), serde_json::from_slice::<json_patch::Patch>(patch));
    let (Ok(mut pod), Ok(patch)) = (pod, patch) else { return false };
    json_patch::patch(&mut pod, &patch.0).is_ok() && pod.pointer("/spec/schedulingGates").is_none()
}

fn record(shared: &Shared, namespace: &str, body: &[u8]) -> Response<Body> {
    let (Some(number), Ok(sent)) = (namespace_number(namespace), serde_json::from_slice::<Value>(body))
    else {
        return missing();
    };
    written(shared.change(|world| world.record(number, &sent)), StatusCode::OK)
}

fn keep(shared: &Shared, method: &Method, path: &[&str], body: &[u8]) -> Response<Body> {
    let sent = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let (how, code) = match *method {
        Method::POST => (How::Create, StatusCode::CREATED),
        Method::PUT => (How::Replace, StatusCode::OK),
        _ => (How::Merge, StatusCode::OK),
    };
    let mut path = path.join("/");
    if how == How::Create {
        let Some(name) = sent.pointer("/metadata/name").and_then(Value::as_str) else { return missing() };
        path = format!("{path}/{name}");
    }
    match shared.change(|world| world.keep(how, path, sent)) {
        Written::Conflict if how == How::Create => {
            refusal(StatusCode::CONFLICT, "AlreadyExists", "there is such an object already")
        }
        outcome => written(outcome, code),
    }
}

fn written(written: Written, code: StatusCode) -> Response<Body> {
    match written {
        Written::Done(text) => whole(code, text),
        Written::Missing => missing(),
        Written::Conflict => refusal(StatusCode::CONFLICT, "Conflict", "the object has been modified"),
    }
}

fn object<T>(found: Option<T>, print: impl FnOnce(T) -> String) -> Response<Body> {
    found.map_or_else(missing, |object| whole(StatusCode::OK, print(object)))
}

fn print(shared: &Shared, pod: Facts) -> String {
    let mut text = String::new();
    shared.template.write(pod, &mut text);
    text
}

fn version() -> String {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.0-fake", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
    })
    .to_string()
}

fn missing() -> Response<Body> {
    refusal(StatusCode::NOT_FOUND, "NotFound", "there is no such object")
}

/// A `metav1.Status` as an API server answers it.
pub(super) fn refusal(code: StatusCode, reason: &str, message: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    whole(code, status.to_string())
}

/// An answer that is there as a whole.
pub(super) fn whole(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let text: Bytes = text.into();
    let mut response = Response::new(Full::new(text).boxed_unsync());
    *response.status_mut() = code;
    response
}
