//! `sluice evaluator explain`: what a rule says of pods.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use serde::Serialize;
use serde_json::{Map, Value};
use sluice_api::Evaluator;
use sluice_engine::evaluation::combine;
use sluice_engine::{Charge, ChargeRules, Format, Resource};
use sluice_evaluators::{Answered, RuleEvaluator, check_rule};

use super::failed;
use crate::output::Output;

/// Exit code when the rule is refused, or has no answer.
const WRONG: u8 = 1;
/// Exit code when a file cannot be read.
const UNREADABLE: u8 = 2;
/// The newest version of Kubernetes whose counting is known.
const RULES: ChargeRules = ChargeRules::for_minor(37);

/// Flags of `sluice evaluator explain`.
#[derive(Debug, clap::Args)]
pub struct ExplainArgs {
    /// The Evaluator, in YAML or JSON
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Pods in YAML or JSON, also several in one file, or a list as `kubectl get pods --output yaml` prints it
    #[arg(short, long, value_name = "FILE")]
    pods: PathBuf,
    /// How to print what the rule says
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// Prints what the rule says.
///
/// # Errors
/// When standard output cannot be written.
pub(super) fn run(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let (evaluator, pods) = match read(&args.file, &args.pods) {
        Ok(read) => read,
        Err(error) => return Ok(failed(&error, UNREADABLE)),
    };
    let explained = match explain(&evaluator, &pods) {
        Ok(explained) => explained,
        Err(error) if error.is::<NotAPod>() => {
            return Ok(failed(&error.context(args.pods.display().to_string()), UNREADABLE));
        }
        Err(error) => {
            return Ok(failed(&error.context(args.file.display().to_string()), WRONG));
        }
    };
    let mut out = std::io::stdout();
    match args.output {
        Output::Table => write!(out, "{explained}")?,
        Output::Json => writeln!(out, "{}", serde_json::to_string_pretty(&explained)?)?,
    }
    Ok(if explained.pods.iter().all(|pod| pod.held.is_none()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(WRONG)
    })
}

fn read(evaluator: &Path, pods: &Path) -> anyhow::Result<(Evaluator, Vec<Map<String, Value>>)> {
    let text = |path: &Path| {
        std::fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()))
    };
    let first_line =
        |error: &dyn fmt::Display| error.to_string().lines().next().unwrap_or_default().to_owned();
    let file: Evaluator = serde_saphyr::from_str(&text(evaluator)?).map_err(|error| {
        anyhow::anyhow!("{} is no Evaluator: {}", evaluator.display(), first_line(&error))
    })?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text(pods)?)
        .map_err(|error| anyhow::anyhow!("{} cannot be parsed: {}", pods.display(), first_line(&error)))?;
    let mut found = Vec::new();
    for document in documents {
        collect(document, &mut found).with_context(|| pods.display().to_string())?;
    }
    if found.is_empty() {
        bail!("{} has no pod: write one, or print some with kubectl get pods --output yaml", pods.display());
    }
    Ok((file, found))
}

/// Takes a pod, or the pods of a list.
fn collect(document: Value, found: &mut Vec<Map<String, Value>>) -> anyhow::Result<()> {
    let Value::Object(mut object) = document else { bail!("a document is no object: write a pod") };
    match object.get("kind").and_then(Value::as_str) {
        Some("Pod") | None => found.push(object),
        Some("List" | "PodList") => {
            let Some(Value::Array(items)) = object.remove("items") else { bail!("the list has no items") };
            for item in items {
                collect(item, found)?;
            }
        }
        Some(kind) => bail!("{kind} is no pod: write the pod that it makes"),
    }
    Ok(())
}

/// What a rule says.
#[derive(Debug, Serialize)]
struct Explained {
    evaluator: String,
    pods: Vec<ExplainedPod>,
}

/// What a rule says of a pod.
#[derive(Debug, Serialize)]
struct ExplainedPod {
    pod: String,
    /// Absent: the rule has no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    matches: Option<bool>,
    /// What Kubernetes counts.
    native: BTreeMap<String, String>,
    /// What is charged; nothing while the pod is held.
    charged: BTreeMap<String, String>,
    /// Why the pod would be held.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<String>,
}

fn explain(evaluator: &Evaluator, pods: &[Map<String, Value>]) -> anyhow::Result<Explained> {
    let name = evaluator.metadata.name.clone().unwrap_or_default();
    let rule = check_rule(&name, &evaluator.spec)?;
    let pods = pods.iter().map(|pod| explain_pod(&rule, pod)).collect::<Result<_, _>>()?;
    Ok(Explained { evaluator: name, pods })
}

fn explain_pod(rule: &RuleEvaluator, pod: &Map<String, Value>) -> anyhow::Result<ExplainedPod> {
    let name = pod.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Value::as_str);
    let name = name.unwrap_or("(without a name)").to_owned();
    let (native, answer) =
        rule.try_on(pod, RULES).map_err(|error| NotAPod(format!("pod {name}: {error}")))?;
    let (matches, charged, held) = match &answer {
        Ok(Answered::NoMatch) => (Some(false), texts(&native), None),
        Ok(Answered::Charge(charge)) => {
            let charged = combine(&native, [(rule.strategy(), charge)]).unwrap_or_default();
            (Some(true), texts(&charged), None)
        }
        Err(failure) => (None, BTreeMap::new(), Some(format!("the rule {failure}"))),
    };
    Ok(ExplainedPod { pod: name, matches, native: texts(&native), charged, held })
}

/// A pod that is to be explained is none.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NotAPod(String);

fn texts(charge: &Charge) -> BTreeMap<String, String> {
    charge
        .iter()
        .map(|(key, amount)| (key.to_string(), amount.quantity(format_of(key)).to_string()))
        .collect()
}

const fn format_of(resource: &Resource) -> Format {
    use Resource::{EphemeralStorage, LimitsEphemeralStorage, LimitsMemory, Memory};
    match resource {
        Memory | LimitsMemory | EphemeralStorage | LimitsEphemeralStorage => Format::BinarySi,
        _ => Format::DecimalSi,
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.pods.iter().flat_map(|pod| pod.native.keys().chain(pod.charged.keys()));
        let key = keys.map(String::len).max().unwrap_or(0).max("KEY".len());
        for (number, pod) in self.pods.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            pod.write(&self.evaluator, key, f)?;
        }
        Ok(())
    }
}

impl ExplainedPod {
    fn write(&self, evaluator: &str, key: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let says = match (&self.held, self.matches) {
            (Some(why), _) => format!("would be held: {why}"),
            (None, Some(true)) => "matches".to_owned(),
            (None, _) => "does not match".to_owned(),
        };
        writeln!(f, "evaluator {evaluator}, pod {}: {says}", self.pod)?;
        writeln!(f, "{:<key$}  {:>12}  {:>12}", "KEY", "NATIVE", "CHARGED")?;
        let keys: BTreeSet<_> = self.native.keys().chain(self.charged.keys()).collect();
        for name in keys {
            let of = |amounts: &BTreeMap<String, String>| {
                amounts.get(name).cloned().unwrap_or_else(|| "-".to_owned())
            };
            writeln!(f, "{name:<key$}  {:>12}  {:>12}", of(&self.native), of(&self.charged))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sluice_api::names;

    use super::*;

    const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/evaluators");

    fn explained(rule: &str) -> String {
        let folder = Path::new(EXAMPLES);
        let read = read(&folder.join(rule), &folder.join("pods.yaml")).expect(rule);
        let explained = explain(&read.0, &read.1).unwrap_or_else(|error| panic!("{rule}: {error:#}"));
        assert!(!read.0.spec.examples.is_empty(), "{rule} shows what it does");
        assert_eq!(read.0.metadata.name.as_deref(), rule.strip_suffix(".yaml"));
        explained.to_string()
    }

    #[test]
    fn licences_by_image() {
        insta::assert_snapshot!(explained("licence-per-core.yaml"), @r"
        evaluator licence-per-core, pod db: matches
        KEY                        NATIVE       CHARGED
        count/pods                      1             1
        cpu                         2750m         2750m
        example.com/license             -             3
        memory                     8704Mi        8704Mi
        pods                            1             1

        evaluator licence-per-core, pod train: does not match
        KEY                        NATIVE       CHARGED
        count/pods                      1             1
        cpu                             4             4
        pods                            1             1
        ");
    }

    #[test]
    fn gpus_by_label() {
        insta::assert_snapshot!(explained("gpu-share.yaml"), @r"
        evaluator gpu-share, pod db: does not match
        KEY                    NATIVE       CHARGED
        count/pods                  1             1
        cpu                     2750m         2750m
        memory                 8704Mi        8704Mi
        pods                        1             1

        evaluator gpu-share, pod train: matches
        KEY                    NATIVE       CHARGED
        count/pods                  1             1
        cpu                         4             4
        example.com/gpu             -         1500m
        pods                        1             1
        ");
    }

    #[test]
    fn a_fee_by_runtime_class() {
        insta::assert_snapshot!(explained("sandbox-fee.yaml"), @r"
        evaluator sandbox-fee, pod db: matches
        KEY                        NATIVE       CHARGED
        count/pods                      1             1
        cpu                         2750m         2750m
        example.com/sandbox             -             1
        memory                     8704Mi        8704Mi
        pods                            1             1

        evaluator sandbox-fee, pod train: does not match
        KEY                        NATIVE       CHARGED
        count/pods                      1             1
        cpu                             4             4
        pods                            1             1
        ");
    }

    #[test]
    fn all_examples_that_are_rules_are_explained() {
        let mut names: Vec<_> = std::fs::read_dir(EXAMPLES)
            .expect("the folder")
            .map(|entry| entry.expect("a file").file_name().into_string().expect("a name"))
            // The policy of a sidecar has no rule.
            .filter(|name| name.ends_with(".yaml") && !name.ends_with("-sidecar.yaml"))
            .collect();
        names.sort();
        assert_eq!(
            names,
            ["gpu-policy.yaml", "gpu-share.yaml", "licence-per-core.yaml", "pods.yaml", "sandbox-fee.yaml"]
        );
    }

    fn evaluator(spec: &Value) -> Evaluator {
        let object = serde_json::json!({
            "apiVersion": names::OWN_GROUP.to_owned() + "/" + names::OWN_VERSION, "kind": names::EVALUATOR,
            "metadata": { "name": "a" }, "spec": spec,
        });
        serde_json::from_value(object).expect("an evaluator")
    }

    #[test]
    fn what_holds_a_pod_is_told() {
        let pod =
            serde_json::json!({ "metadata": { "name": "p" }, "spec": { "containers": [{ "name": "a" }] } });
        let pod = [pod.as_object().cloned().expect("an object")];
        let said = [
            serde_json::json!({ "cel": { "match": "true", "charge": { "example.com/a": "native['requests.cpu']" } } }),
            serde_json::json!({ "cel": { "match": "true", "charge": { "example.com/a": "0" } } }),
            serde_json::json!({ "floor": "Native", "cel": { "match": "true", "charge": { "example.com/a": "1" } } }),
        ]
        .map(|spec| explain(&evaluator(&spec), &pod).expect("explained").pods.remove(0).held.expect("held"));
        insta::assert_snapshot!(said.join("\n"), @r#"
        the rule has no answer about this pod: spec.cel.charge[example.com/a]: 1:7: Kubernetes charges this pod no "requests.cpu": ask before with "requests.cpu" in native
        the rule answered what cannot be charged: the list charges nothing, let the evaluator charge something or not match (its Evaluator may set floor: None)
        the rule answered what cannot be charged: pods: 0: less than Kubernetes counts, 1, and floor is Native
        "#);
        let retained = serde_json::json!({ "strategy": "Retain", "cel": { "match": "true", "charge": { "pods": "1" } } });
        let explained = explain(&evaluator(&retained), &pod).expect("explained");
        assert_eq!(explained.pods[0].charged["pods"], "2");
    }
}
