//! Migrations that are not over: how long KubeVirt waits for the target of each.

use std::collections::HashMap;
use std::sync::Arc;

use sluice_engine::Uid;
use sluice_index::{ListNumber, VmimRecord};

/// What is kept of a migration.
#[derive(Debug)]
pub struct Migration {
    namespace: Arc<str>,
    pub name: Arc<str>,
    /// See [`sluice_index::Vmim::pending_timeout`].
    pub pending_timeout: i64,
    list: ListNumber,
}

/// Invariant: between the begin and the end of a list no migration is forgotten but by its own event.
#[derive(Debug, Default)]
pub struct Migrations {
    known: HashMap<Uid, Migration>,
    list: ListNumber,
}

impl Migrations {
    /// A list begins.
    pub const fn begin_list(&mut self) {
        self.list.begin();
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
            list: self.list,
        };
        let known = self.known.insert(record.uid.clone(), seen);
        known.is_none_or(|known| known.pending_timeout != record.pending_timeout)
    }

    /// A migration is over or gone. Returns whether it was known.
    pub fn forget(&mut self, uid: &Uid) -> bool {
        self.known.remove(uid).is_some()
    }

    /// The list is complete: forgets the migrations that were not in it, and returns them.
    pub fn end_list(&mut self) -> Vec<Uid> {
        let list = self.list;
        self.known.extract_if(|_, migration| migration.list != list).map(|(uid, _)| uid).collect()
    }

    /// The migration of a namespace with this uid; `None` if it was not seen.
    pub fn get(&self, namespace: &str, uid: &Uid) -> Option<&Migration> {
        self.known.get(uid).filter(|migration| *migration.namespace == *namespace)
    }
}
