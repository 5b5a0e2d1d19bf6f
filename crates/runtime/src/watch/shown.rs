//! What a watch has shown last, by which a list of another store is known.
//!
//! A restored store may go on with later versions than it was at: its API servers write at once, and
//! `etcdutl snapshot restore --bump-revision` leaves a gap for this very reason. Objects that were changed after the backup
//! are in it as they were before.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::WentBack;

/// So many objects are remembered, those that were changed last.
const MOST: usize = 1_024;

/// Versions of objects, by a hash of their uid.
#[derive(Debug, Default)]
pub(super) struct Shown {
    hasher: RandomState,
    versions: HashMap<u64, u64>,
    order: VecDeque<u64>,
}

impl Shown {
    fn read(&self, meta: &ObjectMeta) -> Option<(u64, u64)> {
        let version = meta.resource_version.as_ref()?.parse().ok()?;
        Some((self.hasher.hash_one(meta.uid.as_ref()?), version))
    }

    pub fn show(&mut self, meta: &ObjectMeta) {
        let Some((key, version)) = self.read(meta) else { return };
        if self.versions.insert(key, version).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.versions.remove(&oldest);
        }
    }

    /// Whether an object of a list is as it was before the watch has shown it, although the list is later than that.
    pub fn went_back(&self, meta: &ObjectMeta, list: Option<&str>) -> Option<WentBack> {
        let (key, to) = self.read(meta)?;
        let (from, listed) = (*self.versions.get(&key)?, list?.parse::<u64>().ok()?);
        (to < from && from <= listed).then_some(WentBack { from, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(uid: &str, version: u64) -> ObjectMeta {
        ObjectMeta {
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn an_object_that_is_as_it_was_before_is_of_another_store() {
        let mut shown = Shown::default();
        for version in [5, 9] {
            shown.show(&meta("a", version));
        }
        for (uid, version, list, expected) in [
            ("a", 9, "20", None),
            ("a", 12, "20", None),
            ("a", 5, "20", Some(WentBack { from: 9, to: 5 })),
            ("a", 5, "8", None),
            ("b", 5, "20", None),
            ("a", 5, "", None),
        ] {
            assert_eq!(
                shown.went_back(&meta(uid, version), Some(list)),
                expected,
                "{uid} {version} of {list}"
            );
        }
    }

    #[test]
    fn what_was_shown_long_ago_is_forgotten() {
        let mut shown = Shown::default();
        for number in 0..=MOST {
            shown.show(&meta(&number.to_string(), 7));
        }
        assert_eq!((shown.versions.len(), shown.order.len()), (MOST, MOST));
        assert_eq!(shown.went_back(&meta("0", 5), Some("20")), None);
        assert!(shown.went_back(&meta("1", 5), Some("20")).is_some());
    }
}
