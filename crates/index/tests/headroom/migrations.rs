//! Migrations, their machines and targets, and who creates them.

use super::*;

fn migration(name: &str, version: u32, created: &str, priority: Value, phase: &str, rejected: bool) -> Value {
    let mut meta = meta("a", name, version);
    meta["creationTimestamp"] = json!(created);
    let status = if rejected { "True" } else { "False" };
    json!({
        "metadata": meta,
        "spec": {"vmiName": "web", "priority": priority},
        "status": {
            "phase": phase,
            "conditions": [{"type": "migrationRejectedByResourceQuota", "status": status, "lastProbeTime": null}],
        },
    })
}

#[test]
fn waiting_migrations_are_served_by_priority_then_age() {
    let (old, new) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z");
    let mut index = Cluster::default();
    for (name, created, priority) in [
        ("d", new, json!("no-such")),
        ("c", old, json!(null)),
        ("b", new, json!("user-triggered")),
        ("a", new, json!("system-critical")),
        ("m", old, json!("system-maintenance")),
    ] {
        see(&mut index.vmims, migration(name, 1, created, priority, "Pending", true));
    }
    see(&mut index.vmims, migration("free", 1, old, json!(null), "Pending", false));
    let waiting = |index: &Cluster| -> Vec<String> {
        index.vmims.waiting_in("a").iter().map(|record| record.name.to_string()).collect()
    };
    assert_eq!(waiting(&index), ["a", "b", "m", "c", "d"]);
    // The mark stays on for a while when the target has come.
    see(&mut index.vmims, migration("b", 2, new, json!("user-triggered"), "Scheduling", true));
    see(&mut index.vmims, migration("c", 2, old, json!(null), "Failed", true));
    assert_eq!(waiting(&index), ["a", "m", "d"]);
    assert_eq!(
        see(&mut index.vmims, migration("b", 1, new, json!("user-triggered"), "Pending", true)),
        Change::Same
    );
    assert_eq!(waiting(&index), ["a", "m", "d"], "an older event does not bring it back");
    let found = index.vmims.by_uid(&Uid::parse("a/b")).unwrap();
    assert_eq!((found.phase, found.priority), (Phase::Underway, MigrationPriority::UserTriggered));
    assert!(index.vmims.get("a", "c").unwrap().is_final());
    index.vmims.begin_list();
    see(&mut index.vmims, migration("a", 1, new, json!("system-critical"), "Pending", true));
    assert_eq!(index.vmims.end_list().len(), 5);
    assert_eq!(waiting(&index), ["a"]);
    assert!(index.vmims.by_uid(&Uid::parse("a/b")).is_none());
}

/// As KubeVirt reads it, by Go's `strconv.Atoi`.
#[test]
fn how_long_a_target_may_be_pending_is_any_number_or_the_default() {
    let timeout = |text: Value| {
        let annotations = json!({ "kubevirt.io/migrationPendingPodTimeoutSeconds": text });
        let meta = json!({ "namespace": "a", "name": "m", "uid": "m", "annotations": annotations });
        let wire: VmimWire = serde_json::from_value(json!({ "metadata": meta })).unwrap();
        VmimRecord::read(&wire).pending_timeout
    };
    for (text, expected) in [("60", 60), ("+60", 60), ("0", 0), ("-5", -5), ("9223372036854775807", i64::MAX)]
    {
        assert_eq!(timeout(json!(text)), expected, "{text}");
    }
    for garbage in ["", " 60", "60s", "6e1", "1_000", "0x10", "9223372036854775808"] {
        assert_eq!(timeout(json!(garbage)), 900, "{garbage}");
    }
    assert_eq!(timeout(json!(null)), 900);
}

#[test]
fn the_oldest_kubevirt_counts() {
    let mut index = Cluster::default();
    assert_eq!(index.kubevirt_controller(), None);
    let installation = |namespace: &str, created: &str| {
        json!({
            "metadata": {"namespace": namespace, "name": "kubevirt", "uid": namespace, "creationTimestamp": created},
        })
    };
    see(&mut index.kubevirts, installation("late", "2026-01-02T00:00:00Z"));
    see(&mut index.kubevirts, installation("first", "2026-01-01T00:00:00Z"));
    assert_eq!(
        index.kubevirt_controller().as_deref(),
        Some("system:serviceaccount:first:kubevirt-controller")
    );
}

#[test]
fn targets_are_known_by_uid() {
    let mut index = Cluster::default();
    let pod = |uid: &str, labels: Value| -> PodWire {
        serde_json::from_value(
            json!({"metadata": {"namespace": "a", "name": "p", "uid": uid, "labels": labels}}),
        )
        .unwrap()
    };
    let job = json!({"kubevirt.io/migrationJobUID": "m-1"});
    let (first, second) = (Uid::parse("p-1"), Uid::parse("p-2"));
    assert_eq!(index.launchers.upsert(&pod("p-1", job.clone())), Change::Added);
    assert!(index.launchers.by_uid(&first).is_some());
    assert_eq!(index.launchers.upsert(&pod("p-2", job.clone())), Change::Replaced);
    assert!(index.launchers.by_uid(&first).is_none() && index.launchers.by_uid(&second).is_some());
    assert_eq!(
        index.launchers.of_migration(&Uid::parse("m-1")).map(|pod| &pod.uid).collect::<Vec<_>>(),
        [&second]
    );
    assert!(
        !index.launchers.remove(&pod("p-1", job.clone())),
        "one of the same name has come in the meantime"
    );
    assert!(index.launchers.remove(&pod("p-2", job)));
    assert_eq!(index.launchers.of_migration(&Uid::parse("m-1")).count(), 0);
    assert!(!index.launchers.concerns(&pod("p-3", json!({}))));
    assert_eq!(index.launchers.upsert(&pod("p-3", json!({}))), Change::Same, "no target");
    assert_eq!(
        index.launchers.upsert(&pod("p-4", json!({"kubevirt.io/migrationJobUID": "m-1"}))),
        Change::Added
    );
    assert!(index.launchers.concerns(&pod("p-4", json!({}))), "it was one");
    assert_eq!(index.launchers.upsert(&pod("p-4", json!({}))), Change::Removed);
    assert_eq!(index.launchers.of_migration(&Uid::parse("m-1")).count(), 0);
}

#[test]
fn a_machine_runs_and_ran_where_kubevirt_says() {
    let machine = |status: Value| -> VmiRecord {
        let mut index = Cluster::default();
        see(&mut index.vmis, json!({"metadata": meta("a", "web", 1), "status": status}));
        VmiRecord::clone(index.vmis.get("a", "web").unwrap())
    };
    let running = machine(json!({"phase": "Running", "nodeName": "n"}));
    assert!(running.running && running.last_migration.is_none());
    assert_eq!(running.node.as_deref(), Some("n"));
    let state = json!({"migrationUid": "u", "sourceNode": "m", "endTimestamp": "2026-01-01T00:00:07Z", "failed": true});
    let last = machine(json!({"phase": "Running", "migrationState": state})).last_migration.clone().unwrap();
    assert_eq!((last.uid, last.ended, last.failed), (Uid::parse("u"), Some(1_767_225_607), true));
    assert_eq!(last.source_node.as_deref(), Some("m"));
    assert!(!machine(json!({"phase": "WaitingForSync"})).running);
}
