//! What Sluice's processes say themselves: logs, readiness and metrics, through the API server.

use futures::{StreamExt as _, stream};
use http::Request;
use kube::api::LogParams;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_manifests::uninstall::Kind;

use super::collect::{Bundle, yaml};
use super::index::Right;
use super::reader::{Missed, Reader, requests};
use super::reduce::is_own_container;
use super::sources::own_pods;
use super::tail::Tail;

/// Most bytes of one log.
const LARGEST_LOG: usize = 1 << 20;
/// Most bytes of all logs.
const ALL_LOGS: usize = 12 << 20;
/// Most bytes of metrics.
const LARGEST_METRICS: usize = 2 << 20;
/// Lines that a node is asked for, so that it does not send a log of gigabytes.
const LINES: i64 = 50_000;
/// How the API server begins when it does not reach a pod, with the code that a process has that is not ready
/// (`apimachinery/pkg/util/proxy/transport.go`).
const UNREACHED: &str = "error trying to reach service";
/// Pods that are asked at a time.
const AT_A_TIME: usize = 4;

/// A pod of Sluice.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    pod: String,
    containers: Vec<String>,
    /// Containers of others, whose logs are not Sluice's.
    others: Vec<String>,
}

impl Process {
    fn of(pod: &Value) -> Option<Self> {
        let containers = pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
        let names = containers.filter_map(|container| container.get("name")?.as_str().map(str::to_owned));
        let (containers, others) = names.partition(|name| is_own_container(name));
        Some(Self { pod: pod.pointer("/metadata/name")?.as_str()?.to_owned(), containers, others })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    Log { container: String, previous: bool },
    Ready,
    Metrics,
}

/// A question and its answer.
type Answer = (String, Asked, Result<Tail, Missed>);

impl Asked {
    fn of(process: &Process) -> Vec<Self> {
        let log = |container: &String, previous| Self::Log { container: container.clone(), previous };
        let logs =
            process.containers.iter().flat_map(|container| [log(container, false), log(container, true)]);
        logs.chain([Self::Ready, Self::Metrics]).collect()
    }

    fn path(&self, pod: &str) -> String {
        match self {
            Self::Log { container, previous: false } => format!("logs/{pod}/{container}.log"),
            Self::Log { container, previous: true } => format!("logs/{pod}/{container}.previous.log"),
            Self::Ready => format!("processes/{pod}/readyz.txt"),
            Self::Metrics => format!("processes/{pod}/metrics.txt"),
        }
    }

    fn what(&self, pod: &str) -> String {
        match self {
            Self::Log { previous: false, .. } => format!("log of {pod}"),
            Self::Log { previous: true, .. } => format!("log of {pod} before its last restart"),
            Self::Ready => format!("whether {pod} is ready"),
            Self::Metrics => format!("metrics of {pod}"),
        }
    }

    fn right(&self, namespace: &str) -> Right {
        let part = if matches!(self, Self::Log { .. }) { "log" } else { "proxy" };
        Right::of_pods("get", part, namespace)
    }

    fn request(&self, namespace: &str, pod: &str) -> Result<Request<Vec<u8>>, Missed> {
        let wrong = |error: String| Missed::Refused(0, error);
        let proxied = |scheme: &str, port: u16, path: &str| {
            let path = format!("/api/v1/namespaces/{namespace}/pods/{scheme}:{pod}:{port}/proxy{path}");
            Request::get(path).body(Vec::new()).map_err(|error| wrong(error.to_string()))
        };
        match self {
            Self::Log { container, previous } => {
                let container = Some(container.clone());
                let params = LogParams {
                    container,
                    previous: *previous,
                    tail_lines: Some(LINES),
                    ..LogParams::default()
                };
                let pods = requests(&Kind::new("v1", "Pod"), Some(namespace));
                pods.logs(pod, &params).map_err(|error| wrong(error.to_string()))
            }
            Self::Ready => proxied("http", names::ADMIN_PORT, names::PATH_READYZ),
            Self::Metrics => proxied("https", names::METRICS_PORT, names::PATH_METRICS),
        }
    }
}

impl Bundle<'_> {
    /// Sluice's pods, their versions, and what they say.
    pub async fn processes(&mut self) -> anyhow::Result<()> {
        let (mut processes, mut versions) = (Vec::new(), Vec::new());
        self.list(&own_pods(), |pod| {
            processes.extend(Process::of(pod));
            versions.push(version(pod));
        })
        .await?;
        self.add_versions(versions)?;
        if processes.is_empty() {
            self.index.not_there.insert(format!("pods of Sluice in namespace {}", self.index.installation));
        }
        let logs: usize = processes.iter().map(|process| process.containers.len() * 2).sum();
        let most = LARGEST_LOG.min(ALL_LOGS / logs.max(1));
        let (reader, namespace) = (self.reader, self.index.installation.clone());
        for process in &processes {
            for other in &process.others {
                self.index.leave_out(
                    format!("log of container {other} of {}", process.pod),
                    "it is not Sluice's: ask for it apart",
                );
            }
        }
        let mut asked =
            stream::iter(processes).map(|process| ask(reader, &namespace, process, most)).buffered(AT_A_TIME);
        while let Some(answers) = asked.next().await {
            for answer in answers {
                self.answered(answer)?;
            }
        }
        Ok(())
    }

    fn add_versions(&mut self, processes: Vec<Value>) -> anyhow::Result<()> {
        let versions = json!({
            "client": env!("CARGO_PKG_VERSION"), "server": self.index.server, "processes": processes,
        });
        self.add("versions.yaml", "versions of client, server and processes", None, &yaml(&versions)?)?;
        Ok(())
    }

    fn answered(&mut self, (pod, asked, answer): Answer) -> anyhow::Result<()> {
        let (path, what) = (asked.path(&pod), asked.what(&pod));
        match (answer, &asked) {
            (Ok(tail), _) => {
                let (text, cut) = tail.finish();
                if let Asked::Log { previous, .. } = asked
                    && text.is_empty()
                    && cut == 0
                {
                    // So the API server answers too where no node has the pod yet.
                    if !previous {
                        self.index.leave_out(what, "it is empty");
                    }
                    return Ok(());
                }
                if cut > 0 {
                    self.index.leave_out(&what, format!("the oldest {cut} bytes: it was too long"));
                }
                self.add(&path, &what, None, &text)?;
            }
            // A process that says why it is not ready.
            (Err(Missed::Refused(503, told)), Asked::Ready) if !told.starts_with(UNREACHED) => {
                self.add(&path, &what, None, &format!("{told}\n"))?;
            }
            // It never restarted.
            (Err(Missed::Refused(400, _) | Missed::NotThere), Asked::Log { previous: true, .. }) => {}
            (Err(Missed::Refused(400, told)), Asked::Log { .. }) => self.index.leave_out(what, told),
            // The API server does not hand on who asks.
            (Err(Missed::Refused(401, _)), Asked::Metrics) => self.index.leave_out(
                what,
                "a token is asked for, which the API server does not hand on: take them from Prometheus, or see \
                 docs/bundle.md",
            ),
            (Err(missed), _) => {
                let right = asked.right(&self.index.installation.clone());
                self.miss(what, missed, right);
            }
        }
        Ok(())
    }
}

/// Asks one after the other. A node that does not answer is not asked again.
async fn ask(reader: &Reader<'_>, namespace: &str, process: Process, most: usize) -> Vec<Answer> {
    let mut answers: Vec<Answer> = Vec::new();
    let mut is_silent = false;
    for asked in Asked::of(&process) {
        let is_before = matches!(asked, Asked::Log { previous: true, .. });
        if is_before && matches!(answers.last(), Some((_, _, Err(Missed::Refused(500.., _))))) {
            // The node has said already that it hands out no logs.
            continue;
        }
        reader.begin(format!("reading {}", asked.what(&process.pod)));
        let most = if asked == Asked::Metrics { LARGEST_METRICS } else { most };
        let answer = match asked.request(namespace, &process.pod) {
            Ok(_) if is_silent => Err(Missed::NoAnswer("not asked: its node had not answered".to_owned())),
            Ok(request) => reader.tail(request, most).await,
            Err(wrong) => Err(wrong),
        };
        is_silent |= matches!(answer, Err(Missed::NoAnswer(_)));
        answers.push((process.pod.clone(), asked, answer));
    }
    answers
}

/// What runs in a pod.
fn version(pod: &Value) -> Value {
    let statuses = pod.pointer("/status/containerStatuses").and_then(Value::as_array).into_iter().flatten();
    let containers = statuses.map(|status| {
        let of = |field: &str| status.get(field).cloned().unwrap_or_default();
        json!({
            "name": of("name"), "image": of("image"), "imageID": of("imageID"), "restarts": of("restartCount"),
            "ready": of("ready"),
        })
    });
    json!({
        "pod": pod.pointer("/metadata/name"), "node": pod.pointer("/spec/nodeName"),
        "phase": pod.pointer("/status/phase"), "containers": containers.collect::<Vec<_>>(),
    })
}
