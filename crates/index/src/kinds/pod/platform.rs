//! Pods that controllers of the platform create beside those of tenants: what is kept of one to tell whether it is exempt.

use std::ops::Bound;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_engine::{PodId, Uid};

use super::ownership::creator;
use super::records::Pods;
use super::types::{PlatformKey, PlatformPod, PodReference};
use crate::kinds::namespace::NamespaceId;

impl PlatformPod {
    /// Reads it from the metadata of a pod; `None` if that has no stamp.
    #[must_use]
    pub fn of(meta: &ObjectMeta) -> Option<Self> {
        let references = meta.owner_references.iter().flatten();
        let controller = references
            .into_iter()
            .find(|owner| owner.kind == "Pod")
            .map(|owner| PodReference { name: owner.name.as_str().into(), uid: Uid::parse(&owner.uid) });
        Some(Self { created_by: creator(meta)?, controller })
    }
}

impl Pods {
    /// Whether any pod of the platform may name another as its controller: if there is none, none does.
    #[must_use]
    pub fn have_attached(&self) -> bool {
        !self.of_platform.is_empty()
    }

    /// The pods of the platform that name this pod of their namespace as their controller.
    #[must_use]
    pub fn attached_to(&self, namespace: NamespaceId, pod: &Uid) -> Vec<PodId> {
        let key = |id| (namespace, Some(pod.clone()), PodId(id));
        self.of_platform.range(key(0)..=key(u32::MAX)).map(|(.., id)| *id).collect()
    }

    /// The first pod of the platform; with `after`, the one after that.
    #[must_use]
    pub fn next_of_platform(&self, after: Option<&PlatformKey>) -> Option<&PlatformKey> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.of_platform.range((after, Bound::Unbounded)).next()
    }

    pub(super) fn platform_key(&self, id: PodId) -> Option<PlatformKey> {
        let record = self.get(id)?;
        let controller = record.platform()?.controller.as_ref();
        Some((record.namespace, controller.map(|controller| controller.uid.clone()), id))
    }
}
