//! The gate against a server in memory whose only job is to be late, to fail and to be read stale.

mod protocol;
mod scrape;
mod server;
mod stories;
mod world;
