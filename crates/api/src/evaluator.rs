//! `Evaluator`: a rule that says what pods are charged beside, or in place of, what Kubernetes counts, or the policy of a
//! sidecar that says it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::rules;

/// `spec`: which pods, and what they are charged, or by which sidecar.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "quota.sluice.dev",
    version = "v1alpha1",
    kind = "Evaluator",
    plural = "evaluators",
    status = "EvaluatorStatus",
    derive = "PartialEq",
    doc = "A rule in CEL that says what pods are charged beside, or in place of, what Kubernetes counts, or the policy of \
           the sidecar of this name, which says it.",
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(name = "Strategy", type_ = "string", json_path = ".spec.strategy"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Matched", type_ = "integer", json_path = ".status.matched"),
    printcolumn(name = "Held", type_ = "integer", json_path = ".status.held"),
    printcolumn(name = "P99", type_ = "string", json_path = ".status.p99"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::evaluator()))]
pub struct EvaluatorSpec {
    /// Whether its answers are charged.
    #[serde(default)]
    pub mode: EvaluatorMode,
    /// The pods by their labels. Absent: all pods of the namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "rules::selector")]
    pub pod_selector: Option<LabelSelector>,
    /// The namespaces by their labels. Absent: all whose pods are gated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "rules::selector")]
    pub namespace_selector: Option<LabelSelector>,
    /// What becomes of what Kubernetes counts.
    #[serde(default)]
    pub strategy: EvaluatorStrategy,
    /// The least that it must charge a pod that it matches.
    #[serde(default)]
    pub floor: EvaluatorFloor,
    /// The only keys that the sidecar may charge. Absent: any. A rule charges the keys of `cel.charge`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = rules::MAX_KEYS),
        inner(length(min = 1, max = rules::MAX_QUOTA_KEY)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub keys: Option<Vec<String>>,
    /// What becomes of pods that wait when the sidecar has not worked for ten seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<EvaluatorOnFailure>,
    /// Any text. When it is another one, everything is asked again: the way to tell that answers have changed though no
    /// pod has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub revision: Option<String>,
    /// The rule; one of `cel` and `sidecar` is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cel: Option<EvaluatorRule>,
    /// The object is the policy of the sidecar of its name, by which that is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<EvaluatorSidecar>,
    /// Pods with what the rule has to charge them, checked whenever the rule is written. Of a sidecar there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub examples: Vec<EvaluatorExample>,
}

/// Whether answers are charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum EvaluatorMode {
    /// They are charged, and a pod without one is held.
    #[default]
    Enforce,
    /// They are charged nowhere and hold no pod: `status.shadow` says what they would change.
    Shadow,
    /// Nothing is evaluated.
    Off,
}

/// What becomes of what Kubernetes counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum EvaluatorStrategy {
    /// The answer is charged in its place.
    #[default]
    Replace,
    /// Both are charged.
    Retain,
}

/// The least that an answer must charge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum EvaluatorFloor {
    /// More than nothing.
    #[default]
    Positive,
    /// Not less than Kubernetes counts.
    Native,
    /// Nothing: the pod may be free.
    None,
}

/// What becomes of pods that wait when the sidecar has not worked for ten seconds. Absent: what the controller's flag
/// `--evaluator-failure` says. A rule does not fail so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum EvaluatorOnFailure {
    /// They go on waiting.
    Hold,
    /// They are charged what Kubernetes counts, and charged anew when it works again.
    CountNatively,
}

/// A variable of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct EvaluatorVariable {
    /// Its name.
    #[schemars(length(max = 128), regex(pattern = r"^[A-Za-z_][-._A-Za-z0-9]*$"))]
    pub name: String,
    /// Its value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub value: String,
}

/// What a container takes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = rules::of_resources()))]
pub struct EvaluatorResources {
    /// What is kept free for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<EvaluatorAmounts>,
    /// What it may take at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<EvaluatorAmounts>,
}

/// Amounts of processor and memory.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = rules::of_amounts()))]
pub struct EvaluatorAmounts {
    /// Processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Quantity>,
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,
}

/// How a sidecar is asked, and its container, if the `AAQ` names none of this name.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::of_container()))]
pub struct EvaluatorSidecar {
    /// The image of its container, which the operator runs beside the controller under the name of this object. Absent: it
    /// is the sidecar of this name that is there by other means. User, rights, volumes and token are set, and not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^\S+$"))]
    pub image: Option<String>,
    /// Arguments of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), inner(length(max = 512)))]
    pub args: Option<Vec<String>>,
    /// Variables of the container. No Secret and no ConfigMap of the installation's namespace is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 32),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub env: Option<Vec<EvaluatorVariable>>,
    /// What the container requests, and its limits. Without a limit of memory it is what is requested, or else 256Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<EvaluatorResources>,
    /// How long an answer may take, `50ms` to `10s`. Absent: one second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub timeout: Option<String>,
    /// How many questions it has at once. Absent: four.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub concurrency: Option<i64>,
    /// Which other pods it is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_pods: Option<EvaluatorOtherPods>,
}

/// Which other pods a sidecar is sent with each question. Absent: what the controller's flag `--evaluator-other-pods` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum EvaluatorOtherPods {
    /// Those of the namespace: pods are asked about again when another one changes.
    Namespace,
    /// None: it does not look at them.
    None,
}

/// A rule in CEL over the variables `pod` and `native`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct EvaluatorRule {
    /// Whether the rule is about a pod: true or false.
    #[serde(rename = "match")]
    #[schemars(length(min = 1, max = rules::MAX_EXPRESSION))]
    pub matches: String,
    /// By key of a quota: an expression for the amount that such a pod is charged.
    #[schemars(extend(
        "minProperties" = 1,
        "maxProperties" = rules::MAX_CHARGES,
        "additionalProperties" = rules::expression(),
        "x-kubernetes-validations" = [rules::quota_keys()]
    ))]
    pub charge: BTreeMap<String, String>,
}

/// A pod with what the rule has to charge it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct EvaluatorExample {
    /// The pod, as it would be created.
    #[schemars(schema_with = "rules::any_object")]
    pub pod: Map<String, Value>,
    /// By key of a quota. Absent: the rule is not about such a pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = rules::MAX_CHARGES))]
    pub charge: BTreeMap<String, Quantity>,
}

/// `status`: whether the rule or the sidecar is in force, and for how many pods.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvaluatorStatus {
    /// The generation that the rest speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many pods it matches that quotas are about; absent while it is not evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched: Option<i64>,
    /// How many pods are held because it has no answer about them; absent while it is not in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<i64>,
    /// What 99 of 100 of its answers of late did not exceed, such as 1.2ms, by the process that leads. It is brought up to
    /// date when something else of the status changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<String>,
    /// What enforcing it would change now; there while `spec.mode` is `Shadow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow: Option<EvaluatorShadow>,
    /// What is true of the evaluator: `Ready`, whether it is in force, and, where it has examples, `Consistent`,
    /// whether its rule says of them what they say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// What enforcing a rule would change now.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct EvaluatorShadow {
    /// How many pods that wait for quota would be held because the rule has no answer about them.
    pub held: i64,
    /// How much more all pods that run would be charged together, or less, by key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key"]))]
    pub total: Vec<EvaluatorShadowTotal>,
    /// How many amounts of quotas would be others.
    pub differences: i64,
    /// The 16 of these that differ most, in parts of their limits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub largest: Vec<EvaluatorShadowAmount>,
}

/// What all pods that run would be charged more together, or less.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct EvaluatorShadowTotal {
    /// A key of quotas.
    pub key: String,
    /// How much more; below 0: how much less.
    pub change: Quantity,
}

/// An amount of a quota that would be another one.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct EvaluatorShadowAmount {
    /// The namespace of the quota. Absent: it is a cluster quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the quota.
    pub quota: String,
    /// The key.
    pub key: String,
    /// The limit.
    pub hard: Quantity,
    /// What is taken now.
    pub used: Quantity,
    /// What would be taken.
    pub enforced: Quantity,
}
