//! The gate without a webhook in the way: admission policies gate and stamp, whichever process of Sluice is alive.
//!
//! Tests that only need pods to be gated with no process of Sluice share one cluster without any ([`world::asleep`]); those
//! that stop, delete or add something have their own.

mod asleep;
mod controllers;
mod fallback;
mod forms;
mod long;
mod others;
mod platform;
mod removal_kills;
mod seen;
mod selector;
mod servers;
mod stamps;
mod stolen;
mod targets;
mod uninstall;
pub mod world;
