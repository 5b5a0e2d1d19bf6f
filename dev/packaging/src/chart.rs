//! The Helm chart. Its templates are the rendered objects: what a value changes is found by rendering with and without it.

mod difference;
mod fixed;
mod substitute;
mod values;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use sluice_operator::{InstallOptions, crds, install_objects, rancher_objects};

use crate::yaml::{HEADER, one};
use crate::{Files, documents, name};
use difference::{Edit, apply, edits};
use substitute::substitute;
use values::{SEVERAL, base, toggles};

/// All files by their path in the chart.
///
/// # Errors
/// When an object cannot be written as YAML, or two values change the same lines.
pub fn files() -> anyhow::Result<Files> {
    let mut files = fixed::files();
    let templates = Path::new("templates");
    files.insert(templates.join("objects.yaml"), objects()?);
    files.insert(templates.join("disruption-budgets.yaml"), disruption_budgets()?);
    files.insert(templates.join("critical-pods.yaml"), critical_pods()?);
    let rancher = substitute(&documents(&rancher_objects(&base()))?);
    files.insert(templates.join("rancher.yaml"), when(".Values.rancher", &rancher));
    for crd in crds() {
        let path = templates.join("crds").join(format!("{}.yaml", name(&crd).context("a CRD has no name")?));
        files.insert(path, definition(crd)?);
    }
    Ok(files)
}

/// The names and contents of the values that the chart is tested with.
#[must_use]
pub fn cases() -> Vec<(PathBuf, &'static str)> {
    fixed::CASES.iter().map(|(name, text)| (PathBuf::from(format!("ci/{name}-values.yaml")), *text)).collect()
}

/// A CRD stays when the release goes: its removal would delete every object of its kind.
fn definition(mut crd: Value) -> anyhow::Result<String> {
    let metadata = crd.get_mut("metadata").and_then(Value::as_object_mut).context("a CRD has no metadata")?;
    metadata.insert("annotations".to_owned(), json!({ "helm.sh/resource-policy": "keep" }));
    let text = documents(&[crd])?.replace("{{", "{{ \"{{\" }}");
    Ok(when(".Values.crds.enabled", &text))
}

fn when(condition: &str, text: &str) -> String {
    format!("{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n")
}

/// Objects that are there whatever the values say.
fn always(options: &InstallOptions) -> Vec<Value> {
    let lasting = |object: &Value| !is_budget(object) && !is_critical_pods(object);
    install_objects(options).into_iter().filter(lasting).collect()
}

fn objects() -> anyhow::Result<String> {
    let text = documents(&always(&base()))?;
    let lines: Vec<&str> = text.lines().collect();
    let mut all: Vec<Edit> = Vec::new();
    for toggle in toggles() {
        let mut options = base();
        (toggle.set)(&mut options);
        let other = documents(&always(&options))?;
        let other: Vec<&str> = other.lines().collect();
        let changes = edits(&lines, &other, toggle.condition);
        if changes.is_empty() {
            bail!("the value of {:?} changes nothing: leave it out of the chart", toggle.condition);
        }
        all.extend(changes);
    }
    Ok(substitute(&apply(&lines, all)?))
}

/// Budgets are there for several replicas alone. That of a Deployment whose number of replicas is no value always is.
fn disruption_budgets() -> anyhow::Result<String> {
    let budgets = |replicas| -> Vec<Value> {
        let options = InstallOptions { replicas, ..base() };
        install_objects(&options).into_iter().filter(is_budget).collect()
    };
    let fixed = budgets(1);
    let of_several: Vec<Value> =
        budgets(SEVERAL).into_iter().filter(|budget| !fixed.contains(budget)).collect();
    let fixed = if fixed.is_empty() { String::new() } else { documents(&fixed)? };
    let several = when("gt (int .Values.replicas) 1", &documents(&of_several)?);
    Ok(substitute(&format!("{fixed}{several}")))
}

fn is_budget(object: &Value) -> bool {
    object.get("kind").is_some_and(|kind| kind == "PodDisruptionBudget")
}

fn is_critical_pods(object: &Value) -> bool {
    name(object) == Some("sluice-critical-pods")
}

/// The number of pods that it permits grows by the same with each replica.
fn critical_pods() -> anyhow::Result<String> {
    let quota = |replicas| {
        let options = InstallOptions { replicas, ..base() };
        install_objects(&options).into_iter().find(is_critical_pods).context("no quota of critical pods")
    };
    let pods = |replicas| -> anyhow::Result<i64> {
        let quota = quota(replicas)?;
        let pods = quota
            .pointer("/spec/hard/pods")
            .and_then(Value::as_str)
            .and_then(|pods| pods.parse::<i64>().ok());
        pods.context("the quota of critical pods has no number of pods")
    };
    let (one_replica, two, three) = (pods(1)?, pods(2)?, pods(3)?);
    let each = two - one_replica;
    if three - two != each {
        bail!("the quota of critical pods does not grow by the same with each replica");
    }
    let text = one(&quota(1)?)?;
    let line = format!("pods: \"{one_replica}\"");
    if !text.contains(&line) {
        bail!("the quota of critical pods is written otherwise than as {line}:\n{text}");
    }
    let template =
        format!("pods: {{{{ add (mul {each} (int .Values.replicas)) {} | quote }}}}", one_replica - each);
    let text = format!("{HEADER}---\n{}", text.replace(&line, &template));
    let condition = "and (hasPrefix \"system-\" .Values.priorityClassName) (not .Values.sharedNamespace)";
    Ok(when(condition, &substitute(&text)))
}
