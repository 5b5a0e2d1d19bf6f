//! Flags about the lease of a component.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use jiff::SignedDuration;
use sluice_api::names;
use sluice_manifests::uninstall::PART_OF;
use sluice_runtime::lease::plan::Timings;

/// Flags about the lease.
#[derive(Debug, clap::Args)]
pub struct LeaseArgs {
    /// How long the lease is valid without renewal, such as `15s`: another replica takes over then
    #[arg(long, value_name = "TIME", default_value = "15s")]
    lease_duration: SignedDuration,
    /// How long the leader tries to renew before it gives up and ends, such as `10s`
    #[arg(long, value_name = "TIME", default_value = "10s")]
    lease_renew_deadline: SignedDuration,
    /// How often the lease is renewed or looked at, such as `2s`
    #[arg(long, value_name = "TIME", default_value = "2s")]
    lease_retry_period: SignedDuration,
}

impl LeaseArgs {
    /// What they say.
    ///
    /// # Errors
    /// When a time is negative.
    pub fn timings(&self) -> anyhow::Result<Timings> {
        Ok(Timings {
            duration: time("lease-duration", self.lease_duration)?,
            renew_deadline: time("lease-renew-deadline", self.lease_renew_deadline)?,
            retry: time("lease-retry-period", self.lease_retry_period)?,
        })
    }
}

/// The value of a flag that is a time.
///
/// # Errors
/// When it is negative.
pub fn time(flag: &str, value: SignedDuration) -> anyhow::Result<Duration> {
    Duration::try_from(value).with_context(|| format!("--{flag} must not be negative"))
}

/// Labels of a lease: those of all objects of an installation, by which `sluice uninstall` knows it.
pub fn labels() -> BTreeMap<String, String> {
    let labels = [("app.kubernetes.io/name", names::APP), (PART_OF, names::APP)];
    labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}
