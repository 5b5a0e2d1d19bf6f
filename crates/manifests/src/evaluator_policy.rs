//! The admission policy that keeps containers of `Evaluator`s for those who may run programs beside the controller: who may
//! write rules may not do that by this alone.

use serde_json::json;
use sluice_api::names;

use crate::object::set_in;
use crate::policy::{AdmissionPolicy, VALIDATING, binding, policy, rule};

/// All of an object that has a container, or had one, is of those who may `run` evaluators: what it is asked, whether, and
/// its end too. All other objects are of those who may write them, and so are labels and annotations of these.
pub(crate) fn evaluators() -> AdmissionPolicy {
    let has_container =
        |object: &str| format!("({object} != null && {object}.?spec.?sidecar.?image.hasValue())");
    let expression = format!(
        "!({} || {}) || (request.operation == 'UPDATE' && object.spec == oldObject.spec) \
         || authorizer.group('{}').resource('{}').check('{}').allowed()",
        has_container("object"),
        has_container("oldObject"),
        names::OWN_GROUP,
        names::EVALUATORS,
        names::RUN_VERB
    );
    let message = format!(
        "spec.sidecar.image: it runs a container beside the controller: have an administrator write or delete it, who has \
         the verb {} on {}.{}",
        names::RUN_VERB,
        names::EVALUATORS,
        names::OWN_GROUP
    );
    let operations = ["CREATE", "UPDATE", "DELETE"];
    let rules = [rule(names::OWN_GROUP, &operations, &[names::EVALUATORS], "Cluster")];
    let mut policy = policy(VALIDATING, names::EVALUATOR_POLICY, "Fail", &rules);
    let validation = json!({ "expression": expression, "message": message, "reason": "Forbidden" });
    set_in(&mut policy, "spec", "validations", json!([validation]));
    let binding = binding(VALIDATING, names::EVALUATOR_POLICY);
    AdmissionPolicy { name: names::EVALUATOR_POLICY, mutates: false, policy, binding }
}
