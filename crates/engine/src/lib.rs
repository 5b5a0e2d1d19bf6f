//! Pure quota arithmetic and decisions: no I/O, no async, no Kubernetes types.
//!
//! ```text
//!  Quantity ─▶ Charge (what a pod takes) ─▶ Ledger (what a quota's pods take) ─▶ ReleaseQueue (who may be released)
//!              Scopes (which pods count)    CompiledQuota (what is limited)      StatusTarget (what to record)
//!              managed (which keys a core ResourceQuota limits instead)
//!              evaluation::charge_of (what an evaluator's answer charges)
//!              vm::vm_charge (what a virtual machine takes, whatever pods it has)
//!              headroom::plan (what would let a migration's target into native quotas)
//! ```

pub mod charge;
pub mod evaluation;
pub mod headroom;
mod key_list;
pub mod ledger;
pub mod managed;
mod namespace_pattern;
pub mod pod;
pub mod quantity;
mod quota_kind;
pub mod quota_spec;
pub mod release_queue;
pub mod resource;
pub mod scope;
pub mod status;
mod timers;
mod uid;
mod uncounted;
mod ungated;
pub mod vm;

pub use charge::{Amount, Charge};
pub use ledger::{Claim, Excess, Ledger};
pub use managed::ManagedStatus;
pub use namespace_pattern::{NamespacePattern, NotANamespace};
pub use pod::{ChargeRules, PodInput, pod_charge};
pub use quantity::{Format, Quantity};
pub use quota_kind::QuotaKind;
pub use quota_spec::{CompiledQuota, FieldError, RawQuotaSpec, ScopeRequirementText};
pub use release_queue::{
    ClassId, Deadline, Decision, EquivalenceClass, Exchange, Patience, PodId, QuotaId, QuotaSet, Reason,
    ReleaseQueue, ShareId, Shares, Taken, WaitKey, WaitReason,
};
pub use resource::{KeyKind, Resource};
pub use scope::{ScopeFacts, Scopes};
pub use status::{StatusTarget, status_target};
pub use timers::Timers;
pub use uid::Uid;
pub use uncounted::{CountedBy, claims_uncounted, not_enforced, uncounted, warnings};
pub use ungated::{Unenforced, Ungated, limits_pods, paused, paused_in, unenforced, unenforced_in};
