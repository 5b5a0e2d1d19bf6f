//! The last act: a live migration through a full native quota, by the real virt-controller.

mod audit;
mod files;
mod passage;
mod story;
mod table;
mod watches;

pub use files::{NAMESPACE, apply};
pub use story::{Place, act};
