//! The managed quota of a quota, with the keys that the gate cannot govern (`docs/quota-semantics.md`, *The managed
//! ResourceQuota*): of an `ApplicationAwareResourceQuota` a core ResourceQuota beside it, of an
//! `ApplicationAwareClusterResourceQuota` OpenShift's ClusterResourceQuota, where the cluster has that kind.
//!
//! ```text
//!  watch of quotas ─▶ Wishes ──────────┐              ┌─▶ create, patch or delete the managed quota (leader)
//!                                      ├─▶ plan (pure)┤
//!  watch of managed quotas ─▶ Existing ┘              └─▶ ManagedStatus ─▶ gate ─▶ status of the quota
//! ```
//! Every event concerns one quota and costs the same however many there are. Each write to a managed quota puts the next one
//! to it off, whether it succeeds or not: another client that undoes what is written is answered ever more slowly, until the
//! quota changes. The two kinds have a loop each: one that cannot be watched does not hold up the other.

mod existing;
mod feed;
mod kind;
mod object;
mod plan;
mod run;
mod state;
#[cfg(test)]
mod tests;
mod wishes;
mod writer;

pub use run::ManagedQuotas;
