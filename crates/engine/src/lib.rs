//! Pure quota arithmetic and decisions: no I/O, no async, no Kubernetes types.
//!
//! ```text
//!  Quantity ─▶ Charge (what a pod takes) ─▶ Ledger (what a quota's pods take) ─▶ Book (who may be released)
//!              Scopes (which pods count)    CompiledQuota (what is limited)      StatusTarget (what to record)
//!              headroom::plan (what would let a migration's target into native quotas)
//! ```

mod account;
pub mod book;
pub mod charge;
mod classes;
mod growth;
pub mod headroom;
pub mod ledger;
mod long_queue;
mod namespace_pattern;
pub mod pod;
pub mod quantity;
pub mod queue;
pub mod quota_spec;
mod reservation;
pub mod resource;
pub mod scope;
pub mod status;
mod sweep;
mod uid;
mod uncounted;

pub use book::{Book, Decision};
pub use charge::{Amount, Charge};
pub use ledger::{Claim, Excess, Ledger};
pub use namespace_pattern::{NamespacePattern, NotANamespace};
pub use pod::{ChargeRules, PodInput, pod_charge};
pub use quantity::{Format, Quantity};
pub use queue::{ClassId, PodId, QuotaId, Reason, WaitClass, WaitKey};
pub use quota_spec::{CompiledQuota, FieldError, RawQuotaSpec, ScopeRequirementText};
pub use resource::{KeyKind, Resource};
pub use scope::{ScopeFacts, Scopes};
pub use status::{StatusTarget, status_target};
pub use uid::Uid;
pub use uncounted::uncounted;
