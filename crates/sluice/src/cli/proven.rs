//! What conditions say of whether anything is raised: head-room is given where the admission policies are proven at each API
//! server.

use sluice_api::{AaqCondition, names};

/// The reason of conditions that say that nothing is raised.
pub const NOT_PROVEN: &str = "NotProven";

/// What the AAQ's condition says.
pub fn told_by_aaq(conditions: &[AaqCondition]) -> Option<Result<(), String>> {
    let told = conditions.iter().find(|it| it.type_ == names::HEADROOM)?;
    let is_unproven = told.status == "False" && told.reason.as_deref() == Some(NOT_PROVEN);
    Some(if is_unproven { Err(without_preface(told.message.as_deref().unwrap_or_default())) } else { Ok(()) })
}

/// `no quota is raised: why` without what is said of it anyway.
pub fn without_preface(message: &str) -> String {
    message.split_once(": ").map_or(message, |(_, why)| why).to_owned()
}
