//! Kubernetes plumbing that knows nothing of quotas: client, watches, lease, events, TLS serving, shutdown.
//!
//! | module | gives |
//! |---|---|
//! | [`client`] | a `kube::Client` with our connection settings, deadlines for single calls, server version |
//! | [`api_servers`] | each API server of the cluster by its own address |
//! | [`clock`] | the API server's clock |
//! | [`request`] | requests whose answers are needed as they came |
//! | [`retry`], [`backoff`] | what a failed write means, how long to wait before the next |
//! | [`watch`] | list and watch of one kind as a sequence of [`watch::Event`]s, with health |
//! | [`lease`] | leader election and the [`lease::WriteToken`] that every write asks first |
//! | [`leader`] | requests to the process that holds a lease |
//! | [`events`] | `events.k8s.io/v1` through a bounded queue |
//! | [`serve`], [`tls`] | the HTTPS accept loop with limits, certificate and profile that change while it runs |
//! | [`listen`] | sockets for all addresses of a host |
//! | [`health`] | `/healthz`, `/readyz` |
//! | [`scrape`], [`access`] | `/metrics`: a snapshot, for accounts that the API server allows to see it |
//! | [`status_write`] | a merge patch of a status, counted |
//! | [`metrics`] | API writes by kind and code |
//! | [`shutdown`], [`panics`] | signals, supervised tasks, what a panic ends |

#![warn(clippy::missing_errors_doc)]

pub mod about;
pub mod access;
pub mod api_servers;
pub mod backoff;
pub mod client;
pub mod clock;
mod date_header;
pub mod events;
pub mod health;
pub mod leader;
pub mod lease;
pub mod listen;
pub mod metrics;
pub mod panics;
mod proxy;
pub mod request;
pub mod retry;
pub mod scrape;
pub mod serve;
pub mod shutdown;
pub mod status_write;
pub mod tls;
pub mod watch;
