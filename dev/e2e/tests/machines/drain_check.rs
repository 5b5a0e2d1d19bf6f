//! What `sluice drain-check` says of a node, and what its drain does.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice_api::{HeadroomPolicy, VirtualMachineMigrationResourceQuota as Vmmrq};
use sluice_e2e::build;
use sluice_e2e::random::{Random, seed};
use sluice_e2e::tenant::used;
use sluice_testbed::kubevirt::Vm;
use sluice_testbed::{Bed, wait};

use crate::context::{Counting, SOON, Team};

/// How many drains.
const DRAINS: &str = "SLUICE_DRAINS";
/// So many at a time, each of a node of its own.
const AT_A_TIME: usize = 5;
/// Of the cases of this file.
const STREAM: u64 = 0xd7;
const MEMORY: &str = "requests.memory";
const MI: i128 = 1024 * 1024;

/// A node with VMs, and the namespaces of these.
struct Drain {
    node: String,
    teams: Vec<Team>,
    vms: Vec<(usize, Vm)>,
    /// What is there beside VMs, for the report of a failure.
    story: String,
    /// A policy that covers all of its namespaces.
    policy: Option<String>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_check_agrees_with_what_drains_do() {
    let counting = Counting::by("IgnoreVmiCalculator").await;
    counting.running.webhook.until_proven().await.unwrap();
    let (seed, drains) = (seed(), std::env::var(DRAINS).map_or(10, |text| text.parse().unwrap()));
    let nodes = counting.kubevirt().add_nodes(AT_A_TIME).await.unwrap();
    let mut results = BTreeMap::<String, usize>::new();
    let numbers: Vec<usize> = (0..drains).collect();
    for numbers in numbers.chunks(AT_A_TIME) {
        let begin = numbers.iter().zip(&nodes).map(|(number, node)| {
            let random = Random::of_case(seed, STREAM, *number);
            Drain::begin(&counting, random, node, format!("seed {seed}, drain {number}\n"))
        });
        let begun = join_all(begin).await;
        // No VM goes to a node that is about to be drained.
        join_all(nodes.iter().map(|node| cordon(counting.running.bed, node, true))).await;
        for told in join_all(begun.iter().map(|drain| drain.compare(&counting))).await {
            for result in told {
                *results.entry(result).or_default() += 1;
            }
        }
        join_all(begun.into_iter().map(|drain| drain.end(counting.running.bed))).await;
        join_all(nodes.iter().map(|node| cordon(counting.running.bed, node, false))).await;
    }
    println!("{drains} drains of seed {seed}: {results:?}");
    for result in ["now", "in turn", "STUCK"] {
        assert!(results.contains_key(result), "seed {seed}: no VM was {result}: {results:?}");
    }
}

async fn cordon(bed: &Bed, node: &str, is_cordoned: bool) {
    let nodes: Api<Node> = Api::all(bed.admin().unwrap());
    let patch = Patch::Merge(json!({ "spec": { "unschedulable": is_cordoned } }));
    nodes.patch(node, &PatchParams::default(), &patch).await.unwrap();
}

impl Drain {
    /// Starts VMs of random sizes on the node, in namespaces whose quotas and grants are about as large as they are.
    async fn begin(counting: &Counting, mut random: Random, node: &str, mut story: String) -> Self {
        let count = random.pick(&[1, 1, 2, 3]);
        let label = format!("drain-{}", random.below(1_000_000_000));
        let labels = [("drained", &*label)];
        let teams = join_all((0..count).map(|_| counting.team_of("check", &labels))).await;
        let kubevirt = counting.kubevirt();
        let mut starting = Vec::new();
        for (number, team) in teams.iter().enumerate() {
            for vm in 0..random.pick(&[1, 2, 2, 3, 4]) {
                let vm = kubevirt.vm(team.tenant.name(), &format!("vm-{vm}")).node(node);
                let memory = random.pick(&["64Mi", "128Mi", "256Mi", "512Mi"]);
                starting.push(async move { (number, vm.memory(memory).start().await.unwrap()) });
            }
        }
        let vms = join_all(starting).await;
        let mut drain = Self { node: node.to_owned(), teams, vms, story: String::new(), policy: None };
        for number in 0..drain.teams.len() {
            drain.limit(number, &mut random, &mut story).await;
        }
        if random.chance(40) {
            let memory = mebibytes(random.between(0, 2_000));
            let mut budget = json!({ "mode": "Pool", "resources": { MEMORY: memory, "pods": "8" } });
            if random.chance(30) {
                budget["perNamespace"] = json!({ MEMORY: mebibytes(random.between(200, 1_000)) });
            }
            drain.grant(&label, budget, &mut story).await;
        }
        drain.story = story;
        drain
    }

    /// Quotas and grants of one namespace.
    async fn limit(&self, number: usize, random: &mut Random, story: &mut String) {
        let team = &self.teams[number];
        let own = self.vms.iter().filter(|(of, _)| *of == number).count();
        let is_native = random.chance(80);
        if is_native {
            let keys: &[&str] = if random.chance(30) { &[MEMORY, "pods"] } else { &[MEMORY] };
            let usage = team.tenant.usage(keys).await;
            let bytes = sluice_e2e::tenant::amount(&usage, MEMORY).nanos() / 1_000_000_000;
            // Far less than there is, exactly that, room for a few.
            let more = random.pick(&[-50, 0, 0, 1, 2, 3, 4]);
            let more = if more > 0 { random.between(100, 350 * more) } else { more };
            let mut hard = json!({ MEMORY: mebibytes(bytes / MI + 1 + more) });
            if keys.len() > 1 {
                hard["pods"] = json!((own + random.below(own + 1)).to_string());
            }
            let _ = writeln!(story, "{}: ResourceQuota {hard}, used {usage:?}", team.tenant.name());
            team.tenant.quota("rq", hard).await;
            let is_counted = |quota: &_| used(quota).get(MEMORY) == usage.get(MEMORY);
            team.tenant.until_quota("rq", "what is used", is_counted).await;
        }
        match random.below(5) {
            0 => {
                let amounts = json!({ MEMORY: mebibytes(random.between(0, 1_500)), "pods": "2" });
                let _ = writeln!(story, "{}: grants {amounts}", team.tenant.name());
                team.tenant.vmmrq("more", amounts).await;
                let api: Api<Vmmrq> = Api::namespaced(team.tenant.client.clone(), team.tenant.name());
                let in_force = |object: Option<&Vmmrq>| {
                    let status = object.and_then(|object| object.status.as_ref());
                    status.is_some_and(|status| status.conditions.iter().any(|it| it.reason == "InForce"))
                };
                wait::wait_for(&api, "more", SOON, "the grant to be in force", in_force).await.unwrap();
            }
            1 => {
                let budget = random.pick(&["Unlimited", "PerNamespace"]);
                let mut budget = json!({ "mode": budget });
                if budget["mode"] == "PerNamespace" {
                    budget["resources"] = json!({ MEMORY: mebibytes(random.between(0, 1_500)), "pods": "3" });
                }
                let _ = writeln!(story, "{}: policy {budget}", team.tenant.name());
                let name = team.tenant.policy(budget).await.metadata.name.unwrap();
                until_in_force(&team.tenant.client, &name).await;
            }
            _ => {}
        }
        if random.chance(10) {
            let _ = writeln!(story, "{}: opted out", team.tenant.name());
            let namespaces: Api<Namespace> = Api::all(team.tenant.client.clone());
            let annotation =
                json!({ "metadata": { "annotations": { sluice_api::names::OWN_OPT_OUT: "true" } } });
            let patched = namespaces
                .patch(team.tenant.name(), &PatchParams::default(), &Patch::Merge(annotation))
                .await;
            patched.unwrap();
        }
        // A target that waits at the gate takes of ResourceQuotas: then what goes depends on who comes first.
        if !is_native && random.chance(70) {
            let pods = (own + random.below(own + 1)).to_string();
            let _ = writeln!(story, "{}: quota of Sluice's, pods {pods}", team.tenant.name());
            team.quota("own", &[("pods", &pods)]).await;
            team.until_used("own", &[("pods", &own.to_string())]).await;
        }
    }

    async fn grant(&mut self, label: &str, budget: Value, story: &mut String) {
        let _ = writeln!(story, "all: policy {budget}");
        let policy: HeadroomPolicy = serde_json::from_value(json!({
            "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "HeadroomPolicy", "metadata": { "name": label },
            "spec": { "namespaceSelector": { "matchLabels": { "drained": label } }, "budget": budget },
        }))
        .unwrap();
        let client = &self.teams[0].tenant.client;
        Api::<HeadroomPolicy>::all(client.clone()).create(&Default::default(), &policy).await.unwrap();
        until_in_force(client, label).await;
        self.policy = Some(label.to_owned());
    }

    /// Drains the node; what was said of each VM has to come true. Returns what that was.
    async fn compare(&self, counting: &Counting) -> Vec<String> {
        let told = self.told(counting.running.bed).await;
        assert_eq!(told.len(), self.vms.len(), "{}: {told:#?}", self.story);
        counting.kubevirt().drain(&self.node).await.unwrap();
        let result_of = |vm: &Vm| {
            let row = told.iter().find(|row| row["namespace"] == vm.namespace() && row["vm"] == vm.name());
            row.unwrap_or_else(|| panic!("{}: nothing said of {}", self.story, vm.name())).clone()
        };
        let going = self.vms.iter().filter(|(_, vm)| result_of(vm)["result"] != "STUCK");
        join_all(going.map(|(_, vm)| async {
            let said = result_of(vm);
            let migration = vm.until_migration(&[]).await.unwrap();
            let went = migration.until_succeeded().await;
            assert!(went.is_ok(), "{}: it does not go: {said}: {went:?}", self.story);
            assert!(matches!(said["result"].as_str(), Some("now" | "in turn")), "{}: {said}", self.story);
            vm.until_alone().await.unwrap();
        }))
        .await;
        for (number, vm) in &self.vms {
            let said = result_of(vm);
            let refused = self.refused(*number, vm).await;
            match said["result"].as_str().unwrap() {
                "now" => assert_eq!(refused, 0, "{}: it was refused: {said}", self.story),
                "STUCK" => self.assert_stuck(*number, vm, &said, refused).await,
                _ => {}
            }
        }
        told.iter().map(|row| row["result"].as_str().unwrap().to_owned()).collect()
    }

    /// All others have gone; KubeVirt's controller tries once more, and it still does not go.
    async fn assert_stuck(&self, number: usize, vm: &Vm, said: &Value, refused: usize) {
        let team = &self.teams[number];
        let migration = vm.until_migration(&[]).await.unwrap();
        if said["reason"] == "QuotaExceeded" {
            team.until_held(vm.name()).await;
            // What is written now is written by a state that knows of all that went.
            team.until_written("own", "1Ti").await;
            let held = migration.target_pod().await.unwrap().unwrap();
            assert!(sluice_e2e::objects::is_held(&held), "{}: it goes: {said}", self.story);
        } else {
            let tried = || async {
                let touch = Patch::Merge(json!({ "metadata": { "labels": {
                    "touched": jiff::Timestamp::now().as_millisecond().to_string(),
                } } }));
                team.tenant.quotas.patch("rq", &PatchParams::default(), &touch).await.ok()?;
                let is_over = self.refused(number, vm).await > refused;
                (is_over || migration.target_pod().await.ok()?.is_some()).then_some(())
            };
            wait::eventually(SOON, tried, "KubeVirt's controller to try again").await.unwrap();
            let target = migration.target_pod().await.unwrap();
            assert!(target.is_none(), "{}: it goes: {said}", self.story);
        }
        assert_eq!(vm.node().await.unwrap(), self.node, "{}: it goes: {said}", self.story);
    }

    /// How many times a pod for a migration of the VM was refused.
    async fn refused(&self, number: usize, vm: &Vm) -> usize {
        let tenant = &self.teams[number].tenant;
        let attempts = tenant.bed.rejected_attempts(tenant.name()).await.unwrap();
        let is_of_it = |request: &Value| {
            let name = request.pointer("/metadata/labels/vm.kubevirt.io~1name");
            name.is_some_and(|name| name == vm.name())
        };
        attempts.iter().filter(|event| is_of_it(&event.request)).count()
    }

    /// What the command says.
    async fn told(&self, bed: &Bed) -> Vec<Value> {
        let (table, json) = tokio::join!(self.run(bed, "table"), self.run(bed, "json"));
        println!("{table}");
        let value: Value =
            serde_json::from_str(&json).unwrap_or_else(|error| panic!("{}: {error}: {json}", self.story));
        assert_eq!(value["missingRights"], json!([]), "{}", self.story);
        value["items"].as_array().unwrap().clone()
    }

    async fn run(&self, bed: &Bed, format: &str) -> String {
        let mut command = tokio::process::Command::new(build::sluice().unwrap());
        command.args(["drain-check", &self.node, "-o", format, "--kubeconfig"]).arg(bed.admin_kubeconfig());
        let output = tokio::time::timeout(SOON, command.kill_on_drop(true).output()).await.unwrap().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.is_empty(), "{}: {}", self.story, String::from_utf8_lossy(&output.stderr));
        text
    }

    async fn end(self, bed: &Bed) {
        join_all(self.vms.iter().map(|(_, vm)| async {
            for migration in vm.migrations().await.unwrap() {
                let _ = migration.abort().await;
            }
            vm.delete().await.unwrap();
        }))
        .await;
        let policies: Api<HeadroomPolicy> = Api::all(bed.admin().unwrap());
        for name in self.policy.iter().map(String::as_str).chain(self.teams.iter().map(|it| it.tenant.name()))
        {
            let _ = policies.delete(name, &Default::default()).await;
        }
    }
}

async fn until_in_force(client: &kube::Client, policy: &str) {
    let in_force = |object: Option<&HeadroomPolicy>| {
        let status = object.and_then(|object| object.status.as_ref());
        status.is_some_and(|status| status.conditions.iter().any(|it| it.reason == "InForce"))
    };
    let policies: Api<HeadroomPolicy> = Api::all(client.clone());
    wait::wait_for(&policies, policy, SOON, "the policy to be in force", in_force).await.unwrap();
}

fn mebibytes(amount: i128) -> String {
    format!("{}Mi", amount.max(0))
}
