//! Two API servers on one etcd. KubeVirt's controller speaks with the second, whatever else belongs to a bed with the first:
//! so the first can stand still, and targets are created all the same.
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "helpers of tests, which fail by panicking"
)]

use kube::Client;
use sluice_testbed::{Bed, BedOptions};

/// A bed with KubeVirt and both.
#[must_use]
pub fn options() -> BedOptions {
    BedOptions { kubevirt: true, second_api_server: true, ..BedOptions::default() }
}

/// Flags that name both API servers.
#[must_use]
pub fn both(bed: &Bed) -> [String; 2] {
    [bed.server_url(), bed.second_server_url()].map(|url| format!("--api-server={url}"))
}

/// The administrator at the second API server.
#[must_use]
pub fn at_second(bed: &Bed) -> Client {
    bed.at_second_server(bed.admin_identity()).unwrap().client().unwrap()
}
