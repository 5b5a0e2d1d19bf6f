//! What admission policies have in common.

use serde_json::{Value, json};
use sluice_api::names;

use crate::object::{cluster_metadata, set, set_in};

const API_VERSION: &str = "admissionregistration.k8s.io/v1";

/// An admission policy with its one binding, which has its name.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionPolicy {
    /// Of both objects.
    pub name: &'static str,
    /// Whether it changes objects (Kubernetes 1.36); else it judges them.
    pub mutates: bool,
    pub policy: Value,
    pub binding: Value,
}

impl AdmissionPolicy {
    /// Whether it holds for the namespaces that the `AAQ` selects.
    #[must_use]
    pub fn follows_selector(&self) -> bool {
        [names::GATE_POLICY, names::GATED_POLICY].contains(&self.name)
    }
}

/// One resource that a policy is about.
pub(crate) fn rule(group: &str, operations: &[&str], resources: &[&str], scope: &str) -> Value {
    json!({
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": operations,
        "resources": resources,
        "scope": scope,
    })
}

/// Fields that the API server would set to a default are written out, so that an object that was edited differs from this
/// one, and one that was not does not.
pub(crate) fn policy(kind: &str, name: &str, failure_policy: &str, rules: &[Value]) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": cluster_metadata(name),
        "spec": {
            "failurePolicy": failure_policy,
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": {},
                "objectSelector": {},
                "resourceRules": rules,
            },
        },
    })
}

/// The validations of a policy that judges the requests for which all of `about` holds, and the match condition that one of
/// them does not hold.
///
/// So a request that breaks no rule is looked at once. An API server makes the objects that CEL reads anew for the match
/// conditions, the validations, the messages and the audit annotations (`Validate` in
/// `k8s.io/apiserver/pkg/admission/plugin/policy/validating/validator.go`), and for a pod that costs much more than to
/// evaluate the expressions. It is one condition because all that there are are evaluated, whatever the first one says; and
/// because conditions have no variables, neither have the validations.
pub(crate) fn judge(policy: &mut Value, about: &[String], validations: Vec<Value>) {
    let expressions = validations.iter().filter_map(|it| it["expression"].as_str());
    let broken = expressions.map(|it| format!("!({it})")).collect::<Vec<_>>().join(" || ");
    let about = about.iter().map(|it| format!("({it}) && ")).collect::<String>();
    let condition = json!({ "name": "breaks-a-rule", "expression": format!("{about}({broken})") });
    set_in(policy, "spec", "matchConditions", json!([condition]));
    set_in(policy, "spec", "validations", json!(validations));
}

pub(crate) fn binding(kind: &str, name: &str) -> Value {
    let mut spec = json!({ "policyName": name });
    if kind == VALIDATING {
        set(&mut spec, "validationActions", json!(["Deny"]));
    }
    json!({
        "apiVersion": API_VERSION,
        "kind": format!("{kind}Binding"),
        "metadata": cluster_metadata(name),
        "spec": spec,
    })
}

/// Kind of a policy that judges.
pub(crate) const VALIDATING: &str = "ValidatingAdmissionPolicy";
/// Kind of a policy that changes.
pub(crate) const MUTATING: &str = "MutatingAdmissionPolicy";
