//! What keeps pods from running is said in the status.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};
use sluice_api::names;

use super::super::live::{Live, Rollout};
use super::super::pods::{PodWire, ReplicaPod};
use super::super::wire::OperandWire;
use super::metadata;
use super::statuses::{Installation, at, deployed, plan};

const NEW: &str = "sluice-controller-5f";
const OLD: &str = "sluice-controller-4c";

fn pods_of(made: &[(&str, u32, &Value)]) -> BTreeMap<String, ReplicaPod> {
    let pod = |(replica_set, second, status): &(&str, u32, &Value)| {
        let name = format!("{replica_set}-{second}");
        let mut metadata = metadata(&name, *second);
        metadata["labels"] = json!({ "pod-template-hash": replica_set.rsplit('-').next() });
        metadata["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": replica_set, "uid": "u", "controller": true,
        }]);
        let pod = json!({ "metadata": metadata, "status": status });
        (name, serde_json::from_value::<PodWire>(pod).unwrap().of_deployment().unwrap())
    };
    made.iter().map(pod).collect()
}

/// With a Deployment whose newest ReplicaSet is `sluice-controller-5f`, and these conditions besides.
fn live(rollout: &Rollout, conditions: &[Value]) -> Live {
    let newest =
        json!({ "type": "Progressing", "message": "ReplicaSet \"sluice-controller-5f\" is progressing." });
    let conditions = [&[newest], conditions].concat();
    let object = json!({ "metadata": {}, "spec": {}, "status": { "conditions": conditions } });
    let live = Live::of(serde_json::from_value::<OperandWire<Deployment>>(object).unwrap());
    Live { rollout: rollout.clone(), ..live }
}

fn degraded(it: &Installation) -> String {
    let conditions = it.status["conditions"].as_array().unwrap();
    let said = conditions.iter().find(|it| it["type"] == names::DEGRADED).unwrap();
    format!("{} {}", said["reason"].as_str().unwrap(), said["message"].as_str().unwrap())
}

/// The image of a sidecar cannot be pulled, or a quota has no room for the new pod: the pods of before do the work.
#[test]
fn what_keeps_new_pods_from_running_is_said_while_the_old_ones_go_on() {
    let mut it = deployed();
    let rollout = Rollout { wanted: 2, total: 3, updated: 1, ready: 2, is_observed: true };
    let not_made = [
        json!({ "type": "Available", "status": "True" }),
        json!({
            "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
            "message": "pods \"sluice-controller-5f-x7b\" is forbidden: exceeded quota: small",
        }),
    ];
    let waiting = json!({ "containerStatuses": [{
        "name": "label", "image": "i:1", "state": { "waiting": { "reason": "ImagePullBackOff" } },
    }] });
    let mut told = Vec::new();
    for (pods, conditions) in [
        (pods_of(&[(OLD, 1, &json!({}))]), &[][..]),
        (pods_of(&[(OLD, 1, &json!({})), (NEW, 2, &waiting)]), &[]),
        (BTreeMap::new(), &not_made),
    ] {
        it.world.pods = pods;
        it.deployments().insert(names::CONTROLLER.to_owned(), live(&rollout, conditions));
        let shown = it.round("1");
        let available = "Deployed 1: Available=True DeployCompleted, Progressing=True RolloutStarted";
        assert!(shown.starts_with(available), "{shown}");
        it.world.pods.extend(pods_of(&[(OLD, 3, &json!({}))]));
        assert_eq!(plan(&it.world, &it.troubles, "1", at(2)), [], "one of before is made again");
        told.push(degraded(&it));
    }
    let not_pulled = "ContainersDoNotRun Deployment sluice-controller: the image i:1 of container label cannot be pulled: \
                      correct it, or see the events of the pod";
    let no_room =
        "ContainersDoNotRun Deployment sluice-controller: a new pod is forbidden: exceeded quota: small";
    assert_eq!(told, ["DeployCompleted ", not_pulled, no_room]);
    // All that is wanted has run: what a container does from then on its Evaluator tells.
    it.world.pods = pods_of(&[(NEW, 2, &waiting)]);
    it.ready(names::CONTROLLER, 2);
    assert!(it.round("1").ends_with("Degraded=False DeployCompleted, FieldsNotInForce=False AllInForce"));
    it.troubles.evaluators = vec!["words".to_owned()];
    assert!(it.round("1").contains("Degraded=True EvaluatorsDoNotRun"));
}

/// Where no pod ran before, all that are wanted are made at once.
#[test]
fn what_keeps_the_first_pods_from_running_is_said() {
    let mut it = Installation::new();
    let unscheduled = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" });
    it.world.pods = pods_of(&[(NEW, 1, &json!({ "conditions": [unscheduled] }))]);
    let rollout = Rollout { wanted: 2, total: 2, updated: 2, ready: 0, is_observed: true };
    it.deployments().insert(names::CONTROLLER.to_owned(), live(&rollout, &[]));
    it.round("1");
    let said = degraded(&it);
    let expected = "ContainersDoNotRun no pod of Deployment sluice-controller is ready (of 2); \
                    Deployment sluice-controller: a new pod finds no node";
    assert!(said.starts_with(expected), "{said}");
}
