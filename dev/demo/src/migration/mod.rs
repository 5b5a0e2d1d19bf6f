//! The last act: a live migration through a full native quota, by the real virt-controller.

mod audit;
mod passage;
mod story;
mod table;

pub use story::{NAMESPACE, act};
