//! The files of `examples/`, for any namespace.

use std::time::Duration;

use anyhow::Context as _;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Client, discovery};
use serde_json::{Value, json};
use sluice_engine::Quantity;

use crate::board::Amounts;

/// The namespace that the files name.
pub const NAMESPACE: &str = "team-a";
/// The quota that the files create.
pub const QUOTA: &str = "compute";
/// Field manager of what is applied.
const MANAGER: &str = "sluice-demo";
/// How long one object may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A file of `examples/`: name and text.
pub type Example = (&'static str, &'static str);

macro_rules! examples {
    ($($name:ident = $file:literal;)*) => {
        $(
            #[doc = concat!("`examples/", $file, "`.")]
            pub const $name: Example =
                ($file, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/", $file)));
        )*
        #[cfg(test)]
        const ALL: &[Example] = &[$($name),*];
    };
}

examples! {
    TEAM = "00-namespace.yaml";
    PRIORITY = "01-priority.yaml";
    LIMITS = "10-quota.yaml";
    WEB = "20-web.yaml";
    REPORT = "21-report.yaml";
    IMPORT = "30-import.yaml";
    TRAIN = "31-train.yaml";
    URGENT = "40-urgent.yaml";
    HUGE = "50-huge.yaml";
    ALLOW = "cluster-quota/00-allow.yaml";
    SHOP = "cluster-quota/10-namespaces.yaml";
    SHOP_QUOTA = "cluster-quota/20-quota.yaml";
    SHOP_PODS = "cluster-quota/30-pods.yaml";
    TEAM_B = "migration/00-namespace.yaml";
    ONE_VM_QUOTA = "migration/10-quota.yaml";
    ONE_VM = "migration/20-vm.yaml";
    HEADROOM = "migration/30-headroom.yaml";
    POLICY = "migration/31-policy.yaml";
    ONE_VM_MIGRATION = "migration/40-migration.yaml";
    TEAM_C = "vms/00-namespace.yaml";
    TWO_VMS_QUOTA = "vms/10-quota.yaml";
    TWO_VMS = "vms/20-two.yaml";
    THIRD_VM = "vms/30-third.yaml";
    TWO_VMS_MIGRATION = "vms/40-migration.yaml";
}

/// A name that the files use, and the one that is used instead.
pub type Renamed<'n> = (&'n str, &'n str);

/// The objects of a file, with a name, and names that start with it and a dash, replaced.
///
/// # Errors
/// When the file is not YAML.
pub fn objects((file, text): Example, names: Renamed<'_>) -> anyhow::Result<Vec<Value>> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).with_context(|| format!("parsing examples/{file}"))?;
    Ok(documents.into_iter().map(|document| renamed(document, names)).collect())
}

fn renamed(value: Value, names: Renamed<'_>) -> Value {
    let (from, to) = names;
    match value {
        Value::String(text) => match text.strip_prefix(from) {
            Some(rest) if rest.is_empty() || rest.starts_with('-') => Value::String(format!("{to}{rest}")),
            _ => Value::String(text),
        },
        Value::Array(items) => items.into_iter().map(|item| renamed(item, names)).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, field)| (name, renamed(field, names))).collect()
        }
        other => other,
    }
}

/// The limits that a file's quota has at this place.
///
/// # Errors
/// When there are none.
pub fn hard(example: Example, place: &str) -> anyhow::Result<Amounts> {
    let objects = objects(example, (NAMESPACE, NAMESPACE))?;
    let hard = objects.first().and_then(|quota| quota.pointer(place)).and_then(Value::as_object);
    let hard = hard.with_context(|| format!("examples/{} has no {place}", example.0))?;
    let read = |(key, amount): (&String, &Value)| {
        let amount = Quantity::parse(amount.as_str().unwrap_or_default());
        Ok((key.clone(), amount.with_context(|| format!("reading {key} of examples/{}", example.0))?))
    };
    hard.iter().map(read).collect()
}

/// Applies a file, as `kubectl apply --server-side` would, as it is left by KubeVirt's own webhooks, which do not run here.
///
/// # Errors
/// When the API server refuses an object or does not answer.
pub async fn apply(client: &Client, example: Example, names: Renamed<'_>) -> anyhow::Result<()> {
    for object in objects(example, names)? {
        let applied = tokio::time::timeout(PATIENCE, apply_one(client, object)).await;
        let applied = applied.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer in {PATIENCE:?}")));
        applied.with_context(|| format!("applying examples/{}", example.0))?;
    }
    Ok(())
}

async fn apply_one(client: &Client, value: Value) -> anyhow::Result<()> {
    let value = defaulted(value)?;
    let object: DynamicObject = serde_json::from_value(value.clone())?;
    let types = object.types.context("an object without apiVersion and kind")?;
    let name = object.metadata.name.context("an object without a name")?;
    let kind = GroupVersionKind::try_from(&types)?;
    let (resource, _) = discovery::pinned_kind(client, &kind).await?;
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    api.patch(&name, &PatchParams::apply(MANAGER), &Patch::Apply(&value)).await?;
    Ok(())
}

/// What virt-api would add.
fn defaulted(mut object: Value) -> anyhow::Result<Value> {
    let added = match object.get("kind").and_then(Value::as_str) {
        Some("VirtualMachineInstance") => {
            object.pointer("/spec/domain/cpu").context("a VM without CPUs")?;
            let cpu = json!({"sockets": 1, "threads": 1});
            json!({"spec": {"architecture": "amd64", "domain": {"machine": {"type": "q35"}, "cpu": cpu}}})
        }
        Some("VirtualMachineInstanceMigration") => {
            let vmi = object.pointer("/spec/vmiName").context("a migration of no VM")?;
            let finalizers = ["kubevirt.io/migrationJobFinalize"];
            json!({"metadata": {"labels": {"kubevirt.io/vmi-name": vmi}, "finalizers": finalizers}})
        }
        _ => return Ok(object),
    };
    json_patch::merge(&mut object, &added);
    Ok(object)
}

#[cfg(test)]
mod tests {
    use std::fs::read_dir;

    use serde_json::json;

    use super::*;

    #[test]
    fn every_file_is_played() {
        let examples = format!("{}/../../examples", env!("CARGO_MANIFEST_DIR"));
        let mut names = Vec::new();
        for folder in ["", "cluster-quota/", "migration/", "vms/"] {
            let entries = read_dir(format!("{examples}/{folder}")).unwrap().map(Result::unwrap);
            let files = entries.filter(|entry| entry.path().is_file() && entry.file_name() != "README.md");
            names.extend(files.map(|entry| format!("{folder}{}", entry.file_name().into_string().unwrap())));
        }
        names.sort();
        assert_eq!(names, ALL.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    }

    #[test]
    fn another_name_leaves_no_trace_of_the_first() {
        let first = ALL.iter().filter(|(file, _)| !file.contains('/')).map(|file| (file, NAMESPACE));
        let cluster = [SHOP, SHOP_QUOTA, SHOP_PODS];
        for (example, name) in first.chain(cluster.iter().map(|file| (file, "shop"))) {
            let text = serde_json::to_string(&objects(*example, (name, "other-1")).unwrap()).unwrap();
            assert!(!text.contains(name) && text.contains("other-1"), "{text}");
        }
        let names = (NAMESPACE, "other-1");
        assert_eq!(objects(PRIORITY, names).unwrap()[0]["metadata"]["name"], "other-1-urgent");
        assert_eq!(objects(URGENT, names).unwrap()[0]["spec"]["priorityClassName"], "other-1-urgent");
    }

    #[test]
    fn what_is_in_a_file_stays() {
        let names = (NAMESPACE, NAMESPACE);
        let file = objects(ONE_VM, names).unwrap().remove(0);
        let vm = defaulted(file.clone()).unwrap();
        assert_eq!(vm["spec"]["domain"]["memory"], file["spec"]["domain"]["memory"]);
        assert_eq!(vm["spec"]["domain"]["cpu"], json!({"cores": 1, "sockets": 1, "threads": 1}));
        let migration = defaulted(objects(ONE_VM_MIGRATION, names).unwrap().remove(0)).unwrap();
        assert_eq!(migration["metadata"]["labels"]["kubevirt.io/vmi-name"], "web");
        assert!(defaulted(json!({"kind": "VirtualMachineInstance"})).is_err());
    }
}
