//! Charges follow the rules of the API server's version.

use sluice_index::PodWire;

use super::server::wire;
use super::stories::{Story, at};
use super::team::NAMESPACE;
use crate::{Action, Answer, Outcome, RecordedObject};

#[test]
fn pods_are_read_by_other_rules_when_the_api_server_was_upgraded() {
    let mut story = Story::led();
    let quota = serde_json::json!({
        "metadata": {"name": "q", "namespace": NAMESPACE, "uid": "q", "resourceVersion": "1"},
        "spec": {"hard": {"requests.cpu": "10"}},
    });
    story.state.apply_watched_quota(&wire(quota), at(0));
    let resources = |cpu: &str| serde_json::json!({"requests": {"cpu": cpu}});
    let container = |name: &str, spec: &str| serde_json::json!({"name": name, "resources": resources(spec)});
    let status = |name: &str, now: &str| serde_json::json!({"name": name, "resources": resources(now)});
    // One container grows while the other shrinks: 2 + 2 by container, 3 by sums.
    let pod = serde_json::json!({
        "metadata": {"name": "p", "namespace": NAMESPACE, "uid": "p", "resourceVersion": "5"},
        "spec": {"nodeName": "n", "containers": [container("a", "1"), container("b", "2")]},
        "status": {"phase": "Running", "containerStatuses": [status("a", "2"), status("b", "1")]},
    });
    let pod: PodWire = wire(pod);
    let used = |story: &mut Story| {
        let written = story.state.plan(at(0)).into_iter().find_map(|action| match action {
            Action::Record(record) => Some(record),
            _ => None,
        });
        let record = written.unwrap();
        let answer = serde_json::json!({
            "metadata": {"name": "q", "namespace": NAMESPACE, "uid": "q", "resourceVersion": "9"},
            "spec": {"hard": {"requests.cpu": "10"}},
        });
        story.state.on_outcome(
            Outcome::Recorded(record.quota, record.uid, Answer::Done(RecordedObject::Quota(wire(answer)))),
            at(0),
        );
        record.target.used[0].1.to_string()
    };
    story.state.apply_pod(&pod, at(0));
    assert_eq!(used(&mut story), "4");
    story.state.charge_by(sluice_engine::ChargeRules::for_minor(37));
    story.state.apply_pod(&pod, at(100));
    let again = story.state.plan(at(100));
    let [Action::Record(record)] = again.as_slice() else { panic!("{again:?}") };
    assert_eq!(record.target.used[0].1.to_string(), "3", "of the same version of the pod");
}
