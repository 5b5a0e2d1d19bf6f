//! What pods and containers may do: Pod Security `restricted`, and on OpenShift the constraints `restricted-v2`.

use serde_json::{Value, json};

use crate::object::set;
use crate::options::Platform;

/// User and group of the containers; the image has an entry for them.
const NON_ROOT: u32 = 65532;

pub(crate) fn of_pod(platform: Platform) -> Value {
    let mut context = json!({
        "runAsNonRoot": true,
        "seccompProfile": { "type": "RuntimeDefault" },
    });
    if platform == Platform::Generic {
        for field in ["runAsUser", "runAsGroup", "fsGroup"] {
            set(&mut context, field, json!(NON_ROOT));
        }
    }
    context
}

pub(crate) fn of_container() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "capabilities": { "drop": ["ALL"] },
        "readOnlyRootFilesystem": true,
    })
}

/// The Pod Security level of the namespace: a pod with the network of its node fits none but the widest.
pub(crate) const fn level(host_network: bool) -> &'static str {
    if host_network { "privileged" } else { "restricted" }
}
