//! Free loopback ports.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::{Ipv4Addr, TcpListener};

/// Ports below the range from which the kernel takes source ports of outgoing connections
/// (32768 on Linux): a server that is restarted finds its port still free.
const RANGE: std::ops::Range<u64> = 12_000..32_000;

/// A random number that differs between processes and calls.
#[must_use]
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A loopback port on which nothing listens now.
///
/// Nothing reserves it: whoever binds it must be ready to try again with another.
///
/// # Errors
/// When no free port is found in many tries.
pub fn free() -> anyhow::Result<u16> {
    for _ in 0..200 {
        let port = RANGE.start + random() % (RANGE.end - RANGE.start);
        let port = u16::try_from(port)?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    anyhow::bail!("no free loopback port found between {} and {}", RANGE.start, RANGE.end)
}
