//! Memory of tables that are full for a moment.

use std::collections::HashMap;
use std::hash::Hash;

/// Gives the memory of a table back that has become almost empty: after a start it had an entry for each pod or namespace of
/// the cluster. That costs time in the entries that have gone since it was full.
pub fn shrink<K: Eq + Hash, V>(table: &mut HashMap<K, V>) {
    if table.len() < table.capacity() / 8 {
        table.shrink_to(table.len() * 2);
    }
}
