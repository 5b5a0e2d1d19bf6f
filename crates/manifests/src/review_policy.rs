//! The admission policy that lets no QuotaReview be stored: it is answered at admission, and who may view a namespace may
//! ask.

use serde_json::json;
use sluice_api::names;

use crate::object::set_in;
use crate::policy::{AdmissionPolicy, VALIDATING, binding, policy, rule};

const STORED: &str = "a QuotaReview is answered and never stored: create it in a dry run (dryRun=All; with kubectl \
    --dry-run=server -o yaml)";

/// QuotaReviews are created in dry runs alone. Nobody has the right to update one, and where one is there all the same, as
/// before there was a policy, it can be changed, so that what keeps it can be taken away.
pub(crate) fn review() -> AdmissionPolicy {
    let rules = [rule(names::OWN_GROUP, &["CREATE"], &[names::QUOTA_REVIEWS], "Namespaced")];
    let mut policy = policy(VALIDATING, names::REVIEW_POLICY, "Fail", &rules);
    let validation =
        json!({ "expression": "request.?dryRun.orValue(false)", "message": STORED, "reason": "Forbidden" });
    set_in(&mut policy, "spec", "validations", json!([validation]));
    let binding = binding(VALIDATING, names::REVIEW_POLICY);
    AdmissionPolicy { name: names::REVIEW_POLICY, mutates: false, policy, binding }
}
