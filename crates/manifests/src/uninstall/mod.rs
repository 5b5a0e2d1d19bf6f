//! Removal of an installation as data: what it consists of, in which order that goes, and which rights it takes.
//!
//! [`plan()`] takes what was seen and returns steps. It remembers nothing: after a kill it is asked again and goes on. The
//! order keeps four rules after each single step:
//!
//! 1. What refuses a pod that is not gated or stamped goes before what gates and stamps it.
//! 2. What asks a process goes before that process.
//! 3. What gates goes before waiting pods are released, so none is held after the last look.
//! 4. What guards raised quotas goes after the last of them is put back.

mod collection;
mod foreign;
mod inventory;
mod object;
mod plan;
mod rights;
#[cfg(test)]
mod tests;

pub use collection::Collection;
pub use foreign::is_of_others;
pub use inventory::{Part, Stage, definitions, goes_with_aaq, inventory};
pub use object::{Kind, ObjectName, orders};
pub use plan::{Found, Seen, Step, Wait, Wish, plan};
pub use rights::{Right, rights};

use sluice_api::names;

use crate::naming::AAQ_COMPONENT;

/// Label of everything that belongs to an installation; its value is [`names::APP`].
pub const PART_OF: &str = "app.kubernetes.io/part-of";

/// Selects the pods of controller and webhook, by whichever names they are found.
#[must_use]
pub fn processes_selector() -> String {
    let (controller, webhook) = (names::CONTROLLER, names::WEBHOOK);
    format!(
        "{PART_OF}={},app.kubernetes.io/component in ({controller},{webhook},{AAQ_COMPONENT})",
        names::APP
    )
}
