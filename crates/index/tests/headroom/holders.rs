//! What tenants make of pods so that they count as others do.

use sluice_engine::headroom::{Account, Stake};
use sluice_index::LauncherRecord;

use super::accounts::{CONTROLLER, after, ended, kubevirt, launcher, migrating, running, scene, stake};
use super::*;

/// A pod that names another one as its controller, created ten minutes after that.
fn attached(name: &str, to: &str, memory: &str) -> Value {
    let mut pod = launcher("a", "web", name, "node-1", memory);
    pod["metadata"]["creationTimestamp"] = json!("2026-01-01T00:10:00Z");
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "Pod", "name": to, "uid": format!("a/{to}"), "controller": true,
    }]);
    pod
}

/// Seconds after the creation of the machine.
fn since(account: &Account, name: &str) -> i64 {
    account.pods.iter().find(|pod| &*pod.name == name).unwrap().since - (NOW - 3600)
}

/// In a cluster that stamps no pods there, anybody may make such a pod.
#[test]
fn what_names_a_launcher_as_its_controller_explains_no_more_than_kubevirt_gives_such_a_pod() {
    let mut index = scene();
    see(&mut index.launchers, attached("forged", "web-source", "6Gi"));
    see(&mut index.launchers, attached("hp-source", "web-source", "1Mi"));
    migrating(&mut index, "a", "web", "2320Mi");
    see(&mut index.launchers, attached("hp-target", "web-target", "1Mi"));
    see(&mut index.launchers, attached("more", "web-target", "6Gi"));
    let account = index.account("a", None, NOW);
    assert_eq!(
        stake(&account, "web-target"),
        "passes 748 of 2320",
        "the source and the overhead, no pod beside it"
    );
    assert_eq!(stake(&account, "hp-target"), "passes 1 of 1");
    // 2M are 1.9Mi.
    assert_eq!(stake(&account, "more"), "passes 0 of 6144");
    assert_eq!(
        (since(&account, "hp-source"), since(&account, "forged")),
        (0, 600),
        "not as old as the machine"
    );
    // What KubeVirt has stamped as its own is believed.
    let mut genuine = attached("forged", "web-source", "6Gi");
    genuine["metadata"]["resourceVersion"] = json!("2");
    genuine["metadata"]["annotations"] = json!({ names::CREATED_BY_ANNOTATION: CONTROLLER });
    see(&mut index.launchers, genuine);
    let account = index.account("a", None, NOW);
    assert_eq!((stake(&account, "more"), since(&account, "forged")), ("passes 6144 of 6144".into(), 0));
}

/// A pod that was there before the limit, and has become larger since, was not there before in that size.
#[test]
fn a_pod_is_as_old_as_its_size() {
    let mut pod = launcher("a", "web", "own", "node-1", "5Gi");
    pod["metadata"]["ownerReferences"] = json!(null);
    let read = |pod: &Value| [LauncherRecord::read(&serde_json::from_value::<PodWire>(pod.clone()).unwrap())];
    let index = scene();
    assert_eq!(since(&index.account("a", Some(&read(&pod)), NOW), "own"), 0);
    let fields = json!({ "f:a": {} });
    let entry = |subresource: Value, time: &str| json!({ "subresource": subresource, "time": time, "fieldsV1": fields });
    pod["metadata"]["managedFields"] =
        json!([entry(json!("status"), "2026-01-01T00:50:00Z"), entry(json!(null), "2026-01-01T00:50:00Z")]);
    assert_eq!(since(&index.account("a", Some(&read(&pod)), NOW), "own"), 0);
    let entries = pod["metadata"]["managedFields"].as_array_mut().unwrap();
    entries.push(entry(json!("resize"), "2026-01-01T00:20:00Z"));
    entries.push(entry(json!("resize"), "2026-01-01T00:30:00Z"));
    assert_eq!(since(&index.account("a", Some(&read(&pod)), NOW), "own"), 1800);
}

/// `count/pods` counts objects: the pod of a former source counts until it is deleted.
#[test]
fn a_finished_pod_is_an_object_still() {
    let mut index = scene();
    let finished = |name: &str, created: &str| {
        let mut pod = launcher("a", "web", name, "node-0", "512Mi");
        pod["metadata"]["creationTimestamp"] = json!(created);
        pod["status"]["phase"] = json!("Succeeded");
        pod
    };
    see(&mut index.launchers, finished("first", "2026-01-01T00:00:10Z"));
    see(&mut index.launchers, finished("second", "2026-01-01T00:00:20Z"));
    let objects = |account: &Account, name: &str| {
        let pod = account.pods.iter().find(|pod| &*pod.name == name).unwrap();
        let of =
            |charge: &Charge| charge.get(&Resource::CountPods).unwrap_or_default().nanos() / 1_000_000_000;
        let passes = match &pod.stake {
            Stake::Passes(part) => of(part),
            Stake::Runs(_) | Stake::Stays => 0,
        };
        (of(&pod.charge), passes, pod.charge.get(&Resource::Memory))
    };
    let account = index.account("a", None, NOW);
    assert_eq!((objects(&account, "first"), objects(&account, "second")), ((1, 0, None), (1, 0, None)));
    // The machine has just left the node of both: the younger one is its source.
    let last = json!({ "migrationUid": "a/mig-web", "sourceNode": "node-0", "endTimestamp": "2026-01-01T00:59:00Z" });
    see(&mut index.vmis, after(2, "node-1", last));
    let account = index.account("a", None, NOW);
    assert_eq!((objects(&account, "first"), objects(&account, "second")), ((1, 0, None), (1, 1, None)));
    assert_eq!(objects(&index.account("a", None, NOW + 241), "second"), (1, 0, None), "not for ever");
}

/// What is kept of a pod does not depend on how many names a tenant has written into it.
#[test]
fn a_launcher_with_thousands_of_extended_resources_is_kept_without_them() {
    let mut pod = launcher("a", "web", "web-source", "node-1", "512Mi");
    let requests = &mut pod["spec"]["containers"][0]["resources"]["requests"];
    for number in 0..10_000 {
        requests[format!("example.com/{number}")] = json!("1");
    }
    let record = LauncherRecord::read(&serde_json::from_value::<PodWire>(pod).unwrap());
    assert!(record.source.charge.len() < 8 && record.source.compute.len() < 8, "{:?}", record.source);
    assert_eq!(record.source.charge.get(&Resource::Memory), Some(Quantity::parse("512Mi").unwrap().into()));
}

/// By the finalizer of a tenant the object of a migration stays, of which KubeVirt has written no end.
#[test]
fn the_target_of_a_migration_that_is_final_does_not_pass_because_its_object_is_kept() {
    let mut index = Cluster::default();
    kubevirt(&mut index);
    running(&mut index, "a", "web", "512Mi");
    migrating(&mut index, "a", "web", "512Mi");
    see(&mut index.vmis, after(2, "node-1", json!({ "migrationUid": "a/mig-web", "sourceNode": "node-0" })));
    assert_eq!(stake(&index.account("a", None, NOW), "web-target"), "passes 512 of 512");
    ended(&mut index, "a", "web");
    assert_eq!(stake(&index.account("a", None, NOW), "web-target"), "stays of 512");
}
