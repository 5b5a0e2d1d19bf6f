//! Starts evaluators, and asks them.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use sluice_engine::{Amount, Charge, Quantity, Resource};
use sluice_evaluators::{
    AskedSidecar, Config, EvaluatorState, Evaluators, Link, OtherPods, Question, SidecarPolicy,
};
use sluice_index::ViewKey;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

/// How long a test waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The program that plays libsidecar.
pub fn standin() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| sluice_testbed::artifacts::evaluator().unwrap())
}

/// Programs that have to stand the same tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Standin,
    Upstream,
}

/// The stand-in, and upstream's example where there is one.
pub fn programs() -> Vec<Program> {
    let upstream = std::env::var_os("SLUICE_UPSTREAM_EVALUATOR").map(|_| Program::Upstream);
    [Some(Program::Standin), upstream].into_iter().flatten().collect()
}

/// A running evaluator; it is killed when dropped, as a container is.
pub struct Sidecar(Child);

impl Sidecar {
    pub fn start(directory: &Path, args: &[&str]) -> Self {
        let mut command = Command::new(standin());
        command.arg("--dir").arg(directory).args(args);
        Self::spawn(command)
    }

    pub fn of(program: Program, directory: &Path, config: &str) -> Self {
        if program == Program::Standin {
            return Self::start(directory, &["--config", config]);
        }
        let script = "mkdir -p /var/run/aaq-sockets && mount --bind \"$1\" /var/run/aaq-sockets && \
                      exec \"$0\" --config \"$2\"";
        let mut command = Command::new("unshare");
        let upstream = std::env::var_os("SLUICE_UPSTREAM_EVALUATOR").unwrap();
        command.args(["--mount", "sh", "-c", script]).arg(upstream).arg(directory).arg(config);
        Self::spawn(command)
    }

    pub fn as_user(uid: u32, directory: &Path) -> Self {
        // Where it was built, only we may look.
        let program = directory.join("evaluator");
        std::fs::copy(standin(), &program).unwrap();
        let mut command = Command::new(program);
        command.arg("--dir").arg(directory).uid(uid);
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        Self(command.stdin(Stdio::null()).kill_on_drop(true).spawn().unwrap())
    }

    /// Kills it and waits for its end. Its socket stays.
    pub async fn kill(mut self) {
        self.0.kill().await.unwrap();
    }
}

/// What is configured of the evaluator in `directory`. No test is about a loaded machine.
pub fn config(directory: &Path) -> Config {
    let mut config = Config::new("label", directory);
    config.limits.timeout = PATIENCE;
    config
}

pub fn evaluators(directory: &Path) -> Evaluators {
    Evaluators::new(vec![config(directory)])
}

/// Waits until the only evaluator is in such a state.
pub async fn until(evaluators: &Evaluators, is: impl Fn(&EvaluatorState) -> bool) -> EvaluatorState {
    let mut states = evaluators.follow();
    let found = tokio::time::timeout(PATIENCE, states.wait_for(|states| is(&states[0]))).await;
    match found {
        Ok(states) => states.unwrap()[0].clone(),
        Err(_) => panic!("not within {PATIENCE:?}: {:?}", evaluators.follow().borrow()),
    }
}

pub async fn until_ready(evaluators: &Evaluators) -> u64 {
    match until(evaluators, EvaluatorState::is_ready).await.presence {
        Some(Ok(incarnation)) => incarnation,
        other => panic!("{other:?}"),
    }
}

/// A pod with the label that the example is about.
pub fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "t", "uid": name, "labels": {"label-app": ""}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {
            "requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"},
        }}]},
        "status": {"phase": "Running"},
    })
}

pub fn question_of(pod: &Value) -> Question {
    static KEY: OnceLock<ViewKey> = OnceLock::new();
    let view = KEY.get_or_init(ViewKey::default).view(&pod.to_string()).unwrap();
    Question {
        uid: pod["metadata"]["uid"].as_str().unwrap_or("u").into(),
        namespace: pod["metadata"]["namespace"].as_str().unwrap_or("t").into(),
        hash: view.hash,
        pod_json: view.json.into(),
        other_pods: OtherPods::default(),
        is_waiting: true,
        native: Arc::new(charge(&[("cpu", "250m"), ("pods", "1")])),
        counted: Arc::default(),
        rules: Arc::default(),
        sidecars: [AskedSidecar { place: 0, policy: Arc::default(), sees_other_pods: true }].into(),
    }
}

pub fn question(name: &str) -> Question {
    question_of(&pod(name))
}

/// The sidecar at this place, asked by a policy with these fields.
pub fn asked_by(place: usize, mut fields: Value) -> AskedSidecar {
    fields["sidecar"] = json!({});
    AskedSidecar { place, policy: SidecarPolicy::read(&fields).into(), sees_other_pods: true }
}

/// A question about a pod of another namespace.
pub fn question_in(namespace: &str, name: &str) -> Question {
    Question { namespace: namespace.into(), ..question(name) }
}

pub fn charge(pairs: &[(&str, &str)]) -> Charge {
    let pair = |(key, amount): &(&str, &str)| {
        (Resource::from_quota_key(key), Amount::from(Quantity::parse(amount).unwrap()))
    };
    Charge::from_pairs(pairs.iter().map(pair))
}

/// What the example charges for [`pod`], this many times.
pub fn label_charge(double: bool) -> Charge {
    if double {
        charge(&[
            ("cpu", "500m"),
            ("memory", "512Mi"),
            ("limits.memory", "1Gi"),
            ("pods", "2"),
            ("count/pods", "2"),
        ])
    } else {
        charge(&[
            ("cpu", "750m"),
            ("memory", "768Mi"),
            ("limits.memory", "1536Mi"),
            ("pods", "3"),
            ("count/pods", "3"),
        ])
    }
}

/// A connection to the only socket of a directory that somebody listens on.
pub async fn link(directory: &Path) -> Link {
    let deadline = Instant::now() + PATIENCE;
    loop {
        for entry in std::fs::read_dir(directory).unwrap() {
            if let Ok(stream) = UnixStream::connect(entry.unwrap().path()).await {
                return Link::over(stream).await.unwrap();
            }
        }
        assert!(Instant::now() < deadline, "nobody listens in {}", directory.display());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The golden bytes of the protocol.
pub fn golden(name: &str) -> String {
    let all: Value = serde_json::from_str(include_str!("../../../evaluator-sdk/tests/golden.json")).unwrap();
    all[name].as_str().unwrap().to_owned()
}

pub fn golden_bytes(name: &str) -> Bytes {
    let text = golden(name);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    text.as_bytes().chunks(2).map(byte).collect()
}
