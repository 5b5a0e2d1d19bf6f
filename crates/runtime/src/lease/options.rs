//! Which lease a candidate wants, and as whom.

use std::collections::BTreeMap;

use super::Timings;
use crate::backoff::process_seed;

/// Which lease, and under which identity.
#[derive(Debug, Clone)]
pub struct LeaseOptions {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// Our name; must differ between any two processes and any two starts. See [`unique_identity`].
    pub identity: String,
    /// Times.
    pub timings: Timings,
    /// Labels that the lease has from the first time that we hold it.
    pub labels: BTreeMap<String, String>,
    /// Annotations that the lease has while we hold it.
    pub annotations: BTreeMap<String, String>,
    /// Annotation with which a holder that has nothing under way gives the lease back; its value is the holder's term.
    pub handover: Option<&'static str>,
}

impl LeaseOptions {
    /// Default times and a fresh identity.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: unique_identity(),
            timings: Timings::default(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            handover: None,
        }
    }
}

/// Pod or host name and 64 random bits: unique per process start, because two processes with one name would both hold.
pub fn unique_identity() -> String {
    let host = ["POD_NAME", "HOSTNAME"].iter().find_map(|name| std::env::var(name).ok());
    let mut random = [0_u8; 8];
    let bits = match aws_lc_rs::rand::fill(&mut random) {
        Ok(()) => u64::from_be_bytes(random),
        Err(_) => process_seed(),
    };
    format!("{}_{bits:016x}", host.as_deref().unwrap_or("process"))
}
