//! The index of a bundle: what is where, what is missing and why, and what would allow it. Data, and two forms of it.

mod page;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sluice_manifests::uninstall::Kind;

pub use page::page;

/// A rule of RBAC that an account may lack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// API group; empty: core.
    pub group: String,
    /// Resource, such as `pods` or `pods/log`.
    pub resource: String,
    pub verb: &'static str,
    /// Where; `None`: in the cluster.
    pub namespace: Option<String>,
}

impl Right {
    /// The verb on objects of this kind.
    pub fn of(verb: &'static str, kind: &Kind, namespace: Option<&str>) -> Self {
        let (group, resource) = (kind.group.clone(), kind.resource());
        Self { group, resource, verb, namespace: namespace.map(str::to_owned) }
    }

    /// The verb on a part of pods.
    pub fn of_pods(verb: &'static str, part: &str, namespace: &str) -> Self {
        let resource = format!("pods/{part}");
        Self { group: String::new(), resource, verb, namespace: Some(namespace.to_owned()) }
    }

    /// As kubectl names it.
    pub fn words(&self) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        let place = self.namespace.as_ref().map(|name| format!(" in namespace {name}")).unwrap_or_default();
        format!("{} {}{dot}{}{place}", self.verb, self.resource, self.group)
    }

    fn json(&self) -> Value {
        json!({
            "apiGroups": [self.group], "resources": [self.resource], "verbs": [self.verb], "namespace": self.namespace,
        })
    }
}

/// Why something was not read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The account may not.
    Forbidden(Right),
    /// The API server, or a process, did not answer in time.
    NoAnswer(String),
    /// It answered with an error.
    Failed(String),
}

impl Why {
    /// For people.
    pub fn words(&self) -> String {
        match self {
            Self::Forbidden(right) => format!("missing right: {}", right.words()),
            Self::NoAnswer(told) | Self::Failed(told) => told.clone(),
        }
    }

    const fn token(&self) -> &'static str {
        match self {
            Self::Forbidden(_) => "Forbidden",
            Self::NoAnswer(_) => "NoAnswer",
            Self::Failed(_) => "Failed",
        }
    }
}

/// Things that were not read, for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    pub why: Why,
    pub what: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub path: String,
    pub what: String,
    /// How many objects are in it; `None`: it has none.
    pub objects: Option<usize>,
    pub bytes: usize,
}

/// What a bundle consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// RFC 3339.
    pub taken: String,
    /// Version of the API server.
    pub server: String,
    /// Namespace of the installation.
    pub installation: String,
    /// The namespace of tenants that is in the bundle; `None`: all.
    pub namespace: Option<String>,
    pub files: Vec<File>,
    pub gaps: Vec<Gap>,
    /// What was left out by intent, by the reason.
    pub left_out: BTreeMap<String, BTreeSet<String>>,
    /// Lists without an object.
    pub empty: BTreeSet<String>,
    /// Objects, and kinds, that are not there. They are part of other installations, or missing.
    pub not_there: BTreeSet<String>,
    /// By state, the names of checks.
    pub checks: Vec<(String, String)>,
}

impl Index {
    /// Notes that `what` was not read.
    pub fn miss(&mut self, what: impl Into<String>, why: Why) {
        let what = what.into();
        match self.gaps.iter_mut().find(|gap| gap.why == why) {
            Some(gap) => {
                gap.what.insert(what);
            }
            None => self.gaps.push(Gap { why, what: [what].into() }),
        }
    }

    /// Notes that `what` was left out.
    pub fn leave_out(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.left_out.entry(why.into()).or_default().insert(what.into());
    }

    /// Everything could be read.
    pub fn is_whole(&self) -> bool {
        self.gaps.is_empty()
    }

    /// Objects in all files.
    pub fn objects(&self) -> usize {
        self.files.iter().filter_map(|file| file.objects).sum()
    }

    /// Rights that were missing, each once.
    pub fn missing_rights(&self) -> BTreeSet<&Right> {
        self.gaps.iter().filter_map(Gap::right).collect()
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let files = self.files.iter().map(|file| {
            json!({ "path": file.path, "what": file.what, "objects": file.objects, "bytes": file.bytes })
        });
        let gaps = self.gaps.iter().map(|gap| {
            json!({
                "reason": gap.why.token(), "message": gap.why.words(), "what": gap.what,
                "rule": gap.right().map(Right::json),
            })
        });
        let left_out = self.left_out.iter().map(|(why, what)| json!({ "what": what, "why": why }));
        let checks = self.checks.iter().map(|(name, state)| json!({ "name": name, "state": state }));
        json!({
            "apiVersion": "cli.sluice.dev/v1",
            "kind": "BundleIndex",
            "taken": self.taken,
            "client": env!("CARGO_PKG_VERSION"),
            "server": self.server,
            "installNamespace": self.installation,
            "namespace": self.namespace,
            "checks": checks.collect::<Vec<_>>(),
            "files": files.collect::<Vec<_>>(),
            "notRead": gaps.collect::<Vec<_>>(),
            "leftOut": left_out.collect::<Vec<_>>(),
            "empty": self.empty,
            "notThere": self.not_there,
        })
    }
}

impl Gap {
    fn right(&self) -> Option<&Right> {
        match &self.why {
            Why::Forbidden(right) => Some(right),
            _ => None,
        }
    }
}
