//! A target may take more than its source only by what KubeVirt itself adds.

use serde_json::{Value, json};
use sluice_engine::headroom::{Source, growth};
use sluice_engine::{Amount, Resource};

use super::*;

const OVERHEAD: &str = "281Mi";

fn container(name: &str, memory: &str, more: Value) -> Value {
    let mut requests = json!({ "memory": memory, "cpu": "100m" });
    json_merge(&mut requests, more);
    json!({ "name": name, "resources": { "requests": requests } })
}

fn json_merge(object: &mut Value, more: Value) {
    let (Value::Object(object), Value::Object(more)) = (object, more) else { panic!("two objects") };
    object.extend(more);
}

fn launcher(containers: &[Value], inits: &[Value]) -> Value {
    json!({ "spec": { "containers": containers, "initContainers": inits } })
}

fn source(pod: &Value) -> Source {
    let input = pods::pod(pod);
    let names = input.containers.iter().chain(&input.init_containers).map(|it| it.name.into());
    Source { containers: names.collect(), charge: need_of(&input, RULES).charge }
}

/// What the target grows by, as `resource=amount`.
fn grown(target: &Value, of: &Source) -> Vec<String> {
    let overhead = Amount::from(quantity(OVERHEAD));
    let charge = growth(&pods::pod(target), of, overhead, RULES);
    charge
        .iter()
        .map(|(resource, amount)| format!("{}={}", resource.key(), amount.quantity(Format::BinarySi)))
        .collect()
}

fn plain() -> Value {
    launcher(
        &[container("compute", "537Mi", json!({})), container("guest-console-log", "35Mi", json!({}))],
        &[],
    )
}

#[test]
fn kubevirts_overhead_is_no_growth_and_everything_above_it_is() {
    let of = source(&plain());
    assert_eq!(grown(&plain(), &of), [""; 0]);
    let ratio = launcher(
        &[container("compute", "818Mi", json!({})), container("guest-console-log", "35Mi", json!({}))],
        &[],
    );
    assert_eq!(grown(&ratio, &of), [""; 0], "by 281Mi");
    let hot_plug = launcher(
        &[container("compute", "2320Mi", json!({})), container("guest-console-log", "35Mi", json!({}))],
        &[],
    );
    assert_eq!(grown(&hot_plug, &of), ["memory=1502Mi"]);
    let cpu = launcher(
        &[
            container("compute", "537Mi", json!({"cpu": "300m"})),
            container("guest-console-log", "35Mi", json!({})),
        ],
        &[],
    );
    assert_eq!(grown(&cpu, &of), ["cpu=200m"]);
}

/// KubeVirt 1.6 made an init container of it.
#[test]
fn a_container_may_become_an_init_container() {
    let mut log = container("guest-console-log", "35Mi", json!({}));
    json_merge(&mut log, json!({ "restartPolicy": "Always" }));
    let newer = launcher(&[container("compute", "553Mi", json!({}))], &[log]);
    assert_eq!(grown(&newer, &source(&plain())), [""; 0]);
}

#[test]
fn a_container_or_a_resource_that_the_source_has_not_is_growth_as_a_whole() {
    let of = source(&plain());
    let mut injected = plain();
    injected["spec"]["containers"].as_array_mut().unwrap().push(container("istio-proxy", "100Mi", json!({})));
    assert_eq!(grown(&injected, &of), ["cpu=100m", "memory=100Mi"], "less than the overhead, and none of it");
    let nic = json!({ "example.com/sriov": "1" });
    let plugged = launcher(
        &[container("compute", "537Mi", nic), container("guest-console-log", "35Mi", json!({}))],
        &[],
    );
    assert_eq!(grown(&plugged, &of), ["requests.example.com/sriov=1"]);
}

#[test]
fn without_a_source_everything_is_growth() {
    let all = grown(&plain(), &Source::default());
    assert_eq!(all, ["pods=1", "count/pods=1", "cpu=200m", "memory=572Mi"]);
}

/// A pod beside the source that claims to be one makes it smaller at most.
#[test]
fn of_several_sources_the_least_counts() {
    let decoy = launcher(&[container("compute", "40Gi", json!({}))], &[]);
    let of = Source::least([source(&plain()), source(&decoy)]).unwrap();
    assert_eq!(&*of.containers, [Box::from("compute")]);
    assert_eq!(of.charge.get(&Resource::Memory), Some(quantity("572Mi").into()));
    assert_eq!(Source::least([]), None);
}

#[test]
fn what_grows_has_to_fit_the_spec_once_the_source_is_gone() {
    let memory = "requests.memory";
    let grows = |target: &str, source: &str, by: &str| Need {
        source: need(&[(memory, source)]).charge,
        growth: need(&[(memory, by)]).charge,
        ..need(&[(memory, target)])
    };
    let full = |used: &str| [quota("rq", &[(memory, "700Mi")], &[(memory, used)])];
    let said = refusals(plan(&grows("2320Mi", "537Mi", "1502Mi"), &full("537Mi"), &unlimited()));
    assert_eq!(
        said,
        [
            "quota rq does not allow the virtual machine to grow by requests.memory=1502Mi (then used 2320Mi, hard 700Mi): what it \
          takes more than its present pod, beside KubeVirt's own overhead, has to fit spec.hard"
        ]
    );
    // It fits, for as long as both pods are there it does not.
    assert!(matches!(plan(&grows("700Mi", "537Mi", "100Mi"), &full("537Mi"), &unlimited()), Plan::Raise(_)));
    // Overhead alone does not have to.
    assert!(matches!(plan(&need(&[(memory, "818Mi")]), &full("537Mi"), &unlimited()), Plan::Raise(_)));
}
