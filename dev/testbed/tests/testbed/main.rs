//! The test bed does what its suites rely on.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests are not seen as tests"
)]

mod bed;
mod kubevirt;
mod leftovers;
mod proxy;
