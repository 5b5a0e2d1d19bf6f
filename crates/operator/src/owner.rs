//! To which object belongs what the operator makes: to its ClusterRole. The garbage collector removes it with the role, so
//! nothing that gates or refuses pods outlives the installation. The namespace would not do: it is deleted last.
//!
//! An object that is there already, made by an older version or by hand, gets the reference too. Other owners stay.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, Client, Resource as _};
use sluice_api::names;
use sluice_runtime::watch::WatchHealth;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::certificates::observe::{Seen, follow_by};

/// So long the operator's ClusterRole is not called unreadable: an API server that has just started answers 403 until its
/// caches are filled.
const PATIENCE: Duration = Duration::from_secs(5);

/// The operator's ClusterRole, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Owner {
    /// It was not looked for yet.
    #[default]
    Unknown,
    /// It could not be read, for this reason.
    Unreadable(String),
    /// It does not exist, or is being deleted.
    Absent,
    /// It exists.
    Known(OwnerReference),
}

impl Owner {
    /// As the API server has it. Without `blockOwnerDeletion`, for which another permission would be needed.
    pub(crate) fn of(role: Option<&ClusterRole>) -> Self {
        let role = role.filter(|role| role.metadata.deletion_timestamp.is_none());
        role.and_then(|role| role.owner_ref(&())).map_or(Self::Absent, Self::Known)
    }

    /// Why nothing can belong to it; `None` while it is there, and as long as it was not looked for.
    pub(crate) fn missing(&self) -> Option<Missing<'_>> {
        match self {
            Self::Unreadable(why) => Some(Missing(Some(why))),
            Self::Absent => Some(Missing(None)),
            Self::Unknown | Self::Known(_) => None,
        }
    }
}

/// Tells `on` of it until `cancel`. Failures are tried again with backoff by the watch itself.
pub(crate) async fn follow(client: Client, cancel: &CancellationToken, on: impl Fn(Owner)) {
    let health = WatchHealth::new("the operator's ClusterRole");
    let (found, mut changes) = watch::channel(Seen::Unknown);
    let unreadable = async {
        while tokio::time::timeout(PATIENCE, health.synced()).await.is_err() {
            if let Err(why) = health.check() {
                on(Owner::Unreadable(why));
            }
        }
    };
    let telling = async {
        while changes.changed().await.is_ok() {
            let owner = match &*changes.borrow_and_update() {
                Seen::Present(role) => Owner::of(Some(role)),
                Seen::Absent => Owner::Absent,
                Seen::Unknown => continue,
            };
            on(owner);
        }
    };
    let roles: Api<ClusterRole> = Api::all(client);
    let following = follow_by(health.clone(), roles, names::OPERATOR, found, cancel.clone());
    // If resource versions went back the watches of the Secrets end the process.
    let _ = tokio::join!(following, telling, cancel.run_until_cancelled(unreadable));
}

/// Why there is no owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missing<'a>(Option<&'a str>);

impl Display for Missing<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = names::OPERATOR;
        match self.0 {
            Some(why) => write!(f, "the ClusterRole {name} cannot be read ({why})"),
            None => write!(f, "the ClusterRole {name} does not exist"),
        }
    }
}
