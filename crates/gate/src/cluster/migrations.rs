//! Migrations that are not over: how long KubeVirt waits for the target of each.

use std::sync::Arc;

use sluice_engine::Uid;
use sluice_index::{Listed, Source, VmimRecord};

/// What is kept of a migration.
#[derive(Debug)]
pub struct Migration {
    namespace: Arc<str>,
    pub name: Arc<str>,
    /// See [`sluice_index::Vmim::pending_timeout`].
    pub pending_timeout: i64,
}

/// The migrations of all namespaces.
#[derive(Debug, Default)]
pub struct Migrations(Listed<Uid, Migration>);

impl Migrations {
    pub const fn begin_list(&mut self) {
        self.0.begin_list();
    }

    /// A migration was seen. Returns whether KubeVirt waits longer or shorter than was known.
    pub fn see(&mut self, record: &VmimRecord) -> bool {
        if record.is_final() {
            return self.forget(&record.uid);
        }
        let seen = Migration {
            namespace: Arc::clone(&record.namespace),
            name: Arc::clone(&record.name),
            pending_timeout: record.pending_timeout,
        };
        self.0.see(&record.uid, Source::Watch);
        let known = self.0.insert(record.uid.clone(), seen);
        known.is_none_or(|known| known.pending_timeout != record.pending_timeout)
    }

    /// A migration is over or gone. Returns whether it was known.
    pub fn forget(&mut self, uid: &Uid) -> bool {
        self.0.remove(uid).is_some()
    }

    /// The list is complete: forgets the migrations that were not in it, and returns them.
    pub fn end_list(&mut self) -> Vec<Uid> {
        self.0.end_list().into_iter().map(|(uid, _)| uid).collect()
    }

    /// The migration of a namespace with this uid; `None` if it was not seen.
    pub fn get(&self, namespace: &str, uid: &Uid) -> Option<&Migration> {
        self.0.get(uid).filter(|migration| *migration.namespace == *namespace)
    }
}
