//! The admission policy that puts migration windows in force.
//!
//! It is installed once and never changes; a window is one small object in its namespace. So a window works without
//! any process of ours, and ends by itself at the second that it names.

use serde_json::{Value, json};
use sluice_api::names;

use crate::render::cluster_metadata;

const API_VERSION: &str = "admissionregistration.k8s.io/v1";

/// CEL: it is about the status of a quota.
const IS_QUOTA: &str = "request.resource.resource == 'resourcequotas'";

/// CEL: the object is created at or after the end of the window. The API server sets both the creation time and the
/// meaning of `now`; a tenant can do neither.
const AFTER_THE_WINDOW: &str = "request.operation == 'CREATE' \
    && timestamp(object.metadata.creationTimestamp) >= timestamp(params.spec.until)";

/// CEL: a pod of a migration, created by KubeVirt's controller.
const TARGET: &str = "request.operation == 'CREATE' && request.resource.resource == 'pods' \
    && has(object.metadata.labels) && 'kubevirt.io/migrationJobUID' in object.metadata.labels \
    && request.userInfo.username == params.spec.creator";

/// CEL: a write of a quota's status leaves its limits as they are, or is by somebody who may open windows, or is after the
/// end of this one. Between raise and admission kube-controller-manager would put the limits back; it tries again a
/// moment later. Whoever writes is entered into `managedFields`, with the API server's time.
const QUOTA_KEEPER: &str = "object.status.?hard == oldObject.status.?hard || authorizer.group('GROUP').resource('WINDOWS').namespace(request.namespace)\
    .check('create').allowed() || object.metadata.managedFields.exists(\
    writer, has(writer.time) && timestamp(writer.time) >= timestamp(params.spec.until))";

/// CEL: what is told to those who have to wait. Proving a window looks for its nonce in here.
const MESSAGE: &str = "'live migration ' + params.spec.migration.name + ' is being let in and needs the free room of \
    this namespace for itself: try again in a moment (window ' + params.spec.nonce + ')'";

/// The ValidatingAdmissionPolicy.
///
/// Fields that the API server would set to a default are written out, so that an object that was edited differs
/// from this one, and one that was not does not.
pub fn window_policy() -> Value {
    let rule = |groups: &str, operation: &str, resource: &str| {
        json!({
            "apiGroups": [groups],
            "apiVersions": ["*"],
            "operations": [operation],
            "resources": [resource],
            "scope": "Namespaced",
        })
    };
    let keeper = QUOTA_KEEPER.replace("GROUP", names::OWN_GROUP).replace("WINDOWS", names::MIGRATION_WINDOWS);
    let mut probe = rule(names::OWN_GROUP, "CREATE", names::MIGRATION_WINDOWS);
    crate::render::set(&mut probe, "resourceNames", json!([names::PROBE_NAME]));
    json!({
        "apiVersion": API_VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": cluster_metadata(names::WINDOW_POLICY),
        "spec": {
            // If the kind of the parameter is missing, all pods of the cluster would be refused otherwise. Nobody
            // relies on the policy unproved: without a denied probe no quota is raised.
            "failurePolicy": "Ignore",
            "paramKind": {
                "apiVersion": format!("{}/{}", names::OWN_GROUP, names::OWN_VERSION),
                "kind": "MigrationWindow",
            },
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": {},
                "objectSelector": {},
                "resourceRules": [
                    rule("", "CREATE", "pods"),
                    // A resize has no time that a tenant could not forge: it waits as long as the window exists.
                    rule("", "UPDATE", "pods/resize"),
                    rule("", "UPDATE", "resourcequotas/status"),
                    probe,
                ],
            },
            "validations": [
                {
                    "expression": format!("{IS_QUOTA} || ({AFTER_THE_WINDOW}) || ({TARGET})"),
                    "message": "a live migration is being let in and needs the free room of this namespace for \
                        itself: try again in a moment",
                    "messageExpression": MESSAGE,
                    "reason": "Forbidden",
                },
                {
                    "expression": format!("!({IS_QUOTA}) || {keeper}"),
                    "message": "a live migration is being let in: the status of this namespace's quotas stays as it \
                        is until its window is closed",
                    "reason": "Forbidden",
                },
            ],
        },
    })
}

/// The ValidatingAdmissionPolicyBinding: the window of the namespace that a request is in, if there is one.
pub fn window_binding() -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": cluster_metadata(names::WINDOW_POLICY),
        "spec": {
            "policyName": names::WINDOW_POLICY,
            "paramRef": { "name": names::WINDOW_NAME, "parameterNotFoundAction": "Allow" },
            "validationActions": ["Deny"],
        },
    })
}
