//! What there is at the fake API server: namespaces, each with a quota, their pods, and maybe a rule that charges them.

mod rule;

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;

use super::kept::{How, Kept};
use super::object::{Event, Kind, Object, Part, Refused, namespace_version};
use crate::cluster_json;
use crate::pod_json::{Facts, Stage, shape};

/// How much there is at the beginning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Size {
    /// Namespaces, each with a quota that has room for the pods that run.
    pub namespaces: u64,
    /// Pods, as many in each namespace.
    pub pods: u64,
    /// How many of the pods wait.
    pub waiting: u64,
}

/// Everything there is, and what happened to it.
pub struct World {
    /// Of the last change, as etcd counts: one sequence for all kinds.
    version: u64,
    pods: BTreeMap<u64, Facts>,
    tenants: Vec<Tenant>,
    kept: Kept,
    /// Pods that are to run next, and pods that are to be deleted next.
    released: VecDeque<u64>,
    ended: VecDeque<u64>,
    next_pod: u64,
    /// What happened, the oldest first.
    pod_events: Vec<Event>,
    quota_events: Vec<Event>,
    rule_events: Vec<Event>,
    releases: u64,
    excess: u64,
    /// How often an object was kept that is no lease.
    told: u64,
}

/// A namespace and its quota.
#[derive(Debug, Default)]
struct Tenant {
    /// Of the quota.
    version: u64,
    /// Limit of pods.
    room: u64,
    /// Pods that have no gate and have not ended.
    counted: u64,
    gated: u64,
    /// Pods that run, the oldest first.
    running: VecDeque<u64>,
    status: Option<Value>,
    /// What the status says: pods that count, and pods that wait.
    recorded: Option<(u64, u64)>,
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl World {
    pub(super) fn new(size: Size) -> Self {
        let Size { namespaces, pods: count, waiting } = size;
        let each = count.checked_div(namespaces).unwrap_or(0).max(1);
        let waits_one_in = count.checked_div(waiting).unwrap_or(0).max(1);
        let quota = |number| Tenant { version: namespaces + namespace_version(number), ..Tenant::default() };
        let mut tenants: Vec<Tenant> = (0..namespaces).map(quota).collect();
        let mut pods = BTreeMap::new();
        for number in 0..count {
            let namespace = number / each;
            let Some(tenant) = tenants.get_mut(index(namespace)) else { break };
            let waits = waiting > 0 && number % waits_one_in == 0;
            if waits {
                tenant.gated += 1;
            } else {
                tenant.counted += 1;
                tenant.running.push_back(number);
            }
            let stage = if waits { Stage::Gated } else { Stage::Running };
            let version = 2 * namespaces + number + 1;
            pods.insert(number, Facts { number, namespace, version, shape: shape(number), stage });
        }
        for tenant in &mut tenants {
            tenant.room = tenant.counted;
        }
        Self {
            version: (2 * namespaces + count).max(1),
            pods,
            tenants,
            kept: Kept::default(),
            released: VecDeque::new(),
            ended: VecDeque::new(),
            next_pod: count,
            pod_events: Vec::new(),
            quota_events: Vec::new(),
            rule_events: Vec::new(),
            releases: 0,
            excess: 0,
            told: 0,
        }
    }

    /// A pod is created behind the gate. Like all that follows, says whether there is anything that it could be done to.
    pub fn create(&mut self, namespace: u64) -> bool {
        let number = self.next_pod;
        let Some(tenant) = self.tenants.get_mut(index(namespace)) else { return false };
        tenant.gated += 1;
        self.next_pod += 1;
        let pod = Facts { number, namespace, version: 0, shape: shape(number), stage: Stage::Gated };
        self.put("ADDED", false, pod);
        true
    }

    /// The pod that was released first of those that do not run yet runs.
    pub fn start(&mut self) -> bool {
        let Some(pod) = self.released.pop_front().and_then(|number| self.pods.get(&number).copied()) else {
            return false;
        };
        if let Some(tenant) = self.tenants.get_mut(index(pod.namespace)) {
            tenant.running.push_back(pod.number);
        }
        self.put("MODIFIED", false, Facts { stage: Stage::Running, ..pod });
        true
    }

    /// Something about a running pod of the namespace changes that does not matter to quotas.
    pub fn touch(&mut self, namespace: u64) -> bool {
        let oldest = self.tenants.get(index(namespace)).and_then(|tenant| tenant.running.front());
        let Some(pod) = oldest.and_then(|number| self.pods.get(number).copied()) else { return false };
        self.put("MODIFIED", false, pod);
        true
    }

    /// The oldest running pod of the namespace ends.
    pub fn end(&mut self, namespace: u64) -> bool {
        let Some(tenant) = self.tenants.get_mut(index(namespace)) else { return false };
        let Some(pod) = tenant.running.pop_front().and_then(|number| self.pods.get(&number).copied()) else {
            return false;
        };
        tenant.counted = tenant.counted.saturating_sub(1);
        self.ended.push_back(pod.number);
        self.put("MODIFIED", false, Facts { stage: Stage::Ended, ..pod });
        true
    }

    /// The pod that ended first of those that are still there is deleted.
    pub fn delete(&mut self) -> bool {
        let Some(pod) = self.ended.pop_front().and_then(|number| self.pods.get(&number).copied()) else {
            return false;
        };
        self.put("DELETED", false, pod);
        true
    }

    /// Removes the gate of a pod that has one.
    pub(super) fn release(&mut self, number: u64) -> Option<Facts> {
        let pod = self.pods.get(&number).copied().filter(|pod| pod.stage == Stage::Gated)?;
        let tenant = self.tenants.get_mut(index(pod.namespace))?;
        tenant.gated = tenant.gated.saturating_sub(1);
        tenant.counted += 1;
        self.excess += u64::from(tenant.counted > tenant.room);
        self.released.push_back(number);
        self.releases += 1;
        Some(self.put("MODIFIED", true, Facts { stage: Stage::Released, ..pod }))
    }

    fn put(&mut self, word: &'static str, is_caused: bool, pod: Facts) -> Facts {
        self.version += 1;
        let (version, facts) = (self.version, Facts { version: self.version, ..pod });
        if word == "DELETED" {
            self.pods.remove(&facts.number);
        } else {
            self.pods.insert(facts.number, facts);
        }
        self.pod_events.push(Event { word, is_caused, version, object: Object::Pod(facts) });
        facts
    }

    /// Replaces the status of a namespace's quota, if what was sent is about the quota as it is.
    pub(super) fn record(&mut self, namespace: u64, sent: &Value) -> Result<String, Refused> {
        let tenant = self.tenants.get_mut(index(namespace)).ok_or(Refused::Missing)?;
        let text = |pointer: &str| sent.pointer(pointer).and_then(Value::as_str);
        let is_current = text("/metadata/uid") == Some(&*cluster_json::quota_uid(namespace))
            && text("/metadata/resourceVersion").is_none_or(|version| version == tenant.version.to_string());
        if !is_current {
            return Err(Refused::Conflict);
        }
        let status = sent.get("status").cloned();
        let changes = tenant.status != status;
        if changes {
            self.version += 1;
            tenant.version = self.version;
            let used = text("/status/used/pods").and_then(|used| used.parse().ok());
            tenant.recorded = used.zip(sent.pointer("/status/held").and_then(Value::as_u64));
            tenant.status = status;
        }
        let quota = tenant.print(namespace);
        if changes {
            let (version, object) = (self.version, Object::Quota(quota.clone()));
            self.quota_events.push(Event { word: "MODIFIED", is_caused: true, version, object });
        }
        Ok(quota)
    }

    /// As [`Kept::write`].
    pub(super) fn keep(&mut self, how: How, path: String, sent: Value) -> Result<String, Refused> {
        let is_lease = path.contains("/leases/");
        let written = self.kept.write(how, path, sent, self.version + 1);
        if written.is_ok() {
            self.version += 1;
            self.told += u64::from(!is_lease);
        }
        written
    }

    pub(super) fn kept(&self, path: &str) -> Option<&Value> {
        self.kept.get(path)
    }

    pub(super) fn pod(&self, namespace: u64, number: u64) -> Option<Facts> {
        self.pods.get(&number).copied().filter(|pod| pod.namespace == namespace)
    }

    pub(super) fn quota(&self, namespace: u64) -> Option<String> {
        self.tenants.get(index(namespace)).map(|tenant| tenant.print(namespace))
    }

    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    /// What happened to objects of a kind, the oldest first.
    pub(super) fn events(&self, kind: Kind) -> &[Event] {
        match kind {
            Kind::Pods => &self.pod_events,
            Kind::Quotas => &self.quota_events,
            Kind::Rules => &self.rule_events,
            Kind::Namespaces | Kind::Other => &[],
        }
    }

    /// A part of the list of a kind's objects.
    pub(super) fn part(&self, kind: Kind, first: u64, limit: u64) -> Part {
        let most = index(limit);
        let take = |numbers: &mut dyn Iterator<Item = u64>| {
            let mut numbers: Vec<u64> = numbers.take(most.saturating_add(1)).collect();
            let next = if numbers.len() > most { numbers.pop() } else { None };
            (numbers, next)
        };
        let (numbers, next) = match kind {
            Kind::Pods => take(&mut self.pods.range(first..).map(|(number, _)| *number)),
            Kind::Namespaces | Kind::Quotas => take(&mut (first..self.tenants.len() as u64)),
            Kind::Rules => take(&mut (first..1)),
            Kind::Other => (Vec::new(), None),
        };
        let object = |number: u64| match kind {
            Kind::Pods => self.pods.get(&number).copied().map(Object::Pod),
            Kind::Quotas => self.quota(number).map(Object::Quota),
            Kind::Rules => self.rule().map(Object::Rule),
            _ => Some(Object::Namespace(number)),
        };
        Part { version: self.version, objects: numbers.into_iter().filter_map(object).collect(), next }
    }

    /// Whether every quota's status says what is the case, and no pod waits for room that is there.
    pub fn is_settled(&self) -> bool {
        self.tenants.iter().all(Tenant::is_settled)
    }

    /// Namespaces in which pods wait.
    pub fn waiting(&self) -> Vec<u64> {
        (0..).zip(&self.tenants).filter(|(_, tenant)| tenant.gated > 0).map(|(number, _)| number).collect()
    }

    /// How many pods wait in a namespace.
    pub fn held(&self, namespace: u64) -> u64 {
        self.tenants.get(index(namespace)).map_or(0, |tenant| tenant.gated)
    }

    /// Pods that were released.
    pub const fn releases(&self) -> u64 {
        self.releases
    }

    /// Pods that were released although their quota was full: always 0, or the gate is at fault.
    pub const fn excess(&self) -> u64 {
        self.excess
    }

    /// How often the status of a quota was changed.
    pub fn quota_writes(&self) -> usize {
        self.quota_events.len()
    }

    /// Grows with each write of Sluice but those of its lease.
    pub fn writes(&self) -> u64 {
        u64::try_from(self.quota_events.len()).unwrap_or(u64::MAX).saturating_add(self.releases + self.told)
    }
}

impl Tenant {
    fn print(&self, namespace: u64) -> String {
        cluster_json::quota(namespace, self.version, self.room, self.status.as_ref()).to_string()
    }

    fn is_settled(&self) -> bool {
        self.recorded == Some((self.counted, self.gated)) && (self.gated == 0 || self.counted >= self.room)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SIZE: Size = Size { namespaces: 2, pods: 8, waiting: 2 };

    fn status(world: &World, namespace: u64, pods: u64, held: u64) -> Value {
        let quota: Value = serde_json::from_str(&world.quota(namespace).unwrap()).unwrap();
        let status = json!({"used": {"pods": pods.to_string()}, "held": held});
        json!({"metadata": quota["metadata"], "status": status})
    }

    #[test]
    fn a_pod_waits_in_each_namespace_and_goes_when_another_ends() {
        let mut world = World::new(SIZE);
        for namespace in 0..2 {
            let sent = status(&world, namespace, 3, 1);
            assert!(world.record(namespace, &sent).is_ok());
        }
        assert!(world.is_settled());
        assert!(world.end(0) && !world.is_settled(), "there is room now, and it is not recorded");
        assert_eq!(world.release(0).map(|pod| pod.stage), Some(Stage::Released));
        assert!(world.release(0).is_none() && world.release(1).is_none(), "no gate is left");
        let sent = status(&world, 0, 3, 0);
        assert!(world.record(0, &sent).is_ok());
        assert!(world.is_settled());
        assert!(world.start() && !world.start() && world.delete() && !world.delete());
        let words: Vec<_> = world.events(Kind::Pods).iter().map(|event| event.word).collect();
        assert_eq!(words, ["MODIFIED", "MODIFIED", "MODIFIED", "DELETED"]);
        assert_eq!((world.releases(), world.excess(), world.quota_writes()), (1, 0, 3));
        assert!(world.release(4).is_some());
        assert_eq!(world.excess(), 1, "its quota was full");
    }

    #[test]
    fn a_status_is_written_to_the_version_that_it_is_about() {
        let mut world = World::new(SIZE);
        let (sent, version) = (status(&world, 1, 3, 1), world.version());
        assert!(world.record(1, &sent).is_ok());
        assert_eq!(
            (world.record(1, &sent), world.record(2, &sent)),
            (Err(Refused::Conflict), Err(Refused::Missing))
        );
        let again = status(&world, 1, 3, 1);
        assert!(world.record(1, &again).is_ok());
        assert_eq!((world.version(), world.quota_writes()), (version + 1, 1), "it says what it said");
        let mut other = again;
        other["metadata"]["uid"] = json!("other");
        assert_eq!(world.record(1, &other), Err(Refused::Conflict));
    }

    #[test]
    fn parts_are_a_whole_together() {
        let mut world = World::new(SIZE);
        assert!(world.create(1) && !world.create(2));
        let first = world.part(Kind::Pods, 0, 5);
        let rest = world.part(Kind::Pods, first.next.unwrap(), 5);
        let numbers = first.objects.iter().chain(&rest.objects).map(|object| match object {
            Object::Pod(pod) => pod.number,
            other => panic!("{other:?} is no pod"),
        });
        assert!(numbers.eq(0..9) && rest.next.is_none());
        let (one, two) = (world.part(Kind::Quotas, 0, 1), world.part(Kind::Quotas, 1, 1));
        assert_eq!((one.objects.len(), one.next, two.objects.len(), two.next), (1, Some(1), 1, None));
        assert!(world.part(Kind::Namespaces, 0, u64::MAX).next.is_none());
        assert!(world.part(Kind::Other, 0, u64::MAX).objects.is_empty());
        assert!(World::new(Size::default()).part(Kind::Pods, 0, u64::MAX).objects.is_empty());
    }
}
