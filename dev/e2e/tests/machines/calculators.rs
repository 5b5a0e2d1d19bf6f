//! What each calculator counts of one VM, and that it may be another one at any time.

use std::time::{Duration, Instant};

use serde_json::json;
use sluice_e2e::tenant::used;

use crate::context::Counting;

const IN_FORCE: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn another_calculator_is_in_force_without_a_restart() {
    let counting = Counting::by("DedicatedVirtualResources").await;
    let team = counting.team("modes").await;
    let keys = ["requests.cpu", "requests.memory", "requests.cpu/vmi", "requests.memory/vmi", "pods"];
    team.quota("all", &keys.map(|key| (key, "100Gi"))).await;
    let vm = team.tenant.kubevirt.vm(team.tenant.name(), "web").memory("1Gi").sockets(2);
    vm.start().await.unwrap();
    // As Kubernetes counts its pod.
    let hard = json!({ "requests.cpu": "100Gi", "requests.memory": "100Gi" });
    team.tenant.quota("native", hard).await;
    let counted = |quota: &_| used(quota)["requests.cpu"].0 != "0";
    let native = used(&team.tenant.until_quota("native", "its pod to be counted", counted).await);
    let [cpu, memory] = ["requests.cpu", "requests.memory"].map(|key| native[key].0.as_str());
    let of = |amounts| -> Vec<_> { keys.into_iter().zip::<[&str; 5]>(amounts).collect() };
    team.until_used("all", &of(["0", "0", "2", "1Gi", "0"])).await;
    let mut quickest = Duration::MAX;
    for (calculator, amounts) in [
        ("VirtualResources", ["2", "1Gi", "0", "0", "1"]),
        ("VmiPodUsage", [cpu, memory, "0", "0", "1"]),
        ("GuestEffectiveResources", ["200m", "1Gi", "0", "0", "1"]),
        ("IgnoreVmiCalculator", [cpu, memory, "0", "0", "1"]),
        ("DedicatedVirtualResources", ["0", "0", "2", "1Gi", "0"]),
    ] {
        let from = Instant::now();
        counting.switch(calculator).await;
        team.until_used("all", &of(amounts)).await;
        quickest = quickest.min(from.elapsed());
    }
    println!("in force after {quickest:?}");
    // Other tests run beside this one: the quickest counts.
    assert!(quickest <= IN_FORCE, "{quickest:?}");
}
