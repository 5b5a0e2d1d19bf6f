//! What is decoded of the watched kinds: only the fields that are read, and never a failure because of a field
//! that is not.

mod aaq;
mod meta;
mod namespace;
mod pod;
mod quantity;
mod quota;

pub use aaq::{AaqSpecWire, AaqWire};
pub use namespace::NamespaceWire;
pub use pod::*;
pub use quantity::{QuantityText, ResourceTexts};
pub use quota::{QuotaSpecWire, QuotaStatusWire, QuotaWire, ScopeRequirementWire, ScopeSelectorWire};
