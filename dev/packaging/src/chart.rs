//! The Helm chart: the objects that are rendered, with expressions of the template where they depend on values. Most values
//! nothing but the operator depends on, which reads them as its options.

mod fixed;
mod marks;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use sluice_manifests::{
    InstallOptions, cert_manager_rights, crds, install_objects, monitoring_objects, rancher_objects,
    removal_rights,
};

use crate::yaml::{HEADER, one};
use crate::{Files, dashboards, documents, name};
use marks::{OPTIONS, base, substitute, with_issuer, with_monitoring, with_the_aaq};

/// All files by their path in the chart.
///
/// # Errors
/// When an object cannot be written as YAML.
pub fn files() -> anyhow::Result<Files> {
    let mut files = fixed::files(&operator_labels()?);
    for (path, text) in dashboards::files()? {
        let file = path.file_name().context("a dashboard has no name")?;
        files.insert(Path::new("dashboards").join(file), text);
    }
    let templates = Path::new("templates");
    files.insert(templates.join("objects.yaml"), substitute(&documents(&always())?));
    let conditional = [
        ("disruption-budget.yaml", "gt (int .Values.replicas) 1", disruption_budgets()),
        ("cert-manager.yaml", ".Values.certManager.issuerRef", cert_manager_rights(&with_issuer())),
        (
            "service-monitor.yaml",
            ".Values.monitoring.serviceMonitor",
            monitoring_objects(&with_monitoring(true, false)),
        ),
        ("alerts.yaml", ".Values.monitoring.rules", monitoring_objects(&with_monitoring(false, true))),
        ("removal.yaml", "eq .Values.installation \"cr\"", removal_rights(&with_the_aaq())),
        ("rancher.yaml", ".Values.rancher", rancher_objects(&base())),
    ];
    for (file, condition, objects) in conditional {
        // Prometheus has templates too.
        let text = documents(&objects)?.replace("{{", "{{ \"{{\" }}");
        files.insert(templates.join(file), when(condition, &substitute(&text)));
    }
    files.insert(templates.join("critical-pods.yaml"), critical_pods()?);
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

fn operator_labels() -> anyhow::Result<String> {
    let objects = install_objects(&base());
    let labels = objects.iter().find_map(|object| object.pointer("/spec/selector/matchLabels"));
    one(labels.context("the operator has no Deployment")?)
}

fn when(condition: &str, text: &str) -> String {
    format!("{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n")
}

/// Objects that are there whatever the values say.
fn always() -> Vec<Value> {
    let mut objects = install_objects(&base());
    objects.retain(|object| !is_budget(object) && !is_critical_pods(object));
    let options = objects.iter_mut().filter_map(|object| object.get_mut("data")?.get_mut("options.yaml"));
    options.for_each(|text| *text = json!(OPTIONS));
    objects
}

/// For several replicas alone.
fn disruption_budgets() -> Vec<Value> {
    install_objects(&base()).into_iter().filter(is_budget).collect()
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
