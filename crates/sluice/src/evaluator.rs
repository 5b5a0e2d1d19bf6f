//! `sluice evaluator`: tries evaluators without a cluster.

mod explain;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use sluice_evaluators::check::{Sample, check, generated};

use crate::output::Output;

/// Exit code when the evaluator does something wrong.
const WRONG: u8 = 1;
/// Exit code when it cannot be reached, or an option is wrong.
const NOT_REACHED: u8 = 2;

/// Flags of `sluice evaluator`.
#[derive(Debug, clap::Args)]
pub struct EvaluatorArgs {
    #[command(subcommand)]
    command: EvaluatorCommand,
}

#[derive(Debug, clap::Subcommand)]
enum EvaluatorCommand {
    /// Ask an evaluator about pods, wrong and large questions, and measure how fast it answers
    ///
    /// Prints what Kubernetes counts for each pod beside what the evaluator charges. It has to run as the user of the
    /// evaluator. What is tried is told on standard error. No cluster is needed.
    ///
    /// Exit code: 0: all is good; 1: something is wrong, and the output says what; 2: the evaluator cannot be reached, or an
    /// option is wrong.
    Check(CheckArgs),
    /// Print what the rule of an Evaluator charges pods, beside what Kubernetes counts
    ///
    /// The rule's own examples are checked first, as at its admission. No cluster is needed, so namespaceSelector is not
    /// looked at.
    ///
    /// Exit code: 0: the rule has an answer for each pod; 1: the rule is refused, or a pod would be held, and the output
    /// says why; 2: a file cannot be read, or an option is wrong.
    Explain(explain::ExplainArgs),
}

/// Flags of `sluice evaluator check`.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// The evaluator's socket
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Folder of pods in YAML or JSON to ask about, as `kubectl get pods --output yaml` prints them; without it, thirty
    /// generated ones
    #[arg(long, value_name = "DIR")]
    pods: Option<PathBuf>,
    /// How to print what was found
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// Runs a command about evaluators.
///
/// # Errors
/// When standard output cannot be written.
pub async fn run(args: EvaluatorArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        EvaluatorCommand::Check(args) => try_sidecar(args).await,
        EvaluatorCommand::Explain(args) => explain::run(&args),
    }
}

async fn try_sidecar(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let samples = match args.pods.as_deref().map_or_else(|| Ok(generated()), samples_of) {
        Ok(samples) => samples,
        Err(error) => return Ok(failed(&error, NOT_REACHED)),
    };
    let progress = |what: &str| eprintln!("trying: {what}");
    let report = match check(&args.socket, &samples, progress).await {
        Ok(report) => report,
        Err(error) => return Ok(failed(&error.into(), NOT_REACHED)),
    };
    let mut out = std::io::stdout();
    match args.output {
        Output::Table => write!(out, "{report}")?,
        Output::Json => writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?,
    }
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::from(WRONG) })
}

fn failed(error: &anyhow::Error, code: u8) -> ExitCode {
    crate::tell(error);
    ExitCode::from(code)
}

/// The pods of all files of a folder, in the order of their names.
fn samples_of(folder: &Path) -> anyhow::Result<Vec<Sample>> {
    let reading = |path: &Path| format!("could not read {}", path.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| reading(folder))? {
        let path = entry.with_context(|| reading(folder))?.path();
        if path.extension().is_some_and(|it| ["json", "yaml", "yml"].iter().any(|known| it == *known)) {
            files.push(path);
        }
    }
    files.sort();
    let mut samples = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).with_context(|| reading(&path))?;
        let object: Value = serde_saphyr::from_str(&text).with_context(|| reading(&path))?;
        let listed = object.get("items").and_then(Value::as_array).cloned();
        for pod in listed.unwrap_or_else(|| vec![object]) {
            samples.push(sample(&pod).with_context(|| reading(&path))?);
        }
    }
    ensure!(
        !samples.is_empty(),
        "{} has no pod in a file .yaml or .json: save some with `kubectl get pods --output yaml`",
        folder.display()
    );
    Ok(samples)
}

fn sample(pod: &Value) -> anyhow::Result<Sample> {
    let kind = pod.get("kind").and_then(Value::as_str).unwrap_or("Pod");
    ensure!(kind == "Pod", "it holds a {kind}, only pods and lists of pods are read");
    let text = |field: &str| pod.pointer(field).and_then(Value::as_str).unwrap_or_default();
    let name = format!("{}/{}", text("/metadata/namespace"), text("/metadata/name"));
    Sample::new(name.as_str(), pod.to_string().as_bytes()).map_err(|why| anyhow::anyhow!("pod {name}: {why}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use super::samples_of;

    #[test]
    fn pods_are_read_from_files_and_lists() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        assert!(samples_of(folder.path()).unwrap_err().to_string().contains("has no pod"));
        write("a.yaml", "kind: Pod\nmetadata: {name: a, namespace: t}\nspec: {containers: []}\n");
        write(
            "b.json",
            r#"{"kind": "List", "items": [{"kind": "Pod", "metadata": {"name": "b"}, "spec": {"containers": []}}]}"#,
        );
        write("notes.txt", "no pod");
        let names: Vec<_> =
            samples_of(folder.path()).unwrap().iter().map(|sample| sample.name.to_string()).collect();
        assert_eq!(names, ["t/a", "/b"]);
        write("c.yaml", "kind: Secret\nmetadata: {name: c}\n");
        assert!(format!("{:#}", samples_of(folder.path()).unwrap_err()).contains("it holds a Secret"));
    }
}
