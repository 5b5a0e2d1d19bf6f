//! A lane of their own for Sluice's requests at the API servers (API Priority and Fairness).
//!
//! A request that waits for an answer of a webhook keeps its place among those that are served at a time. Our own have to
//! pass it, for the answer may wait for what they write.

use serde_json::{Value, json};
use sluice_api::names;

use crate::object::cluster_metadata;
use crate::options::InstallOptions;

const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";
/// Of what all levels share; `workload-low`, in which tenants' controllers are, has 100.
const SHARES: u32 = 30;
/// Before the schema of all service accounts, which has 9000.
const PRECEDENCE: u32 = 1000;

pub(crate) fn objects(options: &InstallOptions) -> [Value; 2] {
    let level = json!({
        "apiVersion": API_VERSION,
        "kind": "PriorityLevelConfiguration",
        "metadata": cluster_metadata(names::FLOW),
        "spec": {
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": SHARES,
                "lendablePercent": 50,
                "limitResponse": {
                    "type": "Queue",
                    "queuing": { "queues": 16, "handSize": 4, "queueLengthLimit": 50 },
                },
            },
        },
    });
    let accounts = [names::CONTROLLER, names::WEBHOOK, names::OPERATOR];
    let subject = |name: &str| {
        json!({
            "kind": "ServiceAccount", "serviceAccount": { "name": name, "namespace": options.namespace },
        })
    };
    let schema = json!({
        "apiVersion": API_VERSION,
        "kind": "FlowSchema",
        "metadata": cluster_metadata(names::FLOW),
        "spec": {
            "priorityLevelConfiguration": { "name": names::FLOW },
            "matchingPrecedence": PRECEDENCE,
            "distinguisherMethod": { "type": "ByUser" },
            "rules": [{
                "subjects": accounts.map(subject),
                "resourceRules": [{
                    "verbs": ["*"],
                    "apiGroups": ["*"],
                    "resources": ["*"],
                    "namespaces": ["*"],
                    "clusterScope": true,
                }],
                "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
            }],
        },
    });
    [level, schema]
}
