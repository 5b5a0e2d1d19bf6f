//! What the gate must survive: crashes at each write, two leaders, a failing API server, admins.
//!
//! Each test has its own control plane. The webhook stays out: pods are created with the gate.

mod admin;
mod cluster;
mod crash;
mod faults;
mod leaders;
mod server;
mod watch;
mod world;
