//! Flags that say whose pods are gated and by what. Controller and operator are given the same.

use sluice_engine::NamespacePattern;
use sluice_manifests::{Gating, default_exempt_namespaces};
use sluice_runtime::client::ServerVersion;

/// The first version of Kubernetes whose API server gates by a policy.
const FIRST_WITH_MUTATING_POLICIES: (u32, u32) = (1, 36);

/// Whose pods are gated, and by what.
#[derive(Debug, clap::Args)]
pub struct GatingArgs {
    /// Who gates pods. Before Kubernetes 1.36 it is always the webhook
    #[arg(long, value_enum, value_name = "WHO", default_value_t = GatedBy::Policy)]
    gating: GatedBy,
    #[command(flatten)]
    exempt: ExemptArgs,
}

/// Whose pods are never gated. All processes are given the same.
#[derive(Debug, clap::Args)]
pub struct ExemptArgs {
    /// Namespaces whose pods are never gated, whatever the AAQ selects; `*` at the end stands for any rest.
    /// That of the installation always is one
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_values_t = default_exempt_namespaces())]
    exempt_namespaces: Vec<NamespacePattern>,
}

impl ExemptArgs {
    /// Namespaces whose pods are never gated, with `own`, that of the installation.
    pub fn with(&self, own: &str) -> Vec<NamespacePattern> {
        self.exempt_namespaces.iter().cloned().chain([NamespacePattern::named(own)]).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum GatedBy {
    /// The API server, by an admission policy, and behind it the webhook
    Policy,
    /// The webhook alone
    Webhook,
}

impl From<GatedBy> for Gating {
    fn from(by: GatedBy) -> Self {
        match by {
            GatedBy::Policy => Self::Policy,
            GatedBy::Webhook => Self::Webhook,
        }
    }
}

/// Who gates pods at an API server of this version, where a user wants `wanted`.
#[must_use]
pub fn gating_at(version: &ServerVersion, wanted: Gating) -> Gating {
    let can = (version.major, version.minor) >= FIRST_WITH_MUTATING_POLICIES;
    if can { wanted } else { Gating::Webhook }
}

impl GatingArgs {
    /// See [`ExemptArgs::with`].
    pub fn exempt_with(&self, own: &str) -> Vec<NamespacePattern> {
        self.exempt.with(own)
    }

    /// Who gates pods at an API server of this version.
    #[must_use]
    pub fn of(&self, version: &ServerVersion) -> Gating {
        gating_at(version, self.gating.into())
    }
}
