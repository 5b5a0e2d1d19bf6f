//! Which targets of migrations are let in without a gate.

use sluice_api::names;
use sluice_manifests::{InstallOptions, admission_policies, mutating};

/// Which targets need no gate depends on how VMs are counted, which a manifest does not know.
/// What refuses says nothing of it.
#[test]
fn targets_are_let_in_by_what_gates_alone_and_where_they_need_no_gate() {
    let username = names::kubevirt_controller_username("kubevirt");
    let knowing = InstallOptions { lets_in_targets_of: Some(username.clone()), ..InstallOptions::default() };
    let of_policy = |options: &InstallOptions, name: &str| {
        admission_policies(options).into_iter().find(|each| each.name == name).expect("a policy").policy
    };
    let gate = |options: &InstallOptions| {
        of_policy(options, names::GATE_POLICY)["spec"]["mutations"][0]["applyConfiguration"]["expression"]
            .to_string()
    };
    let gater = |options: &InstallOptions| mutating(options)["webhooks"][0]["matchConditions"][2].to_string();
    let says = format!("request.userInfo.username == '{username}' && ");
    assert!(gate(&knowing).contains(&says) && gater(&knowing).contains(&says));
    let shipped = InstallOptions::default();
    assert!(![gate(&shipped), gater(&shipped)].concat().contains("migrationJobUID"));
    for other in admission_policies(&knowing).iter().filter(|each| each.name != names::GATE_POLICY) {
        assert_eq!(other.policy, of_policy(&InstallOptions::default(), other.name), "{}", other.name);
    }
    let last_word =
        of_policy(&knowing, names::GATED_POLICY)["spec"]["validations"][2]["expression"].to_string();
    assert!(last_word.contains("migrationJobUID") && last_word.contains("authorizer"), "{last_word}");
}
