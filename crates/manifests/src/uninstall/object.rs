//! How requests name an object.

use std::fmt::{self, Display, Formatter};

use serde_json::Value;
use sluice_api::names;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// Its API group; empty: core.
    pub group: String,
    /// The version that requests use.
    pub version: String,
    pub kind: String,
}

impl Kind {
    #[must_use]
    pub fn new(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
    }

    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Its resource, by the rule that holds for all kinds of an installation.
    #[must_use]
    pub fn resource(&self) -> String {
        let lower = self.kind.to_lowercase();
        lower.strip_suffix('y').map_or_else(|| format!("{lower}s"), |stem| format!("{stem}ies"))
    }

    /// Resource and group, as kubectl takes them.
    #[must_use]
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.resource() } else { format!("{}.{}", self.resource(), self.group) }
    }
}

/// The kinds that ask something of an installation: `AAQ` and `MTQ`.
#[must_use]
pub fn orders() -> [Kind; 2] {
    [(names::API_VERSION.to_owned(), "AAQ"), (format!("{}/{}", names::MTQ_GROUP, names::VERSION), "MTQ")]
        .map(|(api_version, kind)| Kind::new(&api_version, kind))
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    pub kind: Kind,
    /// Its namespace; `None` of objects of the cluster.
    pub namespace: Option<String>,
    pub name: String,
}

impl ObjectName {
    /// That of a rendered object.
    pub(super) fn of(object: &Value) -> Option<Self> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        Some(Self {
            kind: Kind::new(text("/apiVersion")?, text("/kind")?),
            namespace: text("/metadata/namespace").map(str::to_owned),
            name: text("/metadata/name")?.to_owned(),
        })
    }

    /// As arguments of kubectl.
    #[must_use]
    pub fn arguments(&self) -> String {
        let namespace = self.namespace.as_ref().map(|name| format!(" --namespace {name}"));
        format!("{} {}{}", self.kind.qualified(), self.name, namespace.unwrap_or_default())
    }
}

/// Kind, namespace and name, for people.
impl Display for ObjectName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name } = self;
        match namespace {
            Some(namespace) => write!(f, "{} {namespace}/{name}", kind.kind),
            None => write!(f, "{} {name}", kind.kind),
        }
    }
}
