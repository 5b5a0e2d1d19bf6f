//! What is missing for a migration, and the one sentence that says so.

use std::fmt::Write;
use std::sync::Arc;

use crate::quantity::Quantity;

/// So many shortages are spelled out; a quota with more is read in the API.
const SPELLED_OUT: usize = 4;

/// A key of a quota for which the most generous grant is not enough.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shortage {
    pub quota: Arc<str>,
    /// The key, as the quota has it.
    pub key: Arc<str>,
    /// What the target pod takes.
    pub need: Quantity,
    /// `status.used`.
    pub used: Quantity,
    /// `spec.hard`.
    pub hard: Quantity,
    /// What is granted above `hard`; `None` if nothing is.
    pub additional: Option<Quantity>,
    /// How much of `additional` other namespaces have taken.
    pub taken: Quantity,
    /// The object that grants it; `None` without a grant.
    pub source: Option<Arc<str>>,
    /// How much more would have to be granted; more than 0.
    pub missing: Quantity,
}

impl Shortage {
    fn write(&self, text: &mut String) {
        let Self { quota, key, need, used, hard, missing, .. } = self;
        // Writing to a text cannot fail.
        let _ =
            write!(text, "{key}={need} more in quota {quota} (used {used}, hard {hard}); head-room grants ");
        let _ = match &self.additional {
            Some(additional) => write!(text, "{additional}"),
            None => write!(text, "nothing"),
        };
        if let Some(source) = &self.source {
            let _ = write!(text, " ({source}");
            if !self.taken.is_zero() {
                let _ = write!(text, ", {} of it taken in other namespaces", self.taken);
            }
            text.push(')');
        }
        let _ = write!(text, ", missing {missing}");
    }
}

/// Says in one sentence what `migration` of `vm` lacks. The same text goes into events and conditions.
#[must_use]
pub fn sentence(migration: &str, vm: &str, shortages: &[Shortage]) -> String {
    let mut text = format!("migration {migration} of vm {vm} needs ");
    for (position, shortage) in shortages.iter().take(SPELLED_OUT).enumerate() {
        if position > 0 {
            text.push_str("; and ");
        }
        shortage.write(&mut text);
    }
    if let Some(rest) = shortages.len().checked_sub(SPELLED_OUT).filter(|rest| *rest > 0) {
        let _ = write!(text, "; and {rest} more");
    }
    text
}
