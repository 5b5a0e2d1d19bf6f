//! What is decoded of the watched kinds: only the fields that are read, and never a failure because of a field
//! that is not.

mod aaq;
mod headroom;
mod kubevirt;
mod meta;
mod namespace;
mod pod;
mod quantity;
mod quota;

pub use aaq::{AaqSpecWire, AaqWire};
pub use headroom::{
    HeadroomBudgetWire, HeadroomOptOutWire, HeadroomPolicySpecWire, HeadroomPolicyWire, LimitRangeWire,
    NativeQuotaStatusWire, NativeQuotaWire, VmmrqSpecWire, VmmrqWire,
};
pub use kubevirt::{
    ConditionWire, KubeVirtWire, MachineStatusWire, MachineWire, MigrationSpecWire, MigrationStatusWire,
    MigrationWire,
};
pub use namespace::NamespaceWire;
pub use pod::*;
pub use quantity::{QuantityText, ResourceTexts};
pub use quota::{
    QuotaConditionWire, QuotaSpecWire, QuotaStatusWire, QuotaWire, ScopeRequirementWire, ScopeSelectorWire,
};
