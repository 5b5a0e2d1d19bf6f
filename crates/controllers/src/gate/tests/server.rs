//! A server in memory with the few rules the gate relies on: versions, preconditions, watch logs.
//!
//! It is not a fake Kubernetes: the suites in `dev/e2e` run against a real one. Here the point is to interleave
//! events, answers and crashes in ways a real one would need years for.

use std::collections::BTreeMap;

use serde_json::json;
use sluice_engine::Quantity;
use sluice_index::{ArqWire, PodWire, VmiWire};

use super::owners::Machines;
use super::vms::Vms;
use crate::gate::{Answer, Moment, Record, RecordedIn, RecordedObject, Release, State};

pub const GATE: &str = "ApplicationAwareQuotaGate";
pub const NAMESPACE: &str = "team";
pub const QUOTA: &str = "compute";
/// More pods than there ever are.
const PODS: &str = "1k";

#[derive(Clone, Debug)]
pub struct Pod {
    pub uid: u64,
    pub version: u64,
    pub milli_cpu: u64,
    pub priority: i32,
    pub created: i64,
    pub gated: bool,
    pub finished: bool,
    /// Name and number of the pod that controls it.
    pub controller: Option<(String, u64)>,
    /// Who has created it if its name does not say so.
    pub creator: Option<&'static str>,
}

#[derive(Clone, Debug)]
pub struct Quota {
    pub uid: u64,
    pub version: u64,
    pub hard: u64,
    /// Whether it has a limit on pods too, one that is never reached.
    pub counts_pods: bool,
    /// Hard and used.
    pub status: Option<(String, String)>,
    /// The number of pods in the status, where that has one.
    pub used_pods: Option<String>,
    pub charges: i64,
    /// The rest of the status as it was written.
    pub told: serde_json::Value,
}

#[derive(Clone, Debug)]
pub enum Change {
    Pod(serde_json::Value),
    PodGone(serde_json::Value),
    Quota(serde_json::Value),
    QuotaGone(serde_json::Value),
    Machine(VmiWire),
    MachineGone(VmiWire),
}

#[derive(Debug, Default)]
pub struct Server {
    pub version: u64,
    pub now_s: i64,
    pub pods: BTreeMap<String, Pod>,
    pub quota: Option<Quota>,
    pub log: Vec<Change>,
    pub writes: usize,
    pub machines: Machines,
    /// VMs of which each process knows what a watch shows; without them [`Self::machines`] says what VMs are charged.
    pub vms: Option<Vms>,
}

impl Server {
    fn next(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    pub fn pod_json(name: &str, pod: &Pod) -> serde_json::Value {
        let owners = super::platform::references(pod).unwrap_or_else(|| super::owners::references(name));
        let annotations =
            super::platform::annotations(pod).unwrap_or_else(|| super::owners::annotations(name));
        let container = if owners.as_array().is_some_and(Vec::is_empty) { "c" } else { "compute" };
        let gates = if pod.gated { json!([{"name": GATE}]) } else { json!([]) };
        json!({
            "metadata": {
                "name": name, "namespace": NAMESPACE, "uid": format!("pod-{}", pod.uid), "ownerReferences": owners,
                "annotations": annotations, "labels": super::owners::labels(name),
                "resourceVersion": pod.version.to_string(),
                "creationTimestamp": jiff::Timestamp::from_second(pod.created).unwrap().to_string(),
            },
            "spec": {
                "priority": pod.priority, "schedulingGates": gates,
                "containers": [{"name": container, "resources": {"requests": {"cpu": format!("{}m", pod.milli_cpu)}}}],
            },
            "status": {"phase": if pod.finished { "Succeeded" } else { "Pending" }},
        })
    }

    pub fn quota_json(quota: &Quota) -> serde_json::Value {
        let mut status = quota.status.as_ref().map_or_else(
            || json!({}),
            |(hard, used)| json!({"hard": {"requests.cpu": hard}, "used": {"requests.cpu": used}, "charges": quota.charges}),
        );
        for (field, value) in quota.told.as_object().into_iter().flatten() {
            status[field] = value.clone();
        }
        if let Some(used) = &quota.used_pods {
            status["hard"]["pods"] = json!(PODS);
            status["used"]["pods"] = json!(used);
        }
        let mut hard = json!({"requests.cpu": format!("{}m", quota.hard)});
        if quota.counts_pods {
            hard["pods"] = json!(PODS);
        }
        json!({
            "metadata": {
                "name": QUOTA, "namespace": NAMESPACE, "uid": format!("quota-{}", quota.uid),
                "resourceVersion": quota.version.to_string(),
            },
            "spec": {"hard": hard},
            "status": status,
        })
    }

    pub fn create_pod(&mut self, name: &str, milli_cpu: u64, priority: i32) {
        self.create_as(name, milli_cpu, priority, None, None);
    }

    pub fn create_as(
        &mut self,
        name: &str,
        milli_cpu: u64,
        priority: i32,
        controller: Option<(String, u64)>,
        creator: Option<&'static str>,
    ) {
        if !self.pods.contains_key(name) {
            let pod = self.new_pod(milli_cpu);
            self.put_pod(name, Pod { priority, controller, creator, ..pod });
        }
    }

    /// As the API server does with targets of local migrations.
    pub fn create_ungated(&mut self, name: &str, milli_cpu: u64) {
        if !self.pods.contains_key(name) {
            let pod = self.new_pod(milli_cpu);
            self.put_pod(name, Pod { gated: false, ..pod });
        }
    }

    fn new_pod(&mut self, milli_cpu: u64) -> Pod {
        let version = self.next();
        Pod {
            uid: version,
            version,
            milli_cpu,
            priority: 0,
            created: self.now_s,
            gated: true,
            finished: false,
            controller: None,
            creator: None,
        }
    }

    fn put_pod(&mut self, name: &str, pod: Pod) {
        self.log.push(Change::Pod(Self::pod_json(name, &pod)));
        self.pods.insert(name.to_owned(), pod);
    }

    pub fn delete_pod(&mut self, name: &str) {
        if let Some(mut pod) = self.pods.remove(name) {
            pod.version = self.next();
            self.log.push(Change::PodGone(Self::pod_json(name, &pod)));
        }
    }

    pub fn finish_pod(&mut self, name: &str) {
        if let Some(mut pod) = self.pods.get(name).cloned().filter(|pod| !pod.gated && !pod.finished) {
            pod.version = self.next();
            pod.finished = true;
            self.put_pod(name, pod);
        }
    }

    /// As another leader does.
    pub fn ungate_pod(&mut self, name: &str) {
        if let Some(mut pod) = self.pods.get(name).cloned() {
            pod.version = self.next();
            pod.gated = false;
            self.put_pod(name, pod);
        }
    }

    /// As a client does that may update pods.
    pub fn adopt_pod(&mut self, name: &str, controller: Option<(String, u64)>) {
        if let Some(mut pod) = self.pods.get(name).cloned() {
            pod.version = self.next();
            pod.controller = controller;
            self.put_pod(name, pod);
        }
    }

    pub fn touch_pod(&mut self, name: &str) {
        if let Some(mut pod) = self.pods.get(name).cloned() {
            pod.version = self.next();
            self.put_pod(name, pod);
        }
    }

    pub fn resize_pod(&mut self, name: &str, milli_cpu: u64) {
        if let Some(mut pod) = self.pods.get(name).cloned() {
            pod.version = self.next();
            pod.milli_cpu = milli_cpu;
            self.put_pod(name, pod);
        }
    }

    pub fn set_hard(&mut self, hard: u64) {
        let version = self.next();
        let quota = match self.quota.take() {
            Some(quota) => Quota { version, hard, ..quota },
            None => {
                let (counts_pods, status, used_pods) = (false, None, None);
                let told = json!({});
                Quota { uid: version, version, hard, counts_pods, status, used_pods, charges: 0, told }
            }
        };
        self.put_quota(quota);
    }

    /// From now on it counts pods too, or no more.
    pub fn change_meaning(&mut self) {
        if let Some(mut quota) = self.quota.clone() {
            quota.version = self.next();
            quota.counts_pods = !quota.counts_pods;
            self.put_quota(quota);
        }
    }

    pub fn scribble_status(&mut self, used: u64) {
        if let Some(mut quota) = self.quota.clone() {
            quota.version = self.next();
            quota.status = Some((format!("{}m", quota.hard), format!("{used}m")));
            quota.used_pods = None;
            self.put_quota(quota);
        }
    }

    /// As another leader does.
    pub fn charge_quota(&mut self, used: u64) {
        if let Some(mut quota) = self.quota.clone() {
            quota.version = self.next();
            quota.charges += 1;
            quota.status = Some((format!("{}m", quota.hard), format!("{used}m")));
            self.put_quota(quota);
        }
    }

    fn put_quota(&mut self, quota: Quota) {
        self.log.push(Change::Quota(Self::quota_json(&quota)));
        self.quota = Some(quota);
    }

    pub fn delete_quota(&mut self) {
        if let Some(mut quota) = self.quota.take() {
            quota.version = self.next();
            self.log.push(Change::QuotaGone(Self::quota_json(&quota)));
        }
    }

    /// A new process hears of all VMs.
    pub fn tell(&self, state: &mut State, now: Moment) {
        self.machines.tell(state, now);
        if let Some(vms) = &self.vms {
            vms.tell(state, now);
        }
    }

    /// What pods without gates take, in thousandths of a CPU.
    pub fn taken(&self) -> u64 {
        let running = self.pods.iter().filter(|(_, pod)| !pod.gated && !pod.finished);
        if let Some(vms) = &self.vms {
            let plain = running.filter(|(name, _)| !name.contains('-')).map(|(_, pod)| pod.milli_cpu);
            return vms.taken(self) + plain.sum::<u64>();
        }
        self.machines.taken(running.map(|(name, pod)| (&**name, pod.milli_cpu)))
    }

    pub fn record(&mut self, record: &Record) -> Answer<RecordedObject> {
        self.record_status(record).map(RecordedObject::Quota)
    }

    fn record_status(&mut self, record: &Record) -> Answer<ArqWire> {
        let Some(quota) = self.quota.clone() else { return Answer::Stale(None) };
        let matches = quota.uid == number(&record.uid.to_string())
            && matches!(
                &record.object,
                RecordedIn::Status(version) if version.precondition() == Some(quota.version.to_string()),
            );
        if !matches {
            return Answer::Stale(Some(wire(Self::quota_json(&quota))));
        }
        let text = |list: &[(String, Quantity)], name: &str| {
            list.iter().find(|(key, _)| key == name).map(|(_, value)| value.to_string())
        };
        let (hard, used) = (&record.target.hard, &record.target.used);
        let status = Some((text(hard, "requests.cpu").unwrap(), text(used, "requests.cpu").unwrap()));
        let used_pods = text(used, "pods");
        assert_eq!(used_pods.is_some(), quota.counts_pods, "written is what the quota is about");
        let mut told = crate::gate::recording::status(record);
        for field in ["hard", "used", "charges"] {
            told.as_object_mut().unwrap().remove(field);
        }
        let charges = record.charges;
        if (&status, &used_pods, charges, &told)
            != (&quota.status, &quota.used_pods, quota.charges, &quota.told)
        {
            self.writes += 1;
            let version = self.next();
            self.put_quota(Quota { version, status, used_pods, charges, told, ..quota });
        }
        Answer::Done(wire(Self::quota_json(self.quota.as_ref().unwrap())))
    }

    pub fn read(&self, name: &str) -> Answer<PodWire> {
        Answer::Stale(self.pods.get(name).map(|pod| wire(Self::pod_json(name, pod))))
    }

    /// Refuses it, and says so if the pod is what was asked for.
    pub fn refuse(&self, release: &Release) -> Answer<PodWire> {
        let name = release.name.to_string();
        match self.pods.get(&name) {
            Some(pod) if Self::is_asked_for(pod, release) => Answer::Refused("not today".to_owned()),
            pod => Answer::Stale(pod.map(|pod| wire(Self::pod_json(&name, pod)))),
        }
    }

    fn is_asked_for(pod: &Pod, release: &Release) -> bool {
        pod.uid == number(&release.uid.to_string())
            && release.version.precondition() == Some(pod.version.to_string())
            && pod.gated
    }

    pub fn release(&mut self, release: &Release) -> Answer<PodWire> {
        let name = release.name.to_string();
        let Some(mut pod) = self.pods.get(&name).cloned() else { return Answer::Stale(None) };
        if Self::is_asked_for(&pod, release) {
            self.writes += 1;
            pod.version = self.next();
            pod.gated = false;
            self.put_pod(&name, pod.clone());
            return Answer::Done(wire(Self::pod_json(&name, &pod)));
        }
        Answer::Stale(Some(wire(Self::pod_json(&name, &pod))))
    }
}

fn number(uid: &str) -> u64 {
    uid.rsplit('-').next().unwrap().parse().unwrap()
}

pub fn wire<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}
