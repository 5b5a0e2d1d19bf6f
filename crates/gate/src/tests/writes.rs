//! What the gate writes and reads by requests, as the server does it.

use serde_json::{Value, json};
use sluice_index::{PodWire, Version};

use super::server::{CPU, Key, Kind, Server, is_gated, key, uid, wire};
use crate::recording::status;
use crate::{Answer, Record, RecordedIn, RecordedObject, Release};

/// The key of the object that records the charges of the cluster quota with this uid.
pub fn charge_key(uid: &str) -> Key {
    key(Kind::Charge, "sluice-system", uid)
}

impl Server {
    pub fn record(&mut self, record: &Record) -> Answer<RecordedObject> {
        let of_quota = record.uid.to_string();
        let charge = charge_key(&of_quota);
        match &record.object {
            RecordedIn::Status(version) => {
                let key = key(Kind::Quota, &record.name.namespace(), record.name.name());
                let answer = self.write_status(&key, record, &of_quota, version.precondition().as_deref());
                if matches!(answer, Answer::Done(_)) {
                    let is_written = record.target.used.iter().any(|(key, _)| key == "pods");
                    assert_eq!(is_written, self.counts_pods(&key), "written is what the quota is about");
                }
                answer.map(|object| RecordedObject::Quota(wire(object)))
            }
            RecordedIn::Charge(object) => {
                let (uid, version) = (object.uid.to_string(), object.version.precondition());
                self.write_status(&charge, record, &uid, version.as_deref())
                    .map(|object| RecordedObject::Charge(wire(object)))
            }
            RecordedIn::NewCharge { unshown } => {
                if unshown.is_some_and(|version| !self.show_limits(record, version)) {
                    return Answer::Busy(None);
                }
                if let Some(known) = self.get(&charge) {
                    return Answer::Stale(Some(RecordedObject::Charge(wire(known.clone()))));
                }
                self.writes += 1;
                let object = self.put(&charge, json!({"metadata": {}}));
                Answer::Done(RecordedObject::Charge(wire(object)))
            }
        }
    }

    fn write_status(
        &mut self,
        key: &Key,
        record: &Record,
        uid: &str,
        version: Option<&str>,
    ) -> Answer<Value> {
        let Some(mut object) = self.get(key).cloned() else { return Answer::Stale(None) };
        if !is_right(&object, uid, version) {
            return Answer::Stale(Some(object));
        }
        let mut status = status(record);
        if key.0 == Kind::Charge {
            let fields = status.as_object_mut().unwrap();
            fields.retain(|field, _| ["hard", "used", "charges"].contains(&field.as_str()));
        }
        if object["status"] == status {
            return Answer::Done(object);
        }
        self.writes += 1;
        object["status"] = status;
        Answer::Done(self.put(key, object))
    }

    /// Shows the limits of a cluster quota for the first time, if it has this version.
    pub fn show_limits(&mut self, record: &Record, version: Version) -> bool {
        let (of_quota, version) = (record.uid.to_string(), version.precondition());
        let is_asked_for = |key: &Key| is_right(&self.objects[key], &of_quota, version.as_deref());
        let Some(quota) = self.quotas().into_iter().find(is_asked_for) else { return false };
        self.edit(&quota, |quota| quota["status"] = json!({"total": {"hard": {CPU: "1"}}}));
        true
    }

    pub fn read(&self, pod: &Release) -> Answer<PodWire> {
        Answer::Stale(self.get(&key(Kind::Pod, &pod.namespace, &pod.name)).cloned().map(wire))
    }

    pub fn release(&mut self, release: &Release) -> Answer<PodWire> {
        if !self.is_asked_for(release) {
            return self.read(release);
        }
        let key = key(Kind::Pod, &release.namespace, &release.name);
        self.writes += 1;
        self.edit(&key, |pod| pod["spec"]["schedulingGates"] = json!([]));
        Answer::Done(wire(self.objects[&key].clone()))
    }

    /// Refuses it, and says so if the pod is what was asked for.
    pub fn refuse(&self, release: &Release) -> Answer<PodWire> {
        if self.is_asked_for(release) { Answer::Refused("not today".to_owned()) } else { self.read(release) }
    }

    fn is_asked_for(&self, release: &Release) -> bool {
        let pod = self.get(&key(Kind::Pod, &release.namespace, &release.name));
        let (uid, version) = (release.uid.to_string(), release.version.precondition());
        pod.is_some_and(|pod| is_right(pod, &uid, version.as_deref()) && is_gated(pod))
    }
}

/// Whether an object is the one that a request is about, in this version.
fn is_right(object: &Value, expected: &str, version: Option<&str>) -> bool {
    uid(object) == expected && object["metadata"]["resourceVersion"].as_str() == version
}
