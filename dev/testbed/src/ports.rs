//! Free loopback ports.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// Ports below the range from which the kernel takes source ports of outgoing connections
/// (32768 on Linux): a server that is restarted finds its port still free.
const RANGE: std::ops::Range<u64> = 12_000..32_000;

/// A random number that differs between processes and calls.
#[must_use]
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Ports that were given out in this process: between that and the moment when a program listens there, nothing else would
/// tell that they are taken.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A loopback port on which nothing listens now, and that this process has not been given before.
///
/// # Errors
/// When no free port is found in many tries.
pub fn free() -> anyhow::Result<u16> {
    for _ in 0..200 {
        let port = RANGE.start + random() % (RANGE.end - RANGE.start);
        let port = u16::try_from(port)?;
        let is_new = GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(port);
        if is_new && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    anyhow::bail!("no free loopback port found between {} and {}", RANGE.start, RANGE.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let given: Vec<u16> = (0..3_000).map(|_| free().unwrap()).collect();
        assert_eq!(given.iter().collect::<BTreeSet<_>>().len(), given.len());
    }
}
