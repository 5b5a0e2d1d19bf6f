//! What is left, for people and for scripts.

use std::fmt::{Display, Formatter, Result};

use serde_json::{Value, json};

use super::plan::{Alive, Change, Leftover, Leftovers, Step, Verdict};

impl Display for Change {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}:", self.quota)?;
        for (n, (key, from, to)) in self.keys.iter().enumerate() {
            write!(f, "{} {key} from {from} to {to}", if n == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::LowerStatus(change) => write!(f, "lower status.hard of quota {change}"),
            Self::DeleteLock(lock) => write!(f, "delete the lock {}", lock.name),
            Self::RestoreSpec(change) => write!(f, "restore spec.hard of quota {change}"),
            Self::ClearRecord { name, .. } => write!(f, "clear the record of {name}"),
            Self::Say(text) => f.write_str(text),
        }
    }
}

impl Display for Alive {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{} holds the lease {} until {}", self.holder, self.lease, self.until)
    }
}

impl Leftover {
    /// Its steps, each with the namespace.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        self.steps.iter().map(|step| format!("{}: {step}", self.namespace))
    }
}

/// A table: namespace, age of its lock, and one step a line.
impl Display for Leftovers {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if let Some(alive) = &self.alive {
            writeln!(
                f,
                "A managed-tenant-quota is alive ({alive}): what follows may be its work in progress."
            )?;
        }
        if self.namespaces.is_empty() {
            return writeln!(f, "Nothing is left of a managed-tenant-quota.");
        }
        let width = self.namespaces.iter().map(|each| each.namespace.len()).max().unwrap_or(0).max(9);
        writeln!(f, "{:width$}  {:8}  TO DO", "NAMESPACE", "LOCKED")?;
        for each in &self.namespaces {
            let age = each.locked_for.map_or_else(|| "no".to_owned(), |age| short(age.as_secs()));
            for (n, step) in each.steps.iter().enumerate() {
                let (namespace, age) =
                    if n == 0 { (each.namespace.as_str(), age.as_str()) } else { ("", "") };
                writeln!(f, "{namespace:width$}  {age:8}  {step}")?;
            }
        }
        let count = self.namespaces.len();
        writeln!(f, "Something is left in {count} namespaces; nothing was changed. --clean ends it.")
    }
}

/// As kubectl prints ages.
fn short(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

impl Leftovers {
    /// The same for scripts.
    #[must_use]
    pub fn json(&self) -> Value {
        let alive = self.alive.as_ref().map(
            |alive| json!({ "lease": alive.lease, "holder": alive.holder, "until": alive.until.to_string() }),
        );
        let namespaces = self.namespaces.iter().map(|each| {
            json!({
                "namespace": each.namespace,
                "lockedForSeconds": each.locked_for.map(|age| age.as_secs()),
                "leftAlone": each.verdict == Verdict::Foreign,
                "steps": each.steps.iter().map(ToString::to_string).collect::<Vec<_>>(),
            })
        });
        json!({ "alive": alive, "namespaces": namespaces.collect::<Vec<_>>() })
    }
}
