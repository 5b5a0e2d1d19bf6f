//! How long things take: `cargo run --release -p sluice-rules --example figures`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_engine::{Charge, Quantity, Resource};
use sluice_rules::Rule;

const RUNS: usize = 20_000;

fn charge(amount: &str) -> BTreeMap<String, String> {
    [("example.com/license".to_owned(), amount.to_owned())].into()
}

fn pod(containers: usize) -> Value {
    let container = |number: usize| {
        json!({
            "name": format!("c{number}"),
            "image": if number == 1 { "registry.example/oracle:19" } else { "registry.example/web/frontend:1.2.3" },
            "env": (0..10).map(|n| json!({ "name": format!("NAME_{n}"), "value": "value" })).collect::<Vec<_>>(),
            "resources": { "requests": { "cpu": "1500m", "memory": "2Gi", "nvidia.com/gpu": "1" } },
        })
    };
    json!({
        "metadata": { "name": "db-0", "labels": { "app": "db", "gpu": "a100" } },
        "spec": { "runtimeClassName": "kata", "containers": (0..containers).map(container).collect::<Vec<_>>() },
    })
}

fn native() -> Charge {
    Charge::from_pairs(
        [("cpu", "4500m"), ("memory", "6Gi"), ("pods", "1")].map(|(key, amount)| {
            (Resource::from_quota_key(key), Quantity::parse(amount).expect(amount).into())
        }),
    )
}

fn print(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |part: usize| times[times.len() * part / 100];
    println!("{what:<40} p50 {:>10?} p99 {:>10?}", at(50), at(99));
}

fn time(runs: usize, mut run: impl FnMut()) -> Vec<Duration> {
    (0..runs)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .collect()
}

fn rules() {
    let native = native();
    for (what, matches, amount) in [
        (
            "licence by image",
            "pod.spec.containers.exists(c, c.image.startsWith('registry.example/oracle'))",
            "native['requests.cpu'].ceil()",
        ),
        (
            "GPUs of labelled pods",
            "'gpu' in pod.metadata.labels && pod.metadata.labels.gpu == 'a100'",
            "pod.spec.containers.map(c, has(c.resources.requests), quantity(c.resources.requests['nvidia.com/gpu'])).sum()",
        ),
        (
            "flat fee by runtimeClass",
            "has(pod.spec.runtimeClassName) && pod.spec.runtimeClassName == 'kata'",
            "1",
        ),
        ("pattern", "pod.spec.containers.exists(c, c.image.matches(r'/oracle:1[0-9]$'))", "1"),
    ] {
        print(
            &format!("{what}: compile"),
            time(500, || drop(black_box(Rule::compile(matches, &charge(amount))))),
        );
        let rule = Rule::compile(matches, &charge(amount)).expect(what);
        for containers in [1, 3, 10] {
            let pod = pod(containers);
            let (_, spent) = rule.evaluate_counted(&pod, &native);
            let times = time(RUNS, || drop(black_box(rule.evaluate(&pod, &native))));
            print(&format!("{what}: {containers} containers, {} steps", spent.steps), times);
        }
    }
}

fn bombs() {
    let gigabyte = format!("{}1", "!!(!!!!!!(!!!!(((((!!(!!(!!!!((".repeat(4));
    let within = format!("{}1{}", "(".repeat(32), ")".repeat(32));
    let longest = "1 in [((((((((1))))))))] || ".repeat(72) + "true";
    for (what, source) in [
        ("100,000 !", "!".repeat(100_000)),
        ("32 brackets", within),
        ("gigabyte", gigabyte),
        ("longest", longest),
        ("512 lists", format!("[{}1]", "[1],".repeat(500))),
    ] {
        print(
            &format!("{what}: compile"),
            time(200, || drop(black_box(Rule::compile(&source, &charge("1"))))),
        );
    }
    let pod = json!({
        "metadata": { "annotations": { "large": "a".repeat(256 * 1024) } },
        "spec": { "containers": pod(10_000)["spec"]["containers"].clone() },
    });
    for source in [
        "pod.spec.containers.all(c, pod.spec.containers.all(d, true))",
        "pod.spec.containers.map(c, pod.spec.containers) == []",
        "pod.spec.containers == pod.spec.containers",
        "pod.spec.containers.map(c, c.image + c.image + c.image).size() > 0",
        "[1,2,3].all(x, pod.metadata.annotations.large.contains('aaaaaaaaaaaaaaaab') || true)",
        "pod.metadata.annotations.large.matches('(a*)*b')",
        "pod.spec.containers.all(c, !c.image.matches(r'^(\\w+/)+\\w+-\\w+$'))",
    ] {
        let rule = Rule::compile(source, &charge("1")).unwrap_or_else(|error| panic!("{source}: {error}"));
        let (outcome, spent) = rule.evaluate_counted(&pod, &Charge::default());
        print(
            &format!("{source}: {spent:?}"),
            time(100, || drop(black_box(rule.evaluate(&pod, &Charge::default())))),
        );
        println!("    {}", outcome.map_or_else(|error| error.to_string(), |outcome| format!("{outcome:?}")));
    }
}

fn main() {
    rules();
    bombs();
}
