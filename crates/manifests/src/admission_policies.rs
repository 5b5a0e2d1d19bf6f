//! The list of all admission policies.

use sluice_api::names;

use crate::options::{Gating, InstallOptions};
use crate::policy::AdmissionPolicy;
use crate::{
    account_policy, evaluator_policy, exempt_policy, gate_policies, headroom_policies, pause_policy,
    review_policy, vmi_policy,
};

/// Policies that gate nothing and ask no process: they guard gates, stamps and who sets what. Where the `AAQ` installs they
/// are in force without one too, for a stamp that was forged meanwhile would be believed later.
const STANDING: [&str; 7] = [
    names::GUARD_POLICY,
    names::STAMP_POLICY,
    names::VMI_STATUS_POLICY,
    names::EXEMPT_NAMES_POLICY,
    names::PAUSE_POLICY,
    names::REVIEW_POLICY,
    names::EVALUATOR_POLICY,
];

/// Whether the policy of this name, and its binding, is in force as long as the operator is there, whatever installs.
#[must_use]
pub fn is_standing(name: &str) -> bool {
    STANDING.contains(&name)
}

/// All admission policies of an installation, in the order in which they are put in force: what only guards, what gates,
/// what refuses what is not gated.
#[must_use]
pub fn admission_policies(options: &InstallOptions) -> Vec<AdmissionPolicy> {
    let all = vec![
        headroom_policies::charge(options),
        headroom_policies::lock(),
        account_policy::accounts(options),
        vmi_policy::vmi_status(),
        exempt_policy::exempt_names(options),
        pause_policy::pause(),
        review_policy::review(),
        evaluator_policy::evaluators(),
        gate_policies::guard(options),
        gate_policies::stamp(),
        gate_policies::gate(options),
        gate_policies::gated(options),
    ];
    all.into_iter().filter(|each| !each.mutates || options.gating == Gating::Policy).collect()
}
