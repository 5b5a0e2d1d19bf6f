//! What the gate must survive: crashes at each write, two leaders, a failing API server, a restored etcd, admins.
//!
//! Each test has its own control plane. But for the restored etcd the webhook stays out: pods are created with the gate.

mod admin;
mod cluster;
mod crash;
mod faults;
mod leaders;
mod restored;
mod server;
mod watch;
mod world;
