//! A bundle of `sluice bundle` as a page: what the cluster was like when it was taken. No cluster is asked.

use std::io::Read;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use flate2::read::GzDecoder;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_dashboard::{Change, Kind, Migration, Model, Name, Quota};
use sluice_index::{AacrqWire, AaqWire, AcrqWire};

use super::feed::wrong;

/// The most bytes that are read of a bundle: one that is larger is none of ours.
const LARGEST: u64 = 1 << 30;
/// What pages show, as the index names it when it was not read.
const SHOWN: [&str; 8] = [
    "AAQ, with its conditions",
    "quotas",
    "cluster quotas",
    "ResourceQuotas of Kubernetes",
    "live migrations",
    "pods that wait behind the gate",
    "virtual machines that run",
    "events of controller and webhook",
];
/// The folders of the bundle that have it.
const FOLDERS: [&str; 4] = ["configuration", "quotas", "tenants", "events"];

/// What a bundle has.
#[derive(Debug, Default)]
pub struct Record {
    /// When it was taken, in seconds since the epoch.
    pub taken: i64,
    /// The namespace of tenants that is in it; `None`: all.
    pub namespace: Option<String>,
    pub objects: Vec<Value>,
    /// What pages show and the bundle has not, with the reason.
    pub lacks: Vec<String>,
}

impl Record {
    /// Reads a bundle.
    ///
    /// # Errors
    /// When the file is no bundle.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let file = std::fs::File::open(path).with_context(|| format!("could not open {}", path.display()))?;
        Self::read(file).with_context(|| format!("{} is no bundle of sluice bundle", path.display()))
    }

    fn read(file: impl Read) -> anyhow::Result<Self> {
        let mut archive = tar::Archive::new(GzDecoder::new(file).take(LARGEST));
        let (mut index, mut objects) = (None, Vec::new());
        for entry in archive.entries()? {
            let mut entry = entry?;
            let path = entry.path()?.to_string_lossy().into_owned();
            // All files are in one folder, which has the name of the bundle.
            let Some((_, path)) = path.split_once('/') else { continue };
            let folder = path.split('/').next().unwrap_or_default();
            let mut text = String::new();
            if path == "index.json" {
                entry.read_to_string(&mut text)?;
                index = Some(serde_json::from_str::<Value>(&text).context("index.json")?);
            } else if FOLDERS.contains(&folder) {
                entry.read_to_string(&mut text).with_context(|| path.to_owned())?;
                let documents = serde_saphyr::from_multiple::<Value>(&text);
                objects.extend(documents.with_context(|| path.to_owned())?);
            }
        }
        let Some(index) = index else { bail!("it has no index.json") };
        ensure!(
            index.get("kind").is_some_and(|kind| kind == "BundleIndex"),
            "index.json is not that of a bundle"
        );
        let taken = index.get("taken").and_then(Value::as_str).unwrap_or_default();
        let taken = taken.parse::<Timestamp>().context("index.json: taken")?.as_second();
        let namespace = index.get("namespace").and_then(Value::as_str).map(str::to_owned);
        let lacks = lacks(&index);
        Ok(Self { taken, namespace, objects, lacks })
    }

    /// What all pages show of it. `name` is that of the file.
    pub fn model(&self, name: &str) -> Model {
        let mut model = Model::of_record(name, self.taken);
        if let Some(namespace) = &self.namespace {
            model.set_note(&format!("The bundle has tenants' objects of namespace {namespace} alone"), true);
        }
        for lack in &self.lacks {
            model.set_note(lack, true);
        }
        let of_quota = |kind| move |model: &mut Model, change, now| model.on_quota(kind, change, now);
        self.feed(&mut model, "ApplicationAwareResourceQuota", Quota::namespaced, of_quota(Kind::Namespaced));
        self.feed(&mut model, "ResourceQuota", Quota::native, of_quota(Kind::Native));
        let clusters = "ApplicationAwareClusterResourceQuota";
        if self.of_kind(clusters).next().is_some() {
            self.feed::<AcrqWire, _>(&mut model, clusters, Quota::cluster, of_quota(Kind::Cluster));
        } else {
            let mirrors = "ApplicationAwareAppliedClusterResourceQuota";
            self.feed::<AacrqWire, _>(&mut model, mirrors, Quota::mirror, of_quota(Kind::Cluster));
        }
        self.feed(&mut model, "VirtualMachineInstanceMigration", Migration::read, |model, change, _| {
            model.on_migration(change);
        });
        let aaqs = self.of_kind("AAQ").filter_map(decoded::<AaqWire>);
        model.set_installation(aaqs.flat_map(|aaq| wrong(&aaq)).collect());
        model
    }

    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |object| object.get("kind").is_some_and(|known| known == kind))
    }

    fn feed<K: DeserializeOwned, V>(
        &self,
        model: &mut Model,
        kind: &str,
        read: fn(&K) -> (Name, V),
        take: impl Fn(&mut Model, Change<V>, i64),
    ) {
        take(model, Change::Begin, self.taken);
        for object in self.of_kind(kind).filter_map(decoded::<K>) {
            let (name, value) = read(&object);
            take(model, Change::Is(name, value), self.taken);
        }
        take(model, Change::End, self.taken);
    }
}

/// An object that is not as its kind has it is left out: somebody has edited the bundle.
fn decoded<K: DeserializeOwned>(object: &Value) -> Option<K> {
    serde_json::from_value(object.clone()).ok()
}

/// What pages show and was not read, with the reason.
fn lacks(index: &Value) -> Vec<String> {
    let gaps = index.get("notRead").and_then(Value::as_array).into_iter().flatten();
    let lacks = gaps.flat_map(|gap| {
        let why = gap.get("message").and_then(Value::as_str).unwrap_or("not read");
        let what = gap.get("what").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        what.filter(|what| is_shown(what)).map(move |what| format!("The bundle has no {what}: {why}"))
    });
    lacks.collect()
}

/// A part of a list is named by what came before it, or by its file.
fn is_shown(what: &str) -> bool {
    let of_list = |shown: &&str| {
        what.strip_prefix(*shown).is_some_and(|rest| rest.is_empty() || rest.starts_with(" after"))
    };
    let folder = what.split_once('/').map(|(folder, _)| folder);
    SHOWN.iter().any(of_list) || folder.is_some_and(|folder| FOLDERS.contains(&folder))
}
