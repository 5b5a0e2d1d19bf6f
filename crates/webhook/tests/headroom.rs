//! What a review must say for room to be made.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use rstest::rstest;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_engine::ChargeRules;
use sluice_engine::headroom::{Allowance, Source};
use sluice_index::{Cluster, VmiRecord, VmimRecord, Watched as _};
use sluice_webhook::Review;
use sluice_webhook::endpoints::headroom::{Claim, claim};

const CONTROLLER: &str = "system:serviceaccount:kubevirt:kubevirt-controller";

fn review(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "r", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE",
            "namespace": "team", "name": "virt-launcher-web-x", "dryRun": false, "userInfo": {"username": CONTROLLER},
            "object": {
                "metadata": {
                    "name": "virt-launcher-web-x", "namespace": "team", "uid": "7b0c6f7e-6a0e-4c9b-9d27-0d1f6f0f7a11",
                    "labels": {names::MIGRATION_JOB_LABEL: "0e5b1c52-51b5-4a1c-8a7d-9c1f2ad8a001"},
                    "annotations": {names::MIGRATION_NAME_ANNOTATION: "mig"},
                },
                "spec": {"containers": [{"name": "compute", "resources": {"requests": {"memory": "1Gi"}}}]},
            },
        },
    });
    change(&mut review);
    review.to_string().into_bytes()
}

fn claimed(change: impl FnOnce(&mut Value)) -> Result<Claim, &'static str> {
    claim(&Review::decode(&review(change)).unwrap(), Some(CONTROLLER))
}

fn migration(change: impl FnOnce(&mut Value)) -> VmimRecord {
    let mut wire = json!({
        "metadata": {"name": "mig", "namespace": "team", "uid": "0e5b1c52-51b5-4a1c-8a7d-9c1f2ad8a001"},
        "spec": {"vmiName": "web"}, "status": {"phase": "Pending"},
    });
    change(&mut wire);
    VmimRecord::read(&serde_json::from_value(wire).unwrap())
}

fn machine(status: Value) -> VmiRecord {
    let wire = json!({"metadata": {"name": "web", "namespace": "team", "uid": "v"}, "status": status});
    let mut index = Cluster::default();
    index.vmis.upsert(&serde_json::from_value(wire).unwrap());
    VmiRecord::clone(index.vmis.get("team", "web").unwrap())
}

fn running() -> VmiRecord {
    machine(json!({"phase": "Running", "nodeName": "node-1"}))
}

#[test]
fn a_target_of_a_migration_is_one() {
    let claim = claimed(|_| ()).unwrap();
    assert_eq!(claim.check(Some(&migration(|_| ())), Some(&running())), Ok(()));
    let need = claim.need(ChargeRules::for_minor(36), &Source::default(), Allowance::default()).unwrap();
    let memory = need.charge.get(&sluice_engine::Resource::Memory).unwrap();
    assert_eq!(memory.quantity(sluice_engine::Format::BinarySi).to_string(), "1Gi");
}

#[test]
fn only_a_machine_that_runs_here_is_moved() {
    let claim = claimed(|_| ()).unwrap();
    let nowhere = Err("no machine that runs in the namespace is moved");
    assert_eq!(claim.check(Some(&migration(|_| ())), None), nowhere);
    for status in [json!({"phase": "Scheduled", "nodeName": "n"}), json!({"phase": "Running"}), json!({})] {
        assert_eq!(claim.check(Some(&migration(|_| ())), Some(&machine(status))), nowhere);
    }
    let receiving = migration(|wire| wire["spec"]["receive"] = json!({"migrationID": "x"}));
    let why = claim.check(Some(&receiving), Some(&running())).unwrap_err();
    assert!(why.starts_with("the machine comes from elsewhere"), "{why}");
}

#[rstest]
#[case::a_tenant("/request/userInfo/username", json!("jane"), "not created by KubeVirt's controller")]
#[case::a_service_account_of_that_name(
    "/request/userInfo/username", json!("system:serviceaccount:team:kubevirt-controller"),
    "not created by KubeVirt's controller"
)]
#[case::a_dry_run("/request/dryRun", json!(true), "a dry run takes nothing")]
#[case::an_update("/request/operation", json!("UPDATE"), "not the creation of a pod")]
#[case::another_kind("/request/kind/kind", json!("Binding"), "not the creation of a pod")]
#[case::no_object("/request/object", json!(null), "the request has no object")]
#[case::no_label("/request/object/metadata/labels", json!({}), "not a pod of a migration")]
#[case::no_labels("/request/object/metadata/labels", json!(null), "not a pod of a migration")]
#[case::no_metadata("/request/object/metadata", json!(7), "not a pod of a migration")]
#[case::an_absurd_spec("/request/object/spec", json!([1, 2]), "not a pod of a migration")]
fn no_room_is_made_for(#[case] field: &str, #[case] value: Value, #[case] why: &str) {
    let claimed = claimed(|review| *review.pointer_mut(field).unwrap() = value);
    assert_eq!(claimed.unwrap_err(), why);
}

#[test]
fn nobody_is_trusted_before_kubevirt_is_known() {
    let bytes = review(|_| ());
    assert!(claim(&Review::decode(&bytes).unwrap(), None).is_err());
}

#[rstest]
#[case::another_uid(
    "/metadata/uid",
    json!("0e5b1c52-51b5-4a1c-8a7d-9c1f2ad8a002"),
    "there is no such migration in the namespace",
)]
#[case::another_namespace("/metadata/namespace", json!("other"), "there is no such migration in the namespace")]
#[case::a_success("/status/phase", json!("Succeeded"), "the migration is over")]
#[case::a_failure("/status/phase", json!("Failed"), "the migration is over")]
fn no_room_is_made_without_a_true_migration(#[case] field: &str, #[case] value: Value, #[case] why: &str) {
    let migration = migration(|wire| *wire.pointer_mut(field).unwrap() = value);
    assert_eq!(claimed(|_| ()).unwrap().check(Some(&migration), Some(&running())), Err(why));
    let none = claimed(|_| ()).unwrap().check(None, Some(&running()));
    assert_eq!(none, Err("there is no such migration in the namespace"));
}

const MACHINE: &str = "5b1f9f0a-1b1c-4b76-9a52-1f4ad5b2c001";
const OTHER: &str = "5b1f9f0a-1b1c-4b76-9a52-1f4ad5b2c002";

/// A target without a gate is let in as one of its own machine alone, by reference and by label.
#[rstest]
#[case::of_its_machine(MACHINE, MACHINE, json!({}), Ok(()))]
#[case::of_another_machine(OTHER, OTHER, json!({}), Err("the migration is of another machine"))]
#[case::labelled_for_another_machine(MACHINE, OTHER, json!({}), Err("the migration is of another machine"))]
#[case::owned_by_another_machine(OTHER, MACHINE, json!({}), Err("the migration is of another machine"))]
#[case::of_a_migration_that_is_over(
    MACHINE,
    MACHINE,
    json!({"status": {"phase": "Succeeded"}}),
    Err("the migration is over"),
)]
#[case::of_another_machines_migration(
    MACHINE,
    MACHINE,
    json!({"spec": {"vmiName": "db"}}),
    Err("the migration is of another machine"),
)]
#[case::of_another_namespaces_migration(
    MACHINE, MACHINE, json!({"metadata": {"namespace": "other"}}), Err("there is no such migration in the namespace")
)]
#[case::from_elsewhere(
    MACHINE,
    MACHINE,
    json!({"spec": {"receive": {}}}),
    Err("the machine comes from elsewhere: the quota judges it like any other"),
)]
fn a_target_is_one_of_its_own_machine(
    #[case] owner: &str,
    #[case] label: &str,
    #[case] changes: Value,
    #[case] expected: Result<(), &'static str>,
) {
    let claim = claimed(|review| {
        let metadata = review.pointer_mut("/request/object/metadata").unwrap();
        metadata["labels"][names::CREATED_BY_LABEL] = json!(label);
        metadata["ownerReferences"] = json!([{
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "web",
            "uid": owner, "controller": true,
        }]);
    });
    let migration = migration(|wire| json_patch::merge(wire, &changes));
    let wire = json!({"metadata": {"name": "web", "namespace": "team", "uid": MACHINE}, "status": {"phase": "Running"}});
    let machine = VmiRecord::read(&serde_json::from_value(wire).unwrap());
    let claim = claim.unwrap();
    assert_eq!(claim.check_owner(Some(&migration), Some(&machine)), expected);
    assert_eq!(claim.check_owner(None, Some(&machine)), Err("there is no such migration in the namespace"));
    assert!(claim.check_owner(Some(&migration), None).is_err());
}

#[test]
fn an_amount_that_cannot_be_read_makes_no_room() {
    let claim = claimed(|review| {
        *review.pointer_mut("/request/object/spec/containers/0/resources/requests/memory").unwrap() =
            json!("1e2147483648");
    });
    let need = claim.unwrap().need(ChargeRules::for_minor(36), &Source::default(), Allowance::default());
    assert_eq!(need, Err("a quantity of the pod cannot be read"));
}
