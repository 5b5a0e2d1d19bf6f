//! From a request to its answer.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Response, StatusCode, Uri};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_api::names::{
    ARQS, EVALUATORS, GATE_PROBES, GROUP, HEADROOM_PROBES, OWN_GROUP, OWN_VERSION, PROOF_QUOTA, VERSION,
};

use super::Shared;
use super::body::Body;
use super::kept::How;
use super::object::{Kind, Object, Part, Refused};
use super::query::{Page, Query};
use super::watches::Watch;
use crate::cluster_json::{self, QUOTA};
use crate::pod_json::{Facts, namespace_number, pod_number};

/// The text of an answer, or why there is none.
type Answer = Result<String, Refused>;

pub(super) fn answer(shared: &Arc<Shared>, method: &Method, uri: &Uri, body: &[u8]) -> Response<Body> {
    let path: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
    let query = Query::read(uri.query().unwrap_or_default());
    if query.watch {
        return Response::new(Watch::since(shared, kind(&path, &query), query.version).into_body());
    }
    let answer = match *method {
        Method::GET => look_up(shared, &path, &query),
        Method::POST | Method::PUT | Method::PATCH => write(shared, method, &path, body),
        _ => Err(Refused::NotAllowed),
    };
    let code = if method == Method::POST { StatusCode::CREATED } else { StatusCode::OK };
    let (code, text) = answer.map_or_else(refusal, |text| (code, text));
    let mut response = Response::new(Full::new(Bytes::from(text)).boxed_unsync());
    *response.status_mut() = code;
    response
}

fn refusal(refused: Refused) -> (StatusCode, String) {
    let (code, reason, message) = refused.status();
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    (StatusCode::from_u16(code).unwrap_or_default(), status.to_string())
}

/// What a collection is of.
fn kind(path: &[&str], query: &Query) -> Kind {
    match path {
        _ if query.selects => Kind::Other,
        ["api", "v1", "pods"] => Kind::Pods,
        ["api", "v1", "namespaces"] => Kind::Namespaces,
        ["apis", GROUP, VERSION, ARQS] => Kind::Quotas,
        ["apis", OWN_GROUP, OWN_VERSION, EVALUATORS] => Kind::Rules,
        _ => Kind::Other,
    }
}

fn look_up(shared: &Shared, path: &[&str], query: &Query) -> Answer {
    match path {
        ["version"] => Ok(version()),
        ["api", "v1", "namespaces", namespace, "pods", name] => {
            let pod = shared.read(|world| world.pod(namespace_number(namespace)?, pod_number(name)?));
            pod.map(|pod| print(shared, pod)).ok_or(Refused::Missing)
        }
        ["apis", GROUP, VERSION, "namespaces", namespace, ARQS] => {
            let quota = quota(shared, namespace).map(Object::Quota);
            let version = shared.read(super::World::version);
            let part = Part { version, objects: quota.into_iter().collect(), next: None };
            Ok(list(shared, Kind::Quotas, query, &part))
        }
        ["apis", GROUP, VERSION, "namespaces", namespace, ARQS, QUOTA] => {
            quota(shared, namespace).ok_or(Refused::Missing)
        }
        ["apis", "coordination.k8s.io" | "events.k8s.io", "v1", "namespaces", _, "leases" | "events", _] => {
            let kept = shared.read(|world| world.kept(&path.join("/")).map(Value::to_string));
            kept.ok_or(Refused::Missing)
        }
        _ => {
            let kind = kind(path, query);
            let first = query.page.map_or(0, |page| page.first);
            // Objects are printed after the lock is given back: that takes milliseconds.
            let part = shared.read(|world| world.part(kind, first, query.limit.unwrap_or(u64::MAX)));
            Ok(list(shared, kind, query, &part))
        }
    }
}

fn write(shared: &Shared, method: &Method, path: &[&str], body: &[u8]) -> Answer {
    let body: Value = serde_json::from_slice(body).map_err(|_| Refused::Malformed)?;
    match (method, path) {
        (&Method::PATCH, ["api", "v1", "namespaces", namespace, "pods", name]) => {
            release(shared, namespace, name, body)
        }
        (&Method::PUT, ["apis", GROUP, VERSION, "namespaces", namespace, ARQS, QUOTA, "status"]) => {
            let number = namespace_number(namespace).ok_or(Refused::Missing)?;
            shared.change(|world| world.record(number, &body))
        }
        (&Method::PATCH, ["apis", OWN_GROUP, OWN_VERSION, EVALUATORS, name, "status"]) => {
            shared.change(|world| world.tell_of_rule(name, body))
        }
        (
            _,
            ["apis", "coordination.k8s.io" | "events.k8s.io", "v1", "namespaces", _, "leases" | "events", ..],
        ) => keep(shared, method, path, body),
        (&Method::POST, ["apis", OWN_GROUP, OWN_VERSION, GATE_PROBES]) => gate_probe(body),
        (&Method::POST, ["apis", OWN_GROUP, _, "namespaces", _, HEADROOM_PROBES]) => {
            Err(Refused::Denied(names::PROBE_DENIED.to_owned()))
        }
        (&Method::PATCH, ["api", "v1", "namespaces", _, "resourcequotas", PROOF_QUOTA, "status"]) => {
            Err(Refused::Denied(names::CHARGE_DENIED.to_owned()))
        }
        _ => Err(Refused::NotAllowed),
    }
}

/// A part of a list, as a page of it.
fn list(shared: &Shared, kind: Kind, query: &Query, part: &Part) -> String {
    // All pages have the version of the first one.
    let version = query.page.map_or(part.version, |page| page.version);
    let next = part.next.map(|first| Page { version, first }.token()).unwrap_or_default();
    let print = |object: &Object, text: &mut String| object.print(&shared.template, text);
    cluster_json::page(kind.names(), (version, &next), kind.bytes(), part.objects.iter(), print)
}

/// Removes the gate of a pod, if the patch applies to the pod as it is.
fn release(shared: &Shared, namespace: &str, name: &str, patch: Value) -> Answer {
    let patch: json_patch::Patch = serde_json::from_value(patch).map_err(|_| Refused::Malformed)?;
    let pod = shared.change(|world| {
        let pod = namespace_number(namespace).zip(pod_number(name));
        let pod = pod.and_then(|(namespace, number)| world.pod(namespace, number)).ok_or(Refused::Missing)?;
        let mut patched = serde_json::from_str::<Value>(&print(shared, pod)).unwrap_or_default();
        let applies = json_patch::patch(&mut patched, &patch).is_ok();
        let removes = applies && patched.pointer("/spec/schedulingGates").is_none();
        Some(pod.number).filter(|_| removes).and_then(|number| world.release(number)).ok_or(Refused::Invalid)
    });
    pod.map(|pod| print(shared, pod))
}

fn keep(shared: &Shared, method: &Method, path: &[&str], sent: Value) -> Answer {
    let how = match *method {
        Method::POST => How::Create,
        Method::PUT => How::Replace,
        _ => How::Merge,
    };
    let mut path = path.join("/");
    if how == How::Create {
        let name = sent.pointer("/metadata/name").and_then(Value::as_str).ok_or(Refused::Missing)?;
        path = format!("{path}/{name}");
    }
    shared.change(|world| world.keep(how, path, sent))
}

/// The answer to the dry run by which Sluice learns that its admission policies are in force, as they always are here: a
/// probe that can be gated is, and one that names its node is refused.
fn gate_probe(mut probe: Value) -> Answer {
    if probe.pointer("/spec/nodeName").is_some() {
        let policy = names::GATED_POLICY;
        let message = format!("ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request");
        return Err(Refused::Denied(message));
    }
    let gated = json!({
        "metadata": {"annotations": {names::CREATED_BY_ANNOTATION: "bench"}},
        "spec": {"schedulingGates": [{"name": names::GATE}]},
    });
    json_patch::merge(&mut probe, &gated);
    Ok(probe.to_string())
}

fn quota(shared: &Shared, namespace: &str) -> Option<String> {
    let number = namespace_number(namespace)?;
    shared.read(|world| world.quota(number))
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
