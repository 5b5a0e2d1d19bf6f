//! Which pod a machine runs in, and which one is the target of its migration.

use super::accounts::{
    CONTROLLER, launcher, machine, memory_of, migrating, migration, scene, source, stake, target,
};
use super::*;

fn lacks_target(index: &Cluster) -> bool {
    index.lacks_target(index.vmims.get("a", "mig-web").unwrap(), index.vmis.get("a", "web").unwrap())
}

/// Whoever may create pods may give them the label of a migration of any namespace, and an owner.
#[test]
fn a_migration_has_a_target_once_kubevirt_has_created_one_for_its_machine() {
    let created_by = |mut pod: Value, name: &str| {
        pod["metadata"]["annotations"] = json!({ names::CREATED_BY_ANNOTATION: name });
        pod
    };
    let mut index = scene();
    see(&mut index.vmims, migration("a", "web", "Pending", 1));
    assert!(lacks_target(&index));
    let mut elsewhere = target("a", "web", "512Mi");
    elsewhere["metadata"]["namespace"] = json!("b");
    elsewhere["metadata"]["uid"] = json!("b/decoy");
    see(&mut index.launchers, elsewhere);
    let mut of_other = created_by(target("a", "web", "512Mi"), CONTROLLER);
    of_other["metadata"]["name"] = json!("of-other");
    of_other["metadata"]["uid"] = json!("a/of-other");
    of_other["metadata"]["ownerReferences"][0]["uid"] = json!("a/db");
    see(&mut index.launchers, of_other);
    let mut forged = created_by(target("a", "web", "512Mi"), "jane");
    forged["metadata"]["name"] = json!("forged");
    forged["metadata"]["uid"] = json!("a/forged");
    see(&mut index.launchers, forged);
    assert!(lacks_target(&index), "none of these is it");
    see(&mut index.launchers, created_by(target("a", "web", "512Mi"), CONTROLLER));
    assert!(!lacks_target(&index));
}

#[test]
fn a_target_with_volumes_that_were_plugged_in_lacks_the_pod_that_attaches_them() {
    let mut index = scene();
    let mut plugged = machine("a", "web", 2);
    plugged["spec"]["volumes"] =
        json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data", "hotpluggable": true } }]);
    see(&mut index.vmis, plugged);
    migrating(&mut index, "a", "web", "512Mi");
    assert!(lacks_target(&index), "the pod of the source is none of the target's");
    let attaches = |name: &str, launcher: &str| {
        let mut pod = target("a", "web", "32Mi");
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["uid"] = json!(format!("a/{name}"));
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "Pod", "name": launcher, "uid": format!("a/{launcher}"), "controller": true,
        }]);
        pod
    };
    see(&mut index.launchers, attaches("hp-source", "web-source"));
    assert!(lacks_target(&index));
    see(&mut index.launchers, attaches("hp-target", "web-target"));
    assert!(!lacks_target(&index));
}

#[test]
fn the_source_is_the_pod_that_the_machine_controls_where_it_runs() {
    let mut index = scene();
    // With the label of the machine alone, of whatever size: it is not even kept.
    let mut labelled = launcher("a", "web", "labelled", "node-1", "40Gi");
    labelled["metadata"]["ownerReferences"] = json!(null);
    labelled["metadata"]["labels"] = json!({"kubevirt.io/created-by": "a/web"});
    see(&mut index.launchers, labelled);
    // A former launcher that has ended, one elsewhere, one that is being deleted, one of another machine.
    let mut finished = launcher("a", "web", "finished", "node-1", "8Gi");
    finished["status"]["phase"] = json!("Succeeded");
    let elsewhere = launcher("a", "web", "elsewhere", "node-2", "8Gi");
    let mut deleted = launcher("a", "web", "deleted", "node-1", "8Gi");
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T01:00:30Z");
    deleted["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    let foreign = launcher("a", "other", "foreign", "node-1", "8Gi");
    for pod in [finished, elsewhere, deleted, foreign] {
        see(&mut index.launchers, pod);
    }
    assert_eq!(memory_of(source(&index)).as_deref(), Some("512Mi"));
}

#[test]
fn a_pod_that_claims_to_be_the_source_makes_it_no_larger() {
    let mut index = scene();
    see(&mut index.launchers, launcher("a", "web", "decoy", "node-1", "40Gi"));
    assert_eq!(memory_of(source(&index)).as_deref(), Some("512Mi"));
    // Nor does it explain anything: one pod of a machine has its overhead.
    let account = index.account("a", None, NOW);
    assert_eq!(
        (stake(&account, "decoy"), stake(&account, "web-source")),
        ("runs +236 of 40960".into(), "stays of 512".into())
    );
    // What is stamped as KubeVirt's own counts alone.
    let mut genuine = launcher("a", "web", "web-source", "node-1", "512Mi");
    genuine["metadata"]["resourceVersion"] = json!("2");
    genuine["metadata"]["annotations"] = json!({"quota.sluice.dev/created-by": CONTROLLER});
    see(&mut index.launchers, genuine);
    see(&mut index.launchers, launcher("a", "web", "tiny", "node-1", "1Mi"));
    assert_eq!(memory_of(source(&index)).as_deref(), Some("512Mi"));
    let mut forged = launcher("a", "web", "forged", "node-1", "1Mi");
    forged["metadata"]["annotations"] = json!({"quota.sluice.dev/created-by": "tenant"});
    see(&mut index.launchers, forged);
    assert_eq!(memory_of(source(&index)).as_deref(), Some("512Mi"));
    let account = index.account("a", None, NOW);
    assert_eq!(stake(&account, "decoy"), "stays of 40960");
}

#[test]
fn without_a_pod_on_its_node_a_machine_has_no_source() {
    let mut index = scene();
    assert!(lose(&mut index.launchers, launcher("a", "web", "web-source", "node-1", "512Mi")));
    assert_eq!(source(&index), None);
}
