//! The managed ResourceQuota of an `ApplicationAwareResourceQuota`: a core ResourceQuota beside it, with the keys that the gate
//! cannot govern (`docs/quota-semantics.md`, *The managed ResourceQuota*).
//!
//! ```text
//!  watch of ApplicationAwareResourceQuotas ─▶ Arqs ─┐              ┌─▶ create, patch or delete the ResourceQuota (leader)
//!                                                   ├─▶ plan (pure)┤
//!  watch of ResourceQuotas ─▶ Observed ─────────────┘              └─▶ ManagedStatus ─▶ gate ─▶ status of the quota
//! ```
//! Every event concerns one quota and costs the same however many there are. Each write to a ResourceQuota puts the next one
//! to it off, whether it succeeds or not: another client that undoes what is written is answered ever more slowly, until the
//! quota changes.

mod arqs;
mod object;
mod plan;
mod run;
mod state;
#[cfg(test)]
mod tests;

pub use run::ManagedQuotas;
