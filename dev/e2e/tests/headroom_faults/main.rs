//! Head-room when things go wrong: crashes at each write, concurrency, admins, API servers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod abuse;
mod account;
mod admin;
mod concurrency;
mod covered;
mod crash;
mod gate;
mod policy;
mod scene;
mod servers;
mod steps;
mod stop;
mod world;
