//! The part of a cluster that a question is about, read by the user's rights into the state that the controller decides by.
//!
//! The state has no client: it leads in memory, and what it wants done is not done. So answers are those of the controller
//! but for what only a running process knows: room that is kept in turn, requests under way, waits after failures, what
//! sidecars say.
//! Of a cluster quota whose namespaces cannot all be seen, what they take is what the quota's status says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use kube::Api;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_engine::vm::Calculator;
use sluice_engine::{ChargeRules, NamespacePattern};
use sluice_gate::{Gate, GateConfig, GateMetrics, GateWatches, Moment, State};
use sluice_index::{
    AacrqWire, AaqWire, Aaqs, AcrqWire, ArqWire, ClusterQuotaChargeWire, EvaluatorWire, KubeVirtWire,
    NamespaceWire, PodWire, PodWithText, VmiWire, VmimWire, Watched as _,
};
use sluice_manifests::default_exempt_namespaces;
use sluice_runtime::clock::ServerClock;
use sluice_runtime::watch::WatchHealth;

use super::cluster::Connection;
use super::evaluated::Evaluated;
use super::lists::{ListError, Lists, Where, feed};
use super::proven::told_by_aaq;

/// What is told of a pod only after a while is told at once (milliseconds).
const TOLD_MS: u64 = 3_000;

pub struct World {
    gate: Gate,
    pub pods: Vec<PodWire>,
    pub machines: Vec<VmiWire>,
    pub migrations: Vec<VmimWire>,
    pub quotas: Vec<ArqWire>,
    pub kubevirts: Vec<KubeVirtWire>,
    /// Names of cluster quotas.
    pub cluster_quotas: Vec<String>,
    /// Quotas count VMs in place of their pods.
    pub counts_machines: bool,
    /// What the AAQ says of head-room: in force, or why nothing is raised. `None`: nothing, or it may not be read.
    pub headroom: Option<Result<(), String>>,
    /// Rights that were missing.
    pub missing: Vec<String>,
    /// What could not be known and was taken to be so.
    pub assumed: Vec<String>,
    /// Whether the pods could be listed.
    pub knows_pods: bool,
    /// Of all namespaces.
    pub is_of_all: bool,
    pub now: i64,
}

/// Objects as they are fed.
#[derive(Default)]
struct Read {
    /// `None`: they may not be listed.
    aaqs: Option<Vec<AaqWire>>,
    namespaces: Vec<NamespaceWire>,
    quotas: Vec<ArqWire>,
    cluster_quotas: Vec<AcrqWire>,
    charges: Vec<ClusterQuotaChargeWire>,
    kubevirts: Vec<KubeVirtWire>,
    machines: Vec<VmiWire>,
    migrations: Vec<VmimWire>,
    pods: Vec<PodWire>,
    /// The JSON of each pod, where it was read.
    texts: Vec<Box<RawValue>>,
    evaluated: Evaluated,
}

/// What was read of a namespace; `None` of a kind: it may not be listed.
#[derive(Debug)]
pub struct Kept {
    pub pods: Option<Vec<PodWire>>,
    pub machines: Option<Vec<VmiWire>>,
    pub migrations: Option<Vec<VmimWire>>,
    pub quotas: Option<Vec<ArqWire>>,
}

impl World {
    /// A namespace, and of cluster quotas what is needed to know how much of them is taken.
    pub async fn of_namespace(connection: &Connection, name: &str) -> anyhow::Result<Self> {
        let mut lists = Lists::new(connection);
        let mut read = Read::default();
        let place = Where::Namespace(name);
        read_aaqs(&mut lists, &mut read).await?;
        let kept = Kept {
            pods: pods(&mut lists, &mut read, place).await?,
            quotas: lists.all(place).await?,
            machines: lists.all(place).await?,
            migrations: lists.all(place).await?,
        };
        Self::with(lists, name, read, kept).await
    }

    /// As [`Self::of_namespace`], of what watches keep of the namespace.
    pub async fn of_kept(connection: &Connection, name: &str, kept: Kept) -> anyhow::Result<Self> {
        let (mut lists, mut read) = (Lists::new(connection), Read::default());
        read_aaqs(&mut lists, &mut read).await?;
        Self::with(lists, name, read, kept).await
    }

    async fn with(mut lists: Lists<'_>, name: &str, mut read: Read, kept: Kept) -> anyhow::Result<Self> {
        let connection = lists.connection;
        let mut assumed = Vec::new();
        let place = Where::Namespace(name);
        let api = Api::<NamespaceWire>::all(connection.client.clone());
        read.namespaces = lists.get(&api, &format!("namespaces {name}"), name).await?.into_iter().collect();
        let knows_pods = kept.pods.is_some();
        read.pods = kept.pods.unwrap_or_default();
        read.quotas = kept.quotas.unwrap_or_default();
        read.machines = kept.machines.unwrap_or_default();
        read.migrations = kept.migrations.unwrap_or_default();
        read_configuration(&mut lists, &mut read, &mut assumed).await?;
        match lists.all_of_cluster::<AcrqWire>().await? {
            Some(quotas) => read.cluster_quotas = quotas,
            None => {
                let mirrors = lists.all::<AacrqWire>(place).await?.unwrap_or_default();
                read.cluster_quotas = mirrors.iter().filter_map(unmirrored).collect();
            }
        }
        if read.namespaces.is_empty() {
            assumed.push(format!("namespace {name} cannot be read: it is taken to be targeted"));
            read.namespaces.extend(wire::<NamespaceWire>(json!({ "metadata": {
                "name": name, "uid": name, "labels": { "kubernetes.io/metadata.name": name, names::TARGET_LABEL: "" },
            } })));
        }
        Self::of(connection, lists, (read, assumed), Some(name), knows_pods).await
    }

    /// All namespaces.
    pub async fn everywhere(connection: &Connection) -> anyhow::Result<Self> {
        let mut lists = Lists::new(connection);
        let (mut read, mut assumed) = (Read::default(), Vec::new());
        let place = Where::Everywhere;
        read_aaqs(&mut lists, &mut read).await?;
        let pods = pods(&mut lists, &mut read, place).await?;
        let knows_pods = pods.is_some();
        read.pods = pods.unwrap_or_default();
        read.namespaces = lists.all_of_cluster::<NamespaceWire>().await?.unwrap_or_default();
        read.quotas = lists.all::<ArqWire>(place).await?.unwrap_or_default();
        read.cluster_quotas = lists.all_of_cluster::<AcrqWire>().await?.unwrap_or_default();
        read.machines = lists.all::<VmiWire>(place).await?.unwrap_or_default();
        read.migrations = lists.all::<VmimWire>(place).await?.unwrap_or_default();
        read_configuration(&mut lists, &mut read, &mut assumed).await?;
        Self::of(connection, lists, (read, assumed), None, knows_pods).await
    }

    async fn of(
        connection: &Connection,
        lists: Lists<'_>,
        (mut read, assumed): (Read, Vec<String>),
        only: Option<&str>,
        knows_pods: bool,
    ) -> anyhow::Result<Self> {
        let version = connection.version().await?;
        let now = connection.now();
        prepare(&mut read, only);
        let begin = Instant::now();
        let gate = fed(connection.clock(), ChargeRules::for_minor(version.minor), &read);
        let fed_ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        let moment = Moment { mono_ms: fed_ms.saturating_add(TOLD_MS), unix_ms: now.saturating_mul(1_000) };
        gate.state().lock().decide_in_memory(moment);
        let name = |quota: &AcrqWire| quota.metadata.name.clone();
        let mut aaqs = Aaqs::default();
        for aaq in read.aaqs.iter().flatten() {
            aaqs.upsert(aaq);
        }
        let aaq = aaqs.holding();
        let stated = aaq.and_then(|aaq| aaq.stated.as_ref()?.status.conditions.as_deref());
        Ok(Self {
            counts_machines: aaq.map(|aaq| aaq.calculator).unwrap_or_default().counts_machines(),
            headroom: stated.and_then(told_by_aaq),
            gate,
            cluster_quotas: read.cluster_quotas.iter().filter_map(name).collect(),
            pods: read.pods,
            machines: read.machines,
            migrations: read.migrations,
            quotas: read.quotas,
            kubevirts: read.kubevirts,
            missing: lists.missing(),
            assumed,
            knows_pods,
            is_of_all: only.is_none(),
            now,
        })
    }

    /// The rights without which nothing is known; else what was taken to be so for want of them.
    pub fn tell_what_is_missing(&self) {
        match self.knows_pods {
            true => self.assumed.iter().for_each(|assumed| eprintln!("note: {assumed}")),
            false => self.missing.iter().for_each(|right| eprintln!("missing right: {right}")),
        }
    }

    /// Reads the state.
    pub fn look<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        let state = self.gate.state();
        let state = state.lock();
        look(&state)
    }
}

/// What holds for the cluster. A tenant may not read it: then it is taken from what quotas and pods say.
async fn read_configuration(
    lists: &mut Lists<'_>,
    read: &mut Read,
    assumed: &mut Vec<String>,
) -> Result<(), ListError> {
    match &read.aaqs {
        Some(_) => assumed.extend(read.evaluated.assumed(!read.texts.is_empty() || read.pods.is_empty())),
        None => {
            let calculator = calculator_told(&read.quotas);
            let name = calculator.map_or("IgnoreVmiCalculator", |calculator| calculator.name());
            assumed.push(format!("the AAQ cannot be read: VMs are taken to be counted by {name}"));
            read.aaqs = wire::<AaqWire>(json!({
                "metadata": { "name": names::AAQ_NAME, "uid": names::AAQ_NAME },
                "spec": {
                    "namespaceSelector": {},
                    "configuration": {
                        "allowApplicationAwareClusterResourceQuota": true,
                        "vmiCalculatorConfiguration": { "configName": name },
                    },
                },
            }))
            .map(|aaq| vec![aaq]);
        }
    }
    match lists.all::<KubeVirtWire>(Where::Everywhere).await? {
        Some(kubevirts) => read.kubevirts = kubevirts,
        None => {
            let controller = read.pods.iter().find_map(namespace_of_kubevirt);
            let kubevirt = controller.and_then(|namespace| {
                wire::<KubeVirtWire>(
                    json!({ "metadata": { "name": "kubevirt", "namespace": namespace, "uid": "kubevirt" } }),
                )
            });
            read.kubevirts.extend(kubevirt);
        }
    }
    Ok(())
}

/// The configurations, and what else than Kubernetes says what pods take.
async fn read_aaqs(lists: &mut Lists<'_>, read: &mut Read) -> Result<(), ListError> {
    read.aaqs = lists.all_of_cluster().await?;
    if let Some(aaqs) = &read.aaqs {
        // Who may not read the AAQ may not read these either.
        let evaluators = lists.all_of_cluster::<EvaluatorWire>().await?.unwrap_or_default();
        read.evaluated = Evaluated::read(aaqs, &evaluators);
    }
    Ok(())
}

/// The pods, with their JSON where rules say what they take.
async fn pods(
    lists: &mut Lists<'_>,
    read: &mut Read,
    place: Where<'_>,
) -> Result<Option<Vec<PodWire>>, ListError> {
    if !read.evaluated.has_rules() {
        return lists.all(place).await;
    }
    let Some(found) = lists.all::<PodWithText>(place).await? else { return Ok(None) };
    let (pods, texts) = found.into_iter().map(|pod| (pod.wire, pod.text)).unzip();
    read.texts = texts;
    Ok(Some(pods))
}

/// How quotas say that VMs are counted.
fn calculator_told(quotas: &[ArqWire]) -> Option<Calculator> {
    let conditions = quotas.iter().filter_map(|quota| quota.status.as_ref()?.conditions.as_ref()).flatten();
    let of_machines = conditions.filter(|condition| condition.kind == names::VIRTUAL_MACHINES);
    of_machines.filter_map(|condition| Calculator::from_name(&condition.reason)).next()
}

/// The namespace of KubeVirt's controller, if it has created the pod.
fn namespace_of_kubevirt(pod: &PodWire) -> Option<&str> {
    let stamp = pod.metadata.annotations.as_ref()?.get(names::CREATED_BY_ANNOTATION)?;
    let (account, name) = stamp.rsplit_once(':')?;
    let namespace = account.strip_prefix("system:serviceaccount:")?;
    (name == names::KUBEVIRT_CONTROLLER_ACCOUNT).then_some(namespace)
}

/// A cluster quota as its mirror shows it.
fn unmirrored(mirror: &AacrqWire) -> Option<AcrqWire> {
    let owner = mirror.metadata.owner_references.as_ref()?.first()?;
    let namespace = mirror.metadata.namespace.as_deref()?;
    let mut spec = mirror.spec.clone();
    // That it selects the namespace is what the mirror says; the labels of namespaces may not be readable.
    let selector = json!({ "labels": { "matchLabels": { "kubernetes.io/metadata.name": namespace } } });
    spec.as_object_mut()?.insert("selector".to_owned(), selector);
    wire(json!({
        "metadata": { "name": mirror.metadata.name, "uid": owner.uid, "resourceVersion": "1" },
        "spec": spec,
        "status": mirror.status,
    }))
}

fn wire<T: DeserializeOwned>(value: Value) -> Option<T> {
    serde_json::from_value(value).ok()
}

/// What is recorded is what the state would keep room for: of quotas whose pods are all known that is left out; of others
/// it stands for the pods of other namespaces.
fn prepare(read: &mut Read, only: Option<&str>) {
    for quota in &mut read.cluster_quotas {
        let status = std::mem::take(&mut quota.status);
        if only.is_none() {
            continue;
        }
        let total = status.get("total").cloned().unwrap_or_default();
        let uid = quota.metadata.uid.clone().unwrap_or_default();
        let charge = wire::<ClusterQuotaChargeWire>(json!({
            "metadata": { "name": uid, "uid": format!("charge-{uid}"), "resourceVersion": "1" },
            "status": { "hard": total.get("hard"), "used": total.get("used"), "charges": 1 },
        }));
        read.charges.extend(charge);
    }
}

/// The gate, fed as its watches feed it.
fn fed(clock: Arc<ServerClock>, rules: ChargeRules, read: &Read) -> Gate {
    let health = || WatchHealth::new("list");
    let watches = GateWatches {
        pods: health(),
        namespaces: health(),
        quotas: health(),
        cluster_quotas: health(),
        charges: health(),
        aaqs: health(),
        device_classes: health(),
        evaluators: health(),
        machines: health(),
        kubevirts: health(),
    };
    let config = GateConfig::new(names::GATE, rules);
    let mut exempt = default_exempt_namespaces();
    exempt.push(NamespacePattern::named(names::INSTALL_NAMESPACE));
    let gate = Gate::new(config, &exempt, GateMetrics::default(), watches, clock);
    feed(read.aaqs.as_deref().unwrap_or_default(), |event| gate.on_aaqs(event));
    feed(&read.kubevirts, |event| gate.on_kubevirts(event));
    feed(&read.namespaces, |event| gate.on_namespaces(event));
    feed(&read.cluster_quotas, |event| gate.on_cluster_quotas(event));
    feed(&read.charges, |event| gate.on_charges(event));
    let mut quotas = read.quotas.clone();
    quotas.iter_mut().for_each(|quota| quota.status = None);
    feed(&quotas, |event| gate.on_quotas(event));
    feed(&read.machines, |event| gate.on_machines(event));
    feed(&read.migrations, |event| gate.on_migrations(event));
    read.evaluated.feed_pods(&gate, &read.pods, &read.texts);
    gate
}

/// Names by what is asked for most.
pub fn names_of<K: kube::Resource>(objects: &[K]) -> impl Iterator<Item = &str> {
    objects.iter().filter_map(|object| object.meta().name.as_deref())
}

/// Pods of a namespace by the uid of the VirtualMachineInstance that controls them.
pub fn pods_of_machines(pods: &[PodWire]) -> BTreeMap<&str, Vec<Arc<str>>> {
    let mut by_machine: BTreeMap<&str, Vec<Arc<str>>> = BTreeMap::new();
    for pod in pods {
        let owners = pod.metadata.owner_references.iter().flatten();
        let machine =
            owners.filter(|owner| owner.kind == "VirtualMachineInstance").map(|owner| owner.uid.as_str());
        for machine in machine {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            by_machine.entry(machine).or_default().push(name.into());
        }
    }
    by_machine
}

#[cfg(test)]
mod tests;
