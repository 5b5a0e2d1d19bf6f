//! The kinds that are watched, one file each: what is decoded of an object, what is kept of it, and how that is read. A kind
//! has the name it has in the crate `api`.
//!
//! Decoding never fails because of a field that is not read.

pub(crate) mod aacrq;
pub(crate) mod aaq;
pub(crate) mod acrq;
pub(crate) mod arq;
pub(crate) mod cluster_quota_charge;
pub(crate) mod cluster_resource_quota;
pub(crate) mod device_class;
pub(crate) mod evaluator;
pub(crate) mod headroom_policy;
pub(crate) mod kubevirt;
pub(crate) mod limit_range;
pub(crate) mod namespace;
pub(crate) mod pod;
pub(crate) mod resource_quota;
pub(crate) mod vmi;
pub(crate) mod vmim;
pub(crate) mod vmmrq;
