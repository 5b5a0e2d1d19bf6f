//! Annotations of a namespace, as far as quotas select by them.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// Annotations, of which only can be asked whether one is there with exactly a certain value: a keyed hash of each pair, in
/// order. They may be a quarter of a megabyte per object, and which of them a quota will name is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Annotations(Box<[u64]>);

/// Random for each process, so that no collision can be prepared.
static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Annotations {
    pub(crate) fn of<'a>(pairs: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        let mut hashes: Vec<u64> = pairs.into_iter().map(|pair| KEYS.hash_one(pair)).collect();
        hashes.sort_unstable();
        Self(hashes.into())
    }

    pub(crate) fn read(annotations: Option<&BTreeMap<String, String>>) -> Self {
        Self::of(annotations.into_iter().flatten())
    }

    pub(crate) fn include(&self, wanted: &Self) -> bool {
        wanted.0.iter().all(|hash| self.0.binary_search(hash).is_ok())
    }
}
