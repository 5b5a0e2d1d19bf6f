//! The admission policy that keeps tenants who may create namespaces from the names of those whose pods are never gated
//! (`--exempt-namespaces`), of which many exist on other clusters only.
//!
//! Such a namespace is created by those who may `exempt` it: administrators, whose rights have all verbs, and the API server
//! itself. No role that is made for tenants has that verb. Operators of the platform create such namespaces too, often with
//! no right but to create them: their accounts live in exempt namespaces themselves, where tenants have none. OpenShift
//! creates what tenants request as an administrator, and notes who has requested it. Namespaces that exist are let be.

use serde_json::json;
use sluice_api::names;

use crate::expressions::exempt;
use crate::object::set_in;
use crate::options::InstallOptions;
use crate::policy::{AdmissionPolicy, VALIDATING, binding, policy, rule};

/// Who has asked OpenShift for the namespace (`ProjectRequester` in `github.com/openshift/api/annotations`).
const REQUESTER: &str = "openshift.io/requester";
/// The namespace of the service account that makes the request, behind a test that it is one.
const OWN_NAMESPACE: &str = "request.userInfo.username.split(':')[2]";

/// A namespace of an exempt name is created by those who may exempt it.
pub(crate) fn exempt_names(options: &InstallOptions) -> AdmissionPolicy {
    let name = "object.metadata.name";
    let expression = format!(
        "!{} || (!('{REQUESTER}' in object.metadata.?annotations.orValue({{}})) \
         && ((request.userInfo.username.startsWith('system:serviceaccount:') && {}) \
         || authorizer.group('').resource('namespaces').name({name}).check('{}').allowed()))",
        exempt(options, name),
        exempt(options, OWN_NAMESPACE),
        names::EXEMPT_VERB
    );
    let message = format!(
        "pods of a namespace of this name are never gated (--exempt-namespaces of Sluice): choose another name, or have an \
         administrator create it or grant the verb {} on namespaces",
        names::EXEMPT_VERB
    );
    let rules = [rule("", &["CREATE"], &["namespaces"], "Cluster")];
    let mut policy = policy(VALIDATING, names::EXEMPT_NAMES_POLICY, "Fail", &rules);
    let validation = json!({ "expression": expression, "message": message, "reason": "Forbidden" });
    set_in(&mut policy, "spec", "validations", json!([validation]));
    let binding = binding(VALIDATING, names::EXEMPT_NAMES_POLICY);
    AdmissionPolicy { name: names::EXEMPT_NAMES_POLICY, mutates: false, policy, binding }
}
