//! Conditions of `AAQ` and `MTQ`. Each writer replaces their list as a whole, so each carries over what others say: every
//! type of condition has one owner.

use crate::AaqCondition;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// What one condition says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Its type.
    pub kind: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// In CamelCase.
    pub reason: String,
    /// For people.
    pub message: String,
}

impl Said {
    /// All of it.
    pub fn new(
        kind: &'static str,
        status: &'static str,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { kind, status, reason: reason.into(), message: message.into() }
    }
}

/// What is said among the conditions of others, in the order they have. A condition keeps the time of its last change for as
/// long as its status stays.
pub fn merged(
    old: &[AaqCondition],
    said: impl IntoIterator<Item = Said>,
    now: Timestamp,
) -> Vec<AaqCondition> {
    let mut conditions = old.to_vec();
    for Said { kind, status, reason, message } in said {
        let known = conditions.iter_mut().find(|condition| condition.type_ == kind);
        let since = known.as_ref().filter(|known| known.status == status);
        let since = since.and_then(|known| known.last_transition_time.clone());
        let condition = AaqCondition {
            // It would be a write each time that nothing has changed.
            last_heartbeat_time: None,
            last_transition_time: since.or_else(|| Timestamp::from_second(now.as_second()).ok().map(Time)),
            message: Some(message),
            reason: Some(reason),
            status: status.to_owned(),
            type_: kind.to_owned(),
        };
        match known {
            Some(known) => *known = condition,
            None => conditions.push(condition),
        }
    }
    conditions
}
