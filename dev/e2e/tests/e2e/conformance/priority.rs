//! Quotas on pods of some priority classes.

use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::spec::{Amounts, Spec, amounts, cluster, pod};

const QUOTA: &str = "quota-priorityclass";
const ONE: Amounts<'_> = &[("pods", "1")];

/// A quota on priority classes, and pods that come one after the other.
#[derive(Default)]
struct Case<'a> {
    operator: &'a str,
    values: &'a [&'a str],
    hard: Amounts<'a>,
    requests: Amounts<'a>,
    limits: Amounts<'a>,
    /// The class of each pod, and what is used then; `None`: the pod is gated.
    pods: &'a [(&'a str, Option<Amounts<'a>>)],
}

impl Case<'_> {
    async fn passes(&self) {
        classes().await;
        let spec = Spec::new("priority").await;
        let mut expression = json!({ "scopeName": "PriorityClass", "operator": self.operator });
        if !self.values.is_empty() {
            expression["values"] = json!(self.values);
        }
        let selector = json!({ "matchExpressions": [expression] });
        spec.quota(QUOTA, json!({ "hard": amounts(self.hard), "scopeSelector": selector })).await;
        let none: Vec<_> = self.hard.iter().map(|(key, _)| (*key, "0")).collect();
        spec.assert_used(QUOTA, &none).await;
        for (at, (class, used)) in self.pods.iter().enumerate() {
            let name = format!("testpod-{class}-{at}");
            let mut pod = pod(&name, self.requests, self.limits);
            pod["spec"]["priorityClassName"] = json!(class);
            spec.pod(&pod).await;
            let Some(used) = used else {
                spec.until_gated(&name, QUOTA).await;
                // It would get the room of the others.
                spec.delete_pod(&name).await;
                continue;
            };
            spec.until_not_gated(&name).await;
            spec.assert_used(QUOTA, used).await;
        }
        for pod in spec.team.pods.list(&Default::default()).await.unwrap() {
            spec.delete_pod(&pod.metadata.name.unwrap()).await;
        }
        spec.until_used(QUOTA, &none).await;
    }
}

/// They are of the whole cluster; no quota of another test has one of them.
async fn classes() {
    static THERE: OnceCell<()> = OnceCell::const_new();
    let create = || async {
        let class = |number: usize| -> Value {
            json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000,
                "metadata": { "name": format!("pclass{number}") },
            })
        };
        cluster().await.bed.apply_objects((1..=9).map(class)).await.unwrap();
    };
    THERE.get_or_init(create).await;
}

#[tokio::test]
async fn a_pod_of_the_class_is_counted() {
    let pods = &[("pclass1", Some(ONE))];
    Case { operator: "In", values: &["pclass1"], hard: ONE, pods, ..Case::default() }.passes().await;
}

#[tokio::test]
async fn the_second_pod_of_the_class_is_gated() {
    let pods = &[("pclass2", Some(ONE)), ("pclass2", None)];
    Case { operator: "In", values: &["pclass2"], hard: ONE, pods, ..Case::default() }.passes().await;
}

#[tokio::test]
async fn pods_of_another_class_are_neither_counted_nor_gated() {
    let none: Option<Amounts<'_>> = Some(&[("pods", "0")]);
    let pods = &[("pclass3", none), ("pclass3", none)];
    Case { operator: "In", values: &["pclass4"], hard: ONE, pods, ..Case::default() }.passes().await;
}

#[tokio::test]
async fn pods_of_each_of_several_classes_are_counted() {
    let two: Amounts<'_> = &[("pods", "2")];
    let pods = &[("pclass5", Some(ONE)), ("pclass6", Some(two))];
    let values = &["pclass5", "pclass6"];
    Case { operator: "In", values, hard: two, pods, ..Case::default() }.passes().await;
}

#[tokio::test]
async fn a_pod_of_an_excluded_class_is_neither_counted_nor_gated() {
    let none: Amounts<'_> = &[("pods", "0")];
    let pods = &[("pclass7", Some(none))];
    Case { operator: "NotIn", values: &["pclass7"], hard: ONE, pods, ..Case::default() }.passes().await;
}

#[tokio::test]
async fn a_pod_of_any_class_is_counted() {
    let pods = &[("pclass8", Some(ONE))];
    Case { operator: "Exists", values: &[], hard: ONE, pods, ..Case::default() }.passes().await;
}

#[tokio::test]
async fn cpu_and_memory_of_a_pod_of_the_class_are_counted() {
    let (requests, limits) = (&[("cpu", "1"), ("memory", "1Gi")], &[("cpu", "2"), ("memory", "2Gi")]);
    let used: Amounts<'_> = &[
        ("pods", "1"),
        ("requests.cpu", "1"),
        ("requests.memory", "1Gi"),
        ("limits.cpu", "2"),
        ("limits.memory", "2Gi"),
    ];
    let hard = &[
        ("pods", "1"),
        ("requests.cpu", "1"),
        ("requests.memory", "1Gi"),
        ("limits.cpu", "3"),
        ("limits.memory", "3Gi"),
    ];
    let pods = &[("pclass9", Some(used))];
    Case { operator: "In", values: &["pclass9"], hard, requests, limits, pods }.passes().await;
}
