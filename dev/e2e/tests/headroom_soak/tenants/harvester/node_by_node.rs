//! A and F in one evacuation: a node with nine machines is drained, then the next one with twelve, while Rancher's agent
//! starts again and again and a limit is below the usage.

use futures::future::join_all;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_e2e::audit::assert_none_rejected;
use sluice_e2e::simulated_rancher::Validator;
use sluice_e2e::tenant::{Tenant, hard};
use sluice_testbed::kubevirt::{Migration, Vm, VmBuilder};

use super::four_cores;
use crate::tenants::scene::{Scene, amounts, other_pod};

const QUOTA: &str = "default-xt5b2";
const USED: [(&str, &str); 2] = [("limits.cpu", "28405m"), ("limits.memory", "62820279552")];
/// When old Harvester had left a limit below it.
const USED_THEN: [(&str, &str); 2] = [("limits.cpu", "28505m"), ("limits.memory", "62900279552")];
/// Label of the nodes among which the machines move.
const PAIR: &str = "pair";

/// Two nodes of which the machines of a test leave one for the other.
struct Pair<'s> {
    tenant: &'s Tenant<'static>,
    nodes: [String; 2],
}

impl<'s> Pair<'s> {
    async fn new(tenant: &'s Tenant<'static>) -> Self {
        let nodes = tenant.kubevirt.add_nodes(2).await.unwrap().try_into().unwrap();
        let pair = Self { tenant, nodes };
        for node in &pair.nodes {
            pair.change(node, json!({ "metadata": { "labels": { PAIR: tenant.name() } } })).await;
        }
        pair
    }

    async fn change(&self, node: &str, change: Value) {
        let nodes: Api<Node> = Api::all(self.tenant.client.clone());
        nodes.patch(node, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    }

    /// Starts machines that may run on both nodes, all on this one.
    async fn start_on(&self, node: usize, machines: Vec<VmBuilder>) -> Vec<Vm> {
        let other = &self.nodes[1 - node];
        self.change(other, json!({ "spec": { "unschedulable": true } })).await;
        let selector = json!({ "nodeSelector": { PAIR: self.tenant.name() } });
        let started = machines.into_iter().map(|machine| machine.spec(selector.clone()).start());
        let vms: Vec<Vm> = join_all(started).await.into_iter().map(Result::unwrap).collect();
        self.change(other, json!({ "spec": { "unschedulable": false } })).await;
        for vm in &vms {
            assert_eq!(vm.node().await.unwrap(), self.nodes[node]);
        }
        vms
    }

    /// Drains a node with so many machines; returns when all have left it and it may be used again.
    async fn drain(&self, node: usize, candidates: usize, known: &[Vec<Migration>], vms: &[Vm]) {
        let (from, kubevirt) = (&self.nodes[node], &self.tenant.kubevirt);
        assert_eq!(kubevirt.drain(from).await.unwrap().len(), candidates);
        for (vm, known) in vms.iter().zip(known) {
            if vm.migrations().await.unwrap().len() == known.len() && vm.node().await.unwrap() != *from {
                continue;
            }
            vm.until_migration(known).await.unwrap().until_succeeded().await.unwrap();
            assert_eq!(vm.until_away_from(from).await.unwrap(), self.nodes[1 - node]);
            vm.until_alone().await.unwrap();
        }
        kubevirt.uncordon(from).await.unwrap();
    }
}

async fn migrations(vms: &[Vm]) -> Vec<Vec<Migration>> {
    join_all(vms.iter().map(Vm::migrations)).await.into_iter().map(Result::unwrap).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_and_f_nine_and_then_twelve_machines_leave_their_nodes_while_ranchers_agent_restarts() {
    let scene = Scene::with_kubevirts_limits("field-a-f", Validator::Present).await;
    let wanted = json!({ "limitsCpu": "30000m", "limitsMemory": "61440Mi" });
    let low = json!({ "limitsCpu": "26", "limitsMemory": "54242646Ki" });
    scene.rancher.want(Some(&wanted)).await.unwrap();
    scene.quota(QUOTA, &amounts(&[("limits.cpu", "30"), ("limits.memory", "60Gi")])).await;
    // Seven machines of the namespace, and five of another one.
    let neighbours = Tenant::on(scene.tenant.bed, "neighbours").await;
    let pair = Pair::new(&scene.tenant).await;
    let neighbour = |number: usize| neighbours.kubevirt.vm(neighbours.name(), &format!("n{number}"));
    let mut vms = pair.start_on(1, (0..3).map(neighbour).collect()).await;
    let own = (0..7).map(|number| four_cores(&scene.tenant, &format!("vm{number}")));
    vms.extend(pair.start_on(0, own.chain((3..5).map(neighbour)).collect()).await);
    let volume = async |number: usize| {
        let pod = other_pod(&format!("hp-volume-{number}"), "100m", "80M");
        scene.tenant.pods.create(&PostParams::default(), &pod).await.unwrap();
    };
    for number in 0..3 {
        volume(number).await;
    }
    scene.until_used(QUOTA, &USED).await;
    scene.tenant.unlimited().await;
    let recording = scene.record("4").await;

    let more = json!({ "limitsCpu": "31000m", "limitsMemory": "62464Mi" });
    let restarts = scene.rancher.rewrite_while_raised(vec![more, wanted.clone()]);
    pair.drain(0, 9, &migrations(&vms).await, &vms).await;
    assert!(restarts.end().await.unwrap() > 0, "Rancher's agent was there");
    volume(3).await;
    // What old Harvester left: 26 cores.
    scene.rancher.want(Some(&low)).await.unwrap();
    scene.rancher.synchronize().await.unwrap();
    scene.until_used(QUOTA, &USED_THEN).await;

    let restarts = scene.rancher.rewrite_while_raised(vec![wanted.clone(), low]);
    pair.drain(1, 12, &migrations(&vms).await, &vms).await;
    assert!(restarts.end().await.unwrap() > 0, "Rancher's agent was there");
    scene.rancher.want(Some(&wanted)).await.unwrap();
    scene.rancher.synchronize().await.unwrap();
    scene.until_used(QUOTA, &USED_THEN).await;
    let floor = amounts(&[("limits.cpu", "26"), ("limits.memory", "54242646Ki")]);
    let seen = scene.finish(recording, QUOTA, &floor).await;
    assert!(seen.raises(QUOTA) >= 14, "seven machines moved twice");
    assert_none_rejected(&neighbours).await;
    let now = scene.tenant.quotas.get(QUOTA).await.unwrap();
    assert_eq!((hard(&now)["limits.cpu"].0.as_str(), hard(&now)["limits.memory"].0.as_str()), ("30", "60Gi"));
}
