//! Head-room: whether a migration's target pod fits the native quotas of its namespace, and which raises of
//! `status.hard` would let it in.
//!
//! ```text
//!  Need (what the target takes) ─┐
//!  NativeQuota (ResourceQuotas)  ├─▶ plan ─▶ Fits | Raise (exact fits) | NotEnough (shortages) | Refused
//!  Budget (what may be granted) ─┘
//! ```
//! Quota admission reads `status.hard` and `status.used` only (`docs/quota-semantics.md`, *Enforcement*), and so does
//! [`plan`]; the budget is measured from `spec.hard`, so that a raise that is still open is not counted twice. What is above
//! a quota already has to be explained by pods that exist ([`Account`]), or nothing is raised.

mod account;
mod budget;
mod growth;
mod need;
mod plan;
mod quota;
mod refusal;
mod shortage;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::quantity::Quantity;

pub use account::{Account, AccountedPod, Stake};
pub use budget::{Budget, Grant, GrantError, VmmrqSum, sum_of_vmmrqs};
pub use growth::{Allowance, Source, growth, growth_of_launcher, growth_to, limit_ratio};
pub use need::{Need, need_of};
pub use plan::{Plan, Raise, RaisedKey, plan, reserve};
pub use quota::{MARK, NUDGE_KEY, NativeQuota, Restore, consumed, restore};
pub use refusal::{Grown, Refusal, lasting, quota_words};
pub use shortage::{Shortage, sentence};

/// Amounts by quota key as it is written.
pub type Amounts = BTreeMap<Arc<str>, Quantity>;
