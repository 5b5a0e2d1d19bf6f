//! What is left, for people and for scripts.

use std::fmt::{Display, Formatter, Result};

use super::plan::{Leftover, Leftovers};

/// A table, and the commands below it in a form that a shell takes.
impl Display for Leftovers {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Self(left) = self;
        if left.is_empty() {
            return writeln!(f, "Nothing is left of a managed-tenant-quota.");
        }
        let width = |header: &str, of: fn(&Leftover) -> &str| {
            left.iter().map(|each| of(each).len()).chain([header.len()]).max().unwrap_or(0)
        };
        let namespaces = width("NAMESPACE", |each| &each.namespace);
        let objects = width("OBJECT", |each| &each.object);
        writeln!(f, "{:namespaces$}  {:objects$}  STATE", "NAMESPACE", "OBJECT")?;
        for Leftover { namespace, object, state, .. } in left {
            writeln!(f, "{namespace:namespaces$}  {object:objects$}  {state}")?;
        }
        writeln!(
            f,
            "\nNothing was changed. Stop managed-tenant-quota (operator and controller) and list \
             again; then run in this order:\n"
        )?;
        left.iter().filter_map(|each| each.command.as_ref()).try_for_each(|command| writeln!(f, "{command}"))
    }
}

impl Leftovers {
    /// The same for scripts: a list of objects.
    ///
    /// # Errors
    /// None is known.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }
}
