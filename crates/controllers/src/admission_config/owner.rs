//! To which object our admission objects belong: the operator's ClusterRole. The garbage collector removes them with it, so
//! nothing that gates or refuses pods outlives the installation. The namespace would not do: it is deleted last.
//!
//! An object that is there already, made by an older version or by hand, gets the reference too. Other owners stay.

use std::fmt::{self, Display, Formatter};

use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource as _;
use sluice_api::names;

/// The operator's ClusterRole, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Owner {
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
    pub(super) fn of(role: Option<&ClusterRole>) -> Self {
        let role = role.filter(|role| role.metadata.deletion_timestamp.is_none());
        role.and_then(|role| role.owner_ref(&())).map_or(Self::Absent, Self::Known)
    }

    /// Why nothing can belong to it; `None` while it is there, and as long as it was not looked for.
    pub(super) fn missing(&self) -> Option<Missing<'_>> {
        match self {
            Self::Unreadable(why) => Some(Missing(Some(why))),
            Self::Absent => Some(Missing(None)),
            Self::Unknown | Self::Known(_) => None,
        }
    }
}

/// Why there is no owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missing<'a>(Option<&'a str>);

impl Display for Missing<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = names::OPERATOR;
        match self.0 {
            Some(why) => write!(f, "the ClusterRole {name} cannot be read ({why})"),
            None => write!(f, "the ClusterRole {name} does not exist"),
        }
    }
}
