//! Answers of a bundle. It has the pods that wait and none that run, so nothing is recomputed: the answers are what the
//! controller has said in events, word for word.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;
use sluice_api::names;
use sluice_dashboard::{
    Answer, Asked, Cluster, Drain, Followed, Link, QuotaTold, Recorded, SubjectKind, Told,
};
use tokio::sync::watch;

use super::record::Record;

/// Why takers and places are not known.
const NO_PODS: &str = "a bundle has the pods that wait and not those that run";

impl Cluster for Record {
    fn now(&self) -> i64 {
        self.taken
    }

    fn follow(&self, asked: Asked) -> Followed {
        let answer = answer(self, &asked);
        watch::channel(Some(Arc::new(answer))).1
    }

    fn drain(&self, _: String) -> BoxFuture<'static, Result<Drain, String>> {
        async move { Err(format!("{NO_PODS}, so what the VMs of a node need elsewhere is not known")) }
            .boxed()
    }
}

fn answer(record: &Record, asked: &Asked) -> Answer {
    if let Some(only) = record.namespace.as_ref().filter(|only| *only != asked.namespace()) {
        return Answer::Failed(format!("the bundle has tenants' objects of namespace {only} alone"));
    }
    match asked {
        Asked::Quota { namespace, .. } => {
            let recorded = waiting(record, namespace);
            let unknown = Some(NO_PODS.to_owned());
            Answer::Quota(Box::new(QuotaTold { unknown, recorded, ..QuotaTold::default() }))
        }
        Asked::Why { kind, namespace, name } => Answer::Why(why(record, *kind, namespace, name)),
    }
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn second(object: &Value, pointer: &str) -> Option<i64> {
    text(object, pointer).parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}

/// When an event was told last.
fn told_at(event: &Value) -> Option<i64> {
    let at = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/firstTimestamp"];
    at.iter().find_map(|at| second(event, at))
}

/// Objects of a kind in a namespace.
fn of<'r>(record: &'r Record, kind: &str, namespace: &str) -> impl Iterator<Item = &'r Value> {
    record.of_kind(kind).filter(move |object| text(object, "/metadata/namespace") == namespace)
}

/// What the controller has said of an object, the last first.
fn said<'r>(record: &'r Record, kinds: &[&str], namespace: &str, name: &str) -> Vec<&'r Value> {
    let is_about = |event: &&Value| {
        text(event, "/reportingComponent") == names::EVENT_COMPONENT
            && text(event, "/involvedObject/name") == name
            && kinds.contains(&text(event, "/involvedObject/kind"))
    };
    let mut events: Vec<&Value> = of(record, "Event", namespace).filter(is_about).collect();
    events.sort_by_key(|event| std::cmp::Reverse(told_at(event)));
    events
}

fn words(event: &Value) -> String {
    format!("{}: {}", text(event, "/reason"), text(event, "/message"))
}

/// The pods that wait in a namespace, the oldest first.
fn waiting(record: &Record, namespace: &str) -> Vec<Recorded> {
    let pods = of(record, "Pod", namespace).map(|pod| {
        let name = text(pod, "/metadata/name");
        let said = said(record, &["Pod"], namespace, name).first().map(|event| words(event));
        Recorded {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            since: second(pod, "/metadata/creationTimestamp"),
            said: said.unwrap_or_else(|| "no event of it is in the bundle".to_owned()),
        }
    });
    let mut pods: Vec<Recorded> = pods.collect();
    pods.sort_by(|one, other| (one.since, &one.name).cmp(&(other.since, &other.name)));
    pods
}

fn why(record: &Record, kind: SubjectKind, namespace: &str, name: &str) -> Told {
    let (kinds, what): (&[&str], _) = match kind {
        SubjectKind::Pod => (&["Pod"], "pod"),
        SubjectKind::Vm => (&["VirtualMachine", "VirtualMachineInstance"], "VM"),
        SubjectKind::Migration => (&["VirtualMachineInstanceMigration"], "migration"),
    };
    let object = kinds
        .iter()
        .find_map(|kind| of(record, kind, namespace).find(|object| text(object, "/metadata/name") == name));
    let events = said(record, kinds, namespace, name);
    if object.is_none() && events.is_empty() {
        let unknown = format!("{name} of namespace {namespace} is not in the bundle: {NO_PODS}");
        return Told { unknown: Some(unknown), ..Told::default() };
    }
    let state = match kind {
        SubjectKind::Pod => "waits behind the gate",
        SubjectKind::Vm | SubjectKind::Migration => {
            let phase = object.map_or("", |object| text(object, "/status/phase"));
            if phase.is_empty() { "no phase" } else { phase }
        }
    };
    let is_held = kind == SubjectKind::Pod && object.is_some();
    let chain = object.map(|_| Link { what, name: name.to_owned(), state: state.to_owned(), is_held });
    let mut lines: Vec<String> = events.iter().map(|event| words(event)).collect();
    if lines.is_empty() {
        lines.push("The controller has said nothing of it in the events of the bundle.".to_owned());
    }
    let assumed =
        vec!["these are the events of the bundle, the last first; nothing is recomputed".to_owned()];
    Told { chain: chain.into_iter().collect(), lines, assumed, ..Told::default() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record() -> Record {
        let event = |kind: &str, name: &str, at: &str, message: &str| {
            json!({
                "kind": "Event", "metadata": { "namespace": "team" }, "reason": "QuotaExceeded", "message": message,
                "reportingComponent": names::EVENT_COMPONENT, "lastTimestamp": at,
                "involvedObject": { "kind": kind, "name": name },
            })
        };
        let pod = |name: &str, at: &str| {
            let metadata = json!({ "namespace": "team", "name": name, "creationTimestamp": at });
            json!({ "kind": "Pod", "metadata": metadata })
        };
        Record {
            namespace: Some("team".to_owned()),
            objects: vec![
                pod("late", "2026-01-01T00:02:00Z"),
                pod("train", "2026-01-01T00:01:00Z"),
                event("Pod", "train", "2026-01-01T00:01:00Z", "first"),
                event("Pod", "train", "2026-01-01T00:31:00Z", "short by 2"),
                event("VirtualMachineInstance", "db", "2026-01-01T00:31:00Z", "of a VM"),
            ],
            ..Record::default()
        }
    }

    fn told(kind: SubjectKind, name: &str) -> Told {
        let asked = Asked::Why { kind, namespace: "team".to_owned(), name: name.to_owned() };
        let Answer::Why(told) = answer(&record(), &asked) else { panic!("{asked:?}") };
        told
    }

    #[test]
    fn what_was_said_last_comes_first_and_who_waits_longest() {
        let asked = Asked::Quota { namespace: "team".to_owned(), name: "q".to_owned() };
        let Answer::Quota(told_of_quota) = answer(&record(), &asked) else { panic!("{asked:?}") };
        let pods: Vec<_> = told_of_quota.recorded.iter().map(|pod| (&*pod.name, &*pod.said)).collect();
        let nothing = "no event of it is in the bundle";
        assert_eq!(pods, [("train", "QuotaExceeded: short by 2"), ("late", nothing)]);
        let train = told(SubjectKind::Pod, "train");
        assert_eq!(train.lines, ["QuotaExceeded: short by 2", "QuotaExceeded: first"]);
        assert!(train.chain.iter().all(|link| link.is_held) && train.chain.len() == 1);
        let machine = told(SubjectKind::Vm, "db");
        assert_eq!((machine.lines, machine.chain), (vec!["QuotaExceeded: of a VM".to_owned()], vec![]));
    }

    #[test]
    fn what_the_bundle_has_not_is_said() {
        let unknown = told(SubjectKind::Pod, "runs").unknown.unwrap();
        assert_eq!(
            unknown,
            "runs of namespace team is not in the bundle: a bundle has the pods that wait and not those that run"
        );
        let asked = Asked::Quota { namespace: "other".to_owned(), name: "q".to_owned() };
        let Answer::Failed(why) = answer(&record(), &asked) else { panic!("{asked:?}") };
        assert_eq!(why, "the bundle has tenants' objects of namespace team alone");
    }
}
