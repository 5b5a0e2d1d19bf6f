//! Evaluators beside the controller: programs in containers of its pod that say what pods take.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use prometheus_client::registry::Registry;
use sluice_evaluators::{Config, EvaluatorState, Evaluators, OtherPods, summary};
use sluice_gate::{Gate, MOST_EVALUATORS, OnFailure, OtherPodsForm};
use sluice_runtime::health::Checks;
use sluice_runtime::shutdown::Tasks;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Flags about evaluators.
#[derive(Debug, clap::Args)]
pub struct SidecarArgs {
    /// An evaluator that says what pods take, by application-aware-quota's protocol, and the directory of its socket; may be
    /// given more than once. No pod goes before each of them has answered
    #[arg(long = "evaluator", value_name = "NAME=DIRECTORY")]
    evaluators: Vec<Named>,
    /// The same, of an evaluator that is asked as the Evaluator object of its name says, and not without it: the operator
    /// gives it for containers that such objects name
    #[arg(long = "evaluator-of-object", value_name = "NAME=DIRECTORY")]
    evaluators_of_objects: Vec<Named>,
    /// What becomes of waiting pods when evaluators have not worked for ten seconds: they are held, or charged what
    /// Kubernetes counts
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = WhenBroken::Hold)]
    evaluator_failure: WhenBroken,
    /// Which other pods evaluators are sent with each question: those of the namespace, as application-aware-quota does, or
    /// none, where evaluators do not look at them: then nothing is asked again when another pod changes
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = SentPods::Namespace)]
    evaluator_other_pods: SentPods,
}

/// Value of `--evaluator-other-pods`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum SentPods {
    Namespace,
    None,
}

/// Value of `--evaluator-failure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum WhenBroken {
    Hold,
    CountNatively,
}

/// Value of `--evaluator`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    name: Arc<str>,
    directory: PathBuf,
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, directory) = text.split_once('=').ok_or("expected NAME=DIRECTORY")?;
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_name = (1..=63).contains(&name.len()) && name.chars().all(is_word);
        if !is_name || name.starts_with('-') || name.ends_with('-') {
            return Err(format!(
                "the name {name:?} is none of a container: 1 to 63 lower case letters, digits and hyphens"
            ));
        }
        let directory = Path::new(directory);
        if !directory.is_absolute() {
            return Err(format!("the directory {} does not begin with /", directory.display()));
        }
        Ok(Self { name: name.into(), directory: directory.into() })
    }
}

/// The evaluators beside a controller.
pub struct Sidecars {
    /// Asks them.
    pub evaluators: Arc<Evaluators>,
    /// Their names, in their order.
    pub names: Vec<Arc<str>>,
    /// So many of them, the first ones, are asked without an `Evaluator` of their name too.
    pub without_object: usize,
    /// What becomes of pods about which they do not answer, where their policies do not say it.
    pub on_failure: OnFailure,
    /// Whether the other pods of the namespace are sent to them, where their policies do not say it.
    pub see_other_pods: bool,
}

/// How the other pods of a namespace are sent.
pub fn other_pods_form() -> OtherPodsForm {
    OtherPodsForm { most_bytes: OtherPods::MOST, encode: |pods| OtherPods::of(pods).bytes().clone() }
}

impl SidecarArgs {
    /// Looks for the evaluators from now on.
    ///
    /// # Errors
    /// When two have one name or one directory, or there are too many.
    pub fn start(&self, metrics: &mut Registry) -> anyhow::Result<Sidecars> {
        let all: Vec<&Named> = self.evaluators.iter().chain(&self.evaluators_of_objects).collect();
        anyhow::ensure!(
            all.len() <= MOST_EVALUATORS,
            "evaluators are given {} times: at most {MOST_EVALUATORS} are asked",
            all.len()
        );
        for (place, named) in all.iter().enumerate() {
            let is_same = |other: &&&Named| other.name == named.name || other.directory == named.directory;
            if let Some(other) = all.iter().take(place).find(is_same) {
                let [one, two] = [*other, *named].map(|it| format!("{}={}", it.name, it.directory.display()));
                anyhow::bail!("evaluators {one} and {two}: each needs a name and a directory of its own");
            }
        }
        let configs = all.iter().map(|named| Config::new(Arc::clone(&named.name), &named.directory));
        let evaluators = Arc::new(Evaluators::new(configs.collect()));
        evaluators.metrics().register(metrics);
        let on_failure = match self.evaluator_failure {
            WhenBroken::Hold => OnFailure::Hold,
            WhenBroken::CountNatively => OnFailure::CountNatively,
        };
        let names: Vec<_> = all.iter().map(|named| Arc::clone(&named.name)).collect();
        let see_other_pods = self.evaluator_other_pods == SentPods::Namespace;
        let without_object = self.evaluators.len();
        Ok(Sidecars { evaluators, names, without_object, on_failure, see_other_pods })
    }
}

impl Sidecars {
    /// Tells of each in the answer of `/readyz`. None of them keeps the controller from being ready.
    pub fn tell(&self, ready: &Checks) {
        if self.names.is_empty() {
            return;
        }
        let states = self.evaluators.follow();
        ready.tell("evaluators", move || summary(&states.borrow()));
    }

    /// Has the gate follow whether they work.
    pub fn spawn(&self, tasks: &mut Tasks, gate: &Gate, cancel: &CancellationToken) {
        let (gate, cancel) = (gate.clone(), cancel.clone());
        let states = self.evaluators.follow();
        // The evaluators stop when the last reference to them is dropped.
        let evaluators = Arc::clone(&self.evaluators);
        tasks.spawn("states of evaluators", async move {
            let _evaluators = evaluators;
            cancel.run_until_cancelled(follow_states(states, &gate)).await;
            Ok::<_, Infallible>(())
        });
    }
}

async fn follow_states(mut states: watch::Receiver<Vec<EvaluatorState>>, gate: &Gate) {
    let mut told = Vec::new();
    loop {
        let now = states.borrow_and_update().clone();
        for (place, state) in now.iter().enumerate() {
            let before = told.get(place).and_then(EvaluatorState::failure);
            match state.failure() {
                Some(failure) if before.as_ref() != Some(&failure) => {
                    tracing::warn!(evaluator = %state.name, why = %failure, "evaluator does not work");
                }
                None if before.is_some() && state.is_ready() => {
                    tracing::info!(evaluator = %state.name, "evaluator works");
                }
                _ => {}
            }
        }
        let broken = now.iter().enumerate().filter(|(_, state)| state.failure().is_some());
        gate.on_evaluators_broken(broken.fold(0, |bits, (place, _)| bits | bit(place)));
        told = now;
        if states.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// The bit of an evaluator.
pub fn bit(place: usize) -> u16 {
    u32::try_from(place).ok().and_then(|place| 1u16.checked_shl(place)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use sluice_manifests::{AskedOfPods, InstallOptions, OfEvaluator, operand_objects};

    use super::*;

    #[test]
    fn wrong_values_are_refused_with_the_remedy() {
        let name = |name: &str| {
            format!(
                "the name {name:?} is none of a container: 1 to 63 lower case letters, digits and hyphens"
            )
        };
        for (text, said) in [
            ("license", "expected NAME=DIRECTORY".to_owned()),
            ("=/run/a", name("")),
            ("A=/run/a", name("A")),
            ("a-=/run/a", name("a-")),
            ("a=run/a", "the directory run/a does not begin with /".to_owned()),
        ] {
            assert_eq!(text.parse::<Named>(), Err(said));
        }
    }

    fn args(evaluators: Vec<Named>, evaluators_of_objects: Vec<Named>) -> SidecarArgs {
        SidecarArgs {
            evaluators,
            evaluators_of_objects,
            evaluator_failure: WhenBroken::Hold,
            evaluator_other_pods: SentPods::Namespace,
        }
    }

    /// Whatever an `AAQ` and `Evaluator`s name, the controller that is rendered for them starts.
    #[tokio::test]
    async fn what_is_rendered_is_taken() {
        let named = |n: usize| serde_json::json!({ "name": format!("e{n}"), "image": "i" });
        let mut containers: Vec<serde_json::Value> = (0..20).map(named).collect();
        containers[0] = serde_json::json!({});
        containers[1]["name"] = "refused-0".into();
        containers[2]["name"] = "e3".into();
        let of_object = |container: &serde_json::Value| {
            let spec = serde_json::json!({ "sidecar": container });
            let name = container["name"].as_str()?;
            let is_askable = sluice_api::refused_of_evaluator(name, &spec).is_empty();
            let container = sluice_api::sidecar_of_evaluator(name, &spec).filter(|_| is_askable)?;
            Some(OfEvaluator { container, runs: true })
        };
        let of_objects = containers[..4].iter().chain(&containers[18..]).filter_map(of_object).collect();
        containers.truncate(15);
        let mut asked = AskedOfPods { sidecars: containers.into(), ..AskedOfPods::default() };
        asked.find_places(of_objects);
        let objects = operand_objects(&InstallOptions::default(), &asked);
        let pods = objects.iter().filter(|it| it["metadata"]["name"] == sluice_api::names::CONTROLLER);
        let args = pods.filter_map(|it| it["spec"]["template"]["spec"]["containers"][0]["args"].as_array());
        let args: Vec<&str> = args.flatten().filter_map(serde_json::Value::as_str).collect();
        let given = |flag: &str| -> Vec<Named> {
            args.iter().filter_map(|arg| arg.strip_prefix(flag)?.parse().ok()).collect()
        };
        let (of_aaq, of_objects) = (given("--evaluator="), given("--evaluator-of-object="));
        assert_eq!((of_aaq.len(), of_objects.len()), (15, MOST_EVALUATORS - 15));
        self::args(of_aaq, of_objects).start(&mut Registry::default()).unwrap();
    }

    #[tokio::test]
    async fn each_has_a_name_and_a_directory_of_its_own() {
        let started = |values: &[&str]| {
            let mut evaluators: Vec<Named> = values.iter().map(|value| value.parse().unwrap()).collect();
            let of_objects = evaluators.split_off(evaluators.len() / 2);
            args(evaluators, of_objects)
                .start(&mut Registry::default())
                .map(|it| it.names.len())
                .map_err(|error| error.to_string())
        };
        assert_eq!(started(&[]), Ok(0));
        assert_eq!(started(&["a=/run/a", "b=/run/b"]), Ok(2));
        for (two, said) in [
            (["a=/run/a", "a=/run/b"], "evaluators a=/run/a and a=/run/b"),
            (["a=/run/a", "b=/run/a"], "evaluators a=/run/a and b=/run/a"),
        ] {
            let said = format!("{said}: each needs a name and a directory of its own");
            assert_eq!(started(&two), Err(said));
        }
        let many: Vec<String> = (0..17).map(|n| format!("e{n}=/run/{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let said = "evaluators are given 17 times: at most 16 are asked".to_owned();
        assert_eq!(started(&many), Err(said));
    }
}
