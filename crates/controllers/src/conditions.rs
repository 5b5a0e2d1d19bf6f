//! Conditions that several kinds of quota have.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use sluice_api::names;

/// The condition about keys that nothing counts, since this second of the epoch; none without a message, as there are no such
/// keys then.
pub(crate) fn uncounted_keys(message: &str, since_s: i64) -> Option<Condition> {
    let since = Timestamp::from_second(since_s).ok()?;
    (!message.is_empty()).then(|| Condition {
        type_: names::UNCOUNTED_KEYS.to_owned(),
        status: "True".to_owned(),
        reason: "NotEnforced".to_owned(),
        message: message.to_owned(),
        last_transition_time: Time(since),
        observed_generation: None,
    })
}
