//! Object metadata without the parts that no reader here needs.
//!
//! The tree of `managedFields` is the larger part of what decoding an object costs, so it is skipped, and labels and
//! annotations are too, except where they are read.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, OwnerReference, Time};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use sluice_api::names;

/// `metadata`, with `L` for labels, `A` for annotations, `M` for an entry of `managedFields` and `O` for an ownerReference.
// Not one struct flattened into another: serde would keep a copy of all that the inner one does not name.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta<L = IgnoredAny, A = IgnoredAny, M = IgnoredAny, O = IgnoredAny> {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<L>,
    annotations: Option<A>,
    managed_fields: Option<Vec<M>>,
    owner_references: Option<Vec<O>>,
}

/// Labels, annotations, entries of `managedFields` and ownerReferences.
type Generic<L, A, M, O> = (Option<L>, Option<A>, Option<Vec<M>>, Option<Vec<O>>);

impl<L, A, M, O> Meta<L, A, M, O> {
    /// The object's metadata without what is generic, and that.
    fn split(self) -> (ObjectMeta, Generic<L, A, M, O>) {
        let meta = ObjectMeta {
            name: self.name,
            namespace: self.namespace,
            uid: self.uid,
            resource_version: self.resource_version,
            generation: self.generation,
            creation_timestamp: self.creation_timestamp,
            deletion_timestamp: self.deletion_timestamp,
            deletion_grace_period_seconds: self.deletion_grace_period_seconds,
            ..ObjectMeta::default()
        };
        (meta, (self.labels, self.annotations, self.managed_fields, self.owner_references))
    }
}

/// For `#[serde(deserialize_with)]`: name, uid, version, generation and times.
pub(crate) fn bare<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    Ok(Meta::<IgnoredAny>::deserialize(deserializer)?.split().0)
}

/// The label that says who has made an `AAQ`.
#[derive(Deserialize)]
struct MakerLabel {
    #[serde(rename = "quota.sluice.dev/made-by")]
    maker: Option<String>,
}

/// The label that makes a pod the target of a migration.
#[derive(Deserialize)]
struct MigrationLabel {
    #[serde(rename = "kubevirt.io/migrationJobUID")]
    migration: Option<String>,
}

/// The annotation that names who created a pod.
#[derive(Deserialize)]
struct CreatorAnnotation {
    #[serde(rename = "quota.sluice.dev/created-by")]
    creator: Option<String>,
}

/// An entry of `ownerReferences`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
    controller: Option<bool>,
}

impl Owner {
    fn is_machine(&self) -> bool {
        let is_kubevirt = self.api_version.split_once('/').is_some_and(|(group, _)| group == "kubevirt.io");
        is_kubevirt && self.kind == "VirtualMachineInstance" && self.controller == Some(true)
    }

    fn is_pod(&self) -> bool {
        self.api_version == "v1" && self.kind == "Pod" && self.controller == Some(true)
    }

    fn is_vm(&self) -> bool {
        let is_kubevirt = self.api_version.split_once('/').is_some_and(|(group, _)| group == "kubevirt.io");
        is_kubevirt && self.kind == "VirtualMachine" && self.controller == Some(true)
    }

    fn reference(self) -> OwnerReference {
        let Self { api_version, kind, name, uid, controller } = self;
        OwnerReference { api_version, kind, name, uid, controller, ..OwnerReference::default() }
    }
}

/// An entry of `managedFields` of a pod, as far as it tells that the pod was resized.
#[derive(Deserialize)]
struct ResizeEntry {
    subresource: Option<Resize>,
    time: Option<Time>,
}

/// A subresource, as far as it is that of resizes: other names are not kept.
struct Resize(bool);

impl<'de> Deserialize<'de> for Resize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(std::borrow::Cow::<str>::deserialize(deserializer)? == RESIZE))
    }
}

const RESIZE: &str = "resize";

impl ResizeEntry {
    fn entry(self) -> Option<ManagedFieldsEntry> {
        let Self { subresource, time } = self;
        let is_resize = subresource.is_some_and(|Resize(is_resize)| is_resize);
        let subresource = is_resize.then(|| RESIZE.to_owned())?;
        Some(ManagedFieldsEntry { subresource: Some(subresource), time, ..ManagedFieldsEntry::default() })
    }
}

/// For `#[serde(deserialize_with)]`: as [`bare`], and of the labels the one that makes a pod the target of a migration, of
/// the annotations the one that names the pod's creator, the reference to the VirtualMachineInstance or the pod that
/// controls it, and of `managedFields` when it was resized. A pod without one of these has no map or list of that.
pub(crate) fn of_pod<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let (meta, (label, creator, writers, owners)) =
        Meta::<MigrationLabel, CreatorAnnotation, ResizeEntry, Owner>::deserialize(deserializer)?.split();
    let map = |key: &str, value: String| BTreeMap::from([(key.to_owned(), value)]);
    let migration = label.and_then(|label| label.migration);
    let labels = migration.map(|uid| map(names::MIGRATION_JOB_LABEL, uid));
    let creator = creator.and_then(|annotations| annotations.creator);
    let annotations = creator.map(|name| map(names::CREATED_BY_ANNOTATION, name));
    let controls = |owner: &Owner| owner.is_machine() || owner.is_pod();
    let owner = owners.unwrap_or_default().into_iter().find(controls);
    let owner_references = owner.map(|owner| vec![owner.reference()]);
    let resizes: Vec<_> = writers.unwrap_or_default().into_iter().filter_map(ResizeEntry::entry).collect();
    let managed_fields = (!resizes.is_empty()).then_some(resizes);
    Ok(ObjectMeta { labels, annotations, owner_references, managed_fields, ..meta })
}

/// The annotation that says how long a migration's target may be pending.
#[derive(Deserialize)]
struct TimeoutAnnotation {
    #[serde(rename = "kubevirt.io/migrationPendingPodTimeoutSeconds")]
    timeout: Option<String>,
}

/// For `#[serde(deserialize_with)]`: as [`bare`], and of the annotations the one that says how long a migration's target may
/// be pending.
pub(crate) fn of_migration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let (meta, (_, annotations, _, _)) =
        Meta::<IgnoredAny, TimeoutAnnotation>::deserialize(deserializer)?.split();
    let timeout = annotations.and_then(|annotations| annotations.timeout);
    let annotations =
        timeout.map(|text| BTreeMap::from([(names::PENDING_TIMEOUT_ANNOTATION.to_owned(), text)]));
    Ok(ObjectMeta { annotations, ..meta })
}

/// The annotation that asks for an even number of CPUs.
#[derive(Deserialize)]
struct EvenEmulatorAnnotation {
    #[serde(rename = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity")]
    even: Option<IgnoredAny>,
}

/// For `#[serde(deserialize_with)]`: as [`bare`], the key of the annotation that asks for an even number of CPUs, of which
/// KubeVirt ignores the value, and the reference to the VirtualMachine that controls it.
pub(crate) fn of_vmi<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let (meta, (_, annotations, _, owners)) =
        Meta::<IgnoredAny, EvenEmulatorAnnotation, IgnoredAny, Owner>::deserialize(deserializer)?.split();
    let even = annotations.and_then(|annotations| annotations.even);
    let annotations =
        even.map(|_| BTreeMap::from([(names::EVEN_EMULATOR_ANNOTATION.to_owned(), String::new())]));
    let owner = owners.unwrap_or_default().into_iter().find(Owner::is_vm);
    let owner_references = owner.map(|owner| vec![owner.reference()]);
    Ok(ObjectMeta { annotations, owner_references, ..meta })
}

#[derive(Deserialize)]
struct PauseAnnotations {
    #[serde(rename = "quota.sluice.dev/paused")]
    until: Option<String>,
    #[serde(rename = "quota.sluice.dev/paused-since")]
    since: Option<String>,
    #[serde(rename = "quota.sluice.dev/pause-rate")]
    rate: Option<String>,
}

/// For `#[serde(deserialize_with)]`: as [`bare`], with the label that says who has made an `AAQ`, and the annotations of a
/// pause.
pub(crate) fn of_aaq<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let (meta, (label, annotations, _, _)) =
        Meta::<MakerLabel, PauseAnnotations>::deserialize(deserializer)?.split();
    let pairs = annotations.map(|PauseAnnotations { until, since, rate }| {
        [
            (names::PAUSED_ANNOTATION, until),
            (names::PAUSED_SINCE_ANNOTATION, since),
            (names::PAUSE_RATE_ANNOTATION, rate),
        ]
    });
    let known = pairs.into_iter().flatten().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    let annotations: BTreeMap<_, _> = known.collect();
    let maker = label.and_then(|label| label.maker);
    let labels = maker.map(|name| BTreeMap::from([(names::MADE_BY_LABEL.to_owned(), name)]));
    Ok(ObjectMeta { labels, annotations: Some(annotations).filter(|all| !all.is_empty()), ..meta })
}

/// The annotation that matters for head-room.
#[derive(Deserialize)]
struct OptOutAnnotation {
    #[serde(rename = "quota.sluice.dev/skip-headroom")]
    opt_out: Option<String>,
}

impl OptOutAnnotation {
    fn map(self) -> BTreeMap<String, String> {
        self.opt_out.into_iter().map(|value| (names::OWN_OPT_OUT.to_owned(), value)).collect()
    }
}

/// An entry of `managedFields`, as far as it tells when its manager wrote the specification.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecWriter {
    subresource: Option<String>,
    time: Option<Time>,
    fields_v1: Option<SpecFields>,
}

#[derive(Deserialize)]
struct SpecFields {
    #[serde(rename = "f:spec")]
    spec: Option<IgnoredAny>,
}

impl SpecWriter {
    fn entry(self) -> Option<ManagedFieldsEntry> {
        self.fields_v1?.spec?;
        let Self { subresource, time, .. } = self;
        Some(ManagedFieldsEntry { subresource, time, ..ManagedFieldsEntry::default() })
    }
}

/// For `#[serde(deserialize_with)]`: as [`bare`], with the labels, the annotation that matters for head-room, the
/// ownerReferences, and of `managedFields` when the specification was written.
pub(crate) fn owned<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    type Owned = Meta<BTreeMap<String, String>, OptOutAnnotation, SpecWriter, OwnerReference>;
    let (meta, (labels, annotations, writers, owner_references)) = Owned::deserialize(deserializer)?.split();
    let managed_fields = writers.map(|entries| entries.into_iter().filter_map(SpecWriter::entry).collect());
    let annotations = annotations.map(OptOutAnnotation::map);
    Ok(ObjectMeta { labels, annotations, owner_references, managed_fields, ..meta })
}

/// For `#[serde(deserialize_with)]`: as [`bare`], with all labels and annotations.
pub(crate) fn labelled<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let (meta, (labels, annotations, ..)) =
        Meta::<BTreeMap<String, String>, BTreeMap<String, String>>::deserialize(deserializer)?.split();
    Ok(ObjectMeta { labels, annotations, ..meta })
}

/// An entry of `managedFields` without the tree of fields.
#[derive(Deserialize)]
struct Writer {
    manager: Option<String>,
    subresource: Option<String>,
    time: Option<Time>,
}

/// For `#[serde(deserialize_with)]`: as [`bare`], and who wrote which subresource when.
pub(crate) fn managed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let (meta, (_, _, writers, _)) =
        Meta::<IgnoredAny, IgnoredAny, Writer>::deserialize(deserializer)?.split();
    let entry = |Writer { manager, subresource, time }| ManagedFieldsEntry {
        manager,
        subresource,
        time,
        ..Default::default()
    };
    let managed_fields = writers.map(|entries| entries.into_iter().map(entry).collect());
    Ok(ObjectMeta { managed_fields, ..meta })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_read_is_kept() {
        let object = json!({
            "name": "p", "uid": "u", "generation": 3,
            "labels": { "app": "web", names::MIGRATION_JOB_LABEL: "m" },
            "annotations": { "note": "x", names::OWN_OPT_OUT: "true" },
            "managedFields": [{ "manager": "kubelet", "fieldsV1": { "f:status": {} } }],
        });
        let bare = bare(&object).unwrap();
        assert_eq!((bare.name.as_deref(), bare.generation), (Some("p"), Some(3)));
        assert_eq!((bare.labels, bare.annotations, bare.managed_fields), (None, None, None));
        let map = |key: &str, value: &str| Some(BTreeMap::from([(key.to_owned(), value.to_owned())]));
        assert_eq!(of_pod(&object).unwrap().labels, map(names::MIGRATION_JOB_LABEL, "m"));
        assert_eq!(of_pod(json!({ "labels": { "app": "web" } })).unwrap().labels, None);
        let machine = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "uid": "vm", "controller": true,
        });
        let other = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "uid": "rs", "controller": true });
        let annotations = json!({ "note": "x", names::CREATED_BY_ANNOTATION: "me" });
        let launcher =
            of_pod(json!({ "ownerReferences": [other, machine], "annotations": annotations })).unwrap();
        assert_eq!(launcher.owner_references.unwrap().first().unwrap().uid, "vm");
        assert_eq!(launcher.annotations, map(names::CREATED_BY_ANNOTATION, "me"));
        let pod = of_pod(json!({ "ownerReferences": [other], "annotations": annotations })).unwrap();
        assert_eq!((pod.owner_references, pod.annotations), (None, map(names::CREATED_BY_ANNOTATION, "me")));
        let pod =
            json!({ "apiVersion": "v1", "kind": "Pod", "name": "launcher", "uid": "l", "controller": true });
        let attached = of_pod(json!({ "ownerReferences": [other, pod] })).unwrap();
        assert_eq!(attached.owner_references.unwrap().first().unwrap().name, "launcher");
        let writers = json!([{ "manager": "kubelet", "subresource": "status", "time": "2026-01-01T00:00:00Z" },
            { "manager": "vpa", "subresource": "resize", "time": "2026-01-01T00:00:07Z", "fieldsV1": { "f:spec": {} } }]);
        let resized = of_pod(json!({ "managedFields": writers })).unwrap().managed_fields.unwrap();
        assert_eq!(resized.first().unwrap().time.as_ref().unwrap().0.as_second(), 1_767_225_607);
        assert_eq!(resized.len(), 1);
        assert_eq!(of_pod(&object).unwrap().managed_fields, None);
        let timed = json!({ "annotations": { "note": "x", names::PENDING_TIMEOUT_ANNOTATION: "60" } });
        let timed = of_migration(timed).unwrap().annotations;
        assert_eq!(timed, map(names::PENDING_TIMEOUT_ANNOTATION, "60"));
        assert_eq!(of_migration(&object).unwrap().annotations, None);
        let paused = json!({ "annotations": { "note": "x", names::PAUSED_ANNOTATION: "noon" } });
        assert_eq!(of_aaq(paused).unwrap().annotations, map(names::PAUSED_ANNOTATION, "noon"));
        let begun = json!({ "annotations": { names::PAUSED_SINCE_ANNOTATION: "noon" } });
        assert_eq!(of_aaq(begun).unwrap().annotations, map(names::PAUSED_SINCE_ANNOTATION, "noon"));
        assert_eq!(of_aaq(&object).unwrap().annotations, None);
        let owned = owned(&object).unwrap();
        assert_eq!(owned.annotations, map(names::OWN_OPT_OUT, "true"));
        assert_eq!(owned.labels.unwrap().len(), 2);
        let writers = managed(&object).unwrap().managed_fields.unwrap();
        assert_eq!(writers.first().unwrap().manager.as_deref(), Some("kubelet"));
    }
}
