//! The files of `examples/`, for any namespace; those of the other acts are in [`crate::cluster`] and [`crate::migration`].

use std::time::Duration;

use anyhow::Context as _;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Client, discovery};
use serde_json::Value;

/// The namespace that the files name.
pub const NAMESPACE: &str = "team-a";
/// The quota that the files create.
pub const QUOTA: &str = "compute";
/// Field manager of what is applied.
const MANAGER: &str = "sluice-demo";
/// How long one object may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Files of `examples/`: name and text.
macro_rules! examples {
    ($($name:ident = $file:literal;)*) => {
        $(
            #[doc = concat!("`examples/", $file, "`.")]
            pub const $name: (&str, &str) =
                ($file, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/", $file)));
        )*
        /// All of them, in the order in which `kubectl apply -f` reads them.
        #[cfg(test)]
        const ALL: &[(&str, &str)] = &[$($name),*];
    };
}
pub(crate) use examples;

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
}

/// A name that the files use, and the one that is used instead.
pub type Renamed<'n> = (&'n str, &'n str);

/// The objects of a file, with a name, and names that start with it and a dash, replaced.
///
/// # Errors
/// When the file is not YAML.
pub fn objects((file, text): (&str, &str), names: Renamed<'_>) -> anyhow::Result<Vec<Value>> {
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

/// Applies a file, as `kubectl apply --server-side` would.
///
/// # Errors
/// When the API server refuses an object or does not answer.
pub async fn apply(client: &Client, example: (&str, &str), names: Renamed<'_>) -> anyhow::Result<()> {
    for object in objects(example, names)? {
        apply_object(client, example.0, &object).await?;
    }
    Ok(())
}

/// Applies one object of a file.
///
/// # Errors
/// When the API server refuses it or does not answer.
pub async fn apply_object(client: &Client, file: &str, object: &Value) -> anyhow::Result<()> {
    let applied = tokio::time::timeout(PATIENCE, apply_one(client, object)).await;
    let applied = applied.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer in {PATIENCE:?}")));
    applied.with_context(|| format!("applying examples/{file}"))
}

async fn apply_one(client: &Client, value: &Value) -> anyhow::Result<()> {
    let object: DynamicObject = serde_json::from_value(value.clone())?;
    let types = object.types.context("an object without apiVersion and kind")?;
    let name = object.metadata.name.context("an object without a name")?;
    let kind = GroupVersionKind::try_from(&types)?;
    let (resource, _) = discovery::pinned_kind(client, &kind).await?;
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    api.patch(&name, &PatchParams::apply(MANAGER), &Patch::Apply(value)).await?;
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{ALL, NAMESPACE, PRIORITY, URGENT, objects};

    /// Asserts that these are the files of a folder below `examples`, which ends with a slash unless it is empty.
    pub(crate) fn are_all_of(folder: &str, played: &[(&str, &str)]) {
        let path = format!("{}/../../examples/{folder}", env!("CARGO_MANIFEST_DIR"));
        let entries = std::fs::read_dir(path).unwrap().map(Result::unwrap);
        let files = entries.filter(|entry| entry.path().is_file() && entry.file_name() != "README.md");
        let names = files.map(|entry| format!("{folder}{}", entry.file_name().into_string().unwrap()));
        let mut names: Vec<String> = names.collect();
        names.sort();
        assert_eq!(names, played.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    }

    #[test]
    fn every_file_of_the_folder_is_played() {
        are_all_of("", ALL);
    }

    #[test]
    fn another_namespace_leaves_no_trace_of_the_first() {
        let names = (NAMESPACE, "other-1");
        for example in ALL {
            let text = serde_json::to_string(&objects(*example, names).unwrap()).unwrap();
            assert!(!text.contains("team-a") && text.contains("other-1"), "{text}");
        }
        assert_eq!(objects(PRIORITY, names).unwrap()[0]["metadata"]["name"], "other-1-urgent");
        assert_eq!(objects(URGENT, names).unwrap()[0]["spec"]["priorityClassName"], "other-1-urgent");
    }
}
