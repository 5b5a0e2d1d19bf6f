//! What many quotas have in common is kept once: platforms give their tenants quotas of a few sizes.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use sluice_engine::{CompiledQuota, Format};

/// Keys of a resource list, sorted.
pub(crate) type Keys = Arc<[Box<str>]>;

/// Specifications and lists of keys; dropped when no quota has them any more.
#[derive(Debug, Default)]
pub(crate) struct SharedSpecs {
    specs: HashSet<Exactly>,
    keys: HashSet<Keys>,
    since_sweep: usize,
}

/// Equal only if written the same too: two quotas with `1` and `1000m` show different texts.
#[derive(Debug)]
struct Exactly(Arc<CompiledQuota>);

impl Exactly {
    fn written(&self) -> impl Iterator<Item = (&str, i128, Format)> {
        self.0.entries.iter().map(|entry| (&*entry.key, entry.hard.nanos(), entry.hard.format()))
    }
}

impl PartialEq for Exactly {
    fn eq(&self, other: &Self) -> bool {
        self.written().eq(other.written()) && self.0.scopes == other.0.scopes
    }
}

impl Eq for Exactly {}

impl Hash for Exactly {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.written().for_each(|entry| entry.hash(state));
        self.0.scopes.hash(state);
    }
}

impl SharedSpecs {
    /// The specification, or an equal one that is there already.
    pub fn spec(&mut self, spec: CompiledQuota) -> Arc<CompiledQuota> {
        self.sweep();
        let spec = Exactly(Arc::new(spec));
        if let Some(known) = self.specs.get(&spec) {
            return Arc::clone(&known.0);
        }
        let shared = Arc::clone(&spec.0);
        self.specs.insert(spec);
        shared
    }

    /// The keys, or an equal list that is there already.
    pub fn keys(&mut self, keys: Vec<&str>) -> Keys {
        self.sweep();
        let keys: Keys = keys.into_iter().map(Box::from).collect();
        if let Some(known) = self.keys.get(&keys) {
            return Arc::clone(known);
        }
        self.keys.insert(Arc::clone(&keys));
        keys
    }

    /// After as many calls as there are values, so that the cost per call is constant.
    fn sweep(&mut self) {
        self.since_sweep += 1;
        if self.since_sweep < 1024 + self.specs.len() + self.keys.len() {
            return;
        }
        self.since_sweep = 0;
        self.specs.retain(|spec| Arc::strong_count(&spec.0) > 1);
        self.keys.retain(|keys| Arc::strong_count(keys) > 1);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use sluice_engine::quota_spec::compile;
    use sluice_engine::{Quantity, RawQuotaSpec};

    use super::*;

    fn spec(cpu: &str) -> CompiledQuota {
        let hard = [("cpu".to_owned(), Quantity::parse_json_text(cpu).unwrap())].into();
        compile(&RawQuotaSpec { hard, ..RawQuotaSpec::default() }).unwrap()
    }

    #[test]
    fn only_what_is_written_the_same_is_shared_and_it_goes_with_its_last_quota() {
        let mut shared = SharedSpecs::default();
        let first = shared.spec(spec("1Ki"));
        assert!(Arc::ptr_eq(&first, &shared.spec(spec("1Ki"))));
        assert!(!Arc::ptr_eq(&first, &shared.spec(spec("1024"))), "it is the same amount");
        assert!(Arc::ptr_eq(&shared.keys(vec!["a", "b"]), &shared.keys(vec!["a", "b"])));
        drop(first);
        for _ in 0..3000 {
            shared.keys(Vec::new());
        }
        assert!(shared.specs.is_empty() && shared.keys.iter().all(|keys| keys.is_empty()), "{shared:?}");
    }
}
