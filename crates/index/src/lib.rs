//! Narrow wire types and the in-memory state of pods, namespaces and quotas; synchronous, no client.
//!
//! ```text
//!  watch event ──▶ wire (decoded narrowly) ──▶ PodFacts ──▶ Pods ─┐
//!                                              Namespaces ────────┼──▶ the gate's state (controllers)
//!                                              Quotas ────────────┘
//! ```
//! The same for live migrations and native quotas is [`headroom::HeadroomIndex`].
//!
//! A watch event is decoded into a narrow type, turned into a compact record and dropped.

mod aaqs;
mod facts;
pub mod headroom;
mod namespaces;
mod pods;
mod quotas;
mod selector;
mod shared_specs;
mod stated;
mod store;
mod version;
pub mod wire;

pub use aaqs::{Aaq, AaqRecord, Aaqs};
pub use facts::{PodFacts, need_of};
pub use namespaces::{Namespace, NamespaceId, Namespaces, Targeting};
pub use pods::{Change, Gates, PodRecord, Pods, push_tightly};
pub use quotas::{Quantities, QuotaChange, QuotaRecord, Quotas, Recorded, Told};
pub use selector::read_selector;
pub use stated::Stated;
pub use store::Watched;
pub use version::Version;
