//! The window in which a migration's target enters a full quota.
//!
//! [`protocol`] decides step by step what to do and knows no I/O; [`requests`] does single requests and decides nothing;
//! [`Headroom`] lets the one drive the other. [`Observed`] is what a process knows of the cluster.

mod clear;
mod clock;
mod dry_runs;
mod hands;
mod metrics;
mod observed;
mod patches;
mod peers;
pub mod protocol;
mod reads;
mod requests;
mod servers;
mod waits;
mod window;

pub use clear::{ClearError, Cleared};
pub use clock::ServerClock;
pub use metrics::HeadroomMetrics;
pub use observed::{Dirty, Observed};
pub use peers::follow_servers;
pub use protocol::Ending;
pub use requests::{Opened, Requests};
pub use servers::{Peer, Servers};
pub use window::{Headroom, LOCK_TIME, Target};
