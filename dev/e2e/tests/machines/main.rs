//! Virtual machines under quotas of application-aware-quota, on a real control plane with the real virt-controller.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

mod attachments;
mod both_kinds;
mod calculators;
mod cluster_vms;
mod context;
mod dead_sidecar;
mod drain;
mod drain_check;
mod harvester;
mod held;
mod hotplug;
mod migrations;
mod size;
mod targets;
mod upgrade;
