//! The list of all admission policies.

use crate::options::{Gating, InstallOptions};
use crate::policy::AdmissionPolicy;
use crate::{account_policy, exempt_policy, gate_policies, headroom_policies, pause_policy, vmi_policy};

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
        gate_policies::guard(options),
        gate_policies::stamp(),
        gate_policies::gate(options),
        gate_policies::gated(options),
    ];
    all.into_iter().filter(|each| !each.mutates || options.gating == Gating::Policy).collect()
}
