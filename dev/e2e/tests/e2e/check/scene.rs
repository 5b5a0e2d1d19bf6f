//! An installation that a test breaks and repairs. Its operator rests, for it would put back what is taken away; that it
//! leads is written for it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::Method;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{JSON, JSON_PATCH, MERGE, Response, call, get, post};
use sluice_e2e::objects::{TARGETED, apply_aaq};
use sluice_e2e::{Controller, Installation, Setup, Webhook, build};
use sluice_manifests::install_objects;
use sluice_testbed::proxy::{Action, FaultProxy, Rule};
use sluice_testbed::{Bed, TestNamespace, wait};
use tokio::task::JoinSet;

use super::faults::{Fault, Make};
use crate::certificates::issued;
use crate::context::{SOON, kubectl};
use crate::operator_cr::until_condition;

/// So often the leases are renewed that a test keeps.
const RENEWS: Duration = Duration::from_secs(5);
const SIMULATED: &str = "--selector=sluice.dev/simulated=true";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// An API server that nobody can address.
const HIDDEN: &str = "apiserver-hidden";
const SECOND_AAQ: &str = "second";

/// Where an object of the installation's namespace is.
pub fn home(group: &str, rest: &str) -> String {
    let root = if group.starts_with("api/") { group.to_owned() } else { format!("apis/{group}") };
    format!("/{root}/namespaces/{}/{rest}", names::INSTALL_NAMESPACE)
}

/// What `sluice check` has said.
pub struct Said {
    pub code: i32,
    /// State and name of what is not good and was looked at.
    pub found: Vec<(String, String)>,
    /// What is said of it.
    pub words: String,
    /// Hints and pages.
    pub remedies: Vec<String>,
    pub took: Duration,
    pub text: String,
}

impl Said {
    /// Everything was looked at, and nothing is to be said.
    pub fn is_good(&self) -> bool {
        self.code == 0 && self.found.is_empty()
    }
}

/// How a fault is undone.
pub enum Undo {
    /// The object at this path is to be as it was.
    Restore(String, Value),
    Delete(String),
    Controller,
    /// With the certificate that it had, if it has another.
    Webhook(Option<Value>),
    Nodes,
    Operator,
    Proxy,
    Hidden,
}

/// A control plane with Sluice.
pub struct Scene<'b> {
    pub bed: &'b Bed,
    pub client: Client,
    pub team: TestNamespace,
    installation: Installation<'b>,
    controller: Controller,
    webhook: Webhook,
    proxy: FaultProxy,
    /// Paths of leases that are kept.
    kept: Arc<Mutex<Vec<String>>>,
    _keeping: JoinSet<()>,
}

impl<'b> Scene<'b> {
    pub async fn on(bed: &'b Bed) -> Self {
        bed.add_nodes(2, &[("cpu", "8"), ("memory", "16Gi")]).await.unwrap();
        let client = bed.admin().unwrap();
        let sluice_e2e::Running { installation, controller, webhook, .. } =
            sluice_e2e::Running::on(bed, Setup::default()).await.unwrap();
        let shipped = install_objects(installation.options()).into_iter();
        bed.apply_objects(shipped.filter(|object| object["kind"] == "Deployment")).await.unwrap();
        let configuration = json!({ "allowApplicationAwareClusterResourceQuota": true });
        apply_aaq(&client, json!({ "configuration": configuration })).await.unwrap();
        for condition in ["Available", "Degraded=False", "Gating", "Headroom"] {
            until_condition(bed, "aaq/aaq", condition).await;
        }
        installation.operator().unwrap().terminate();
        installation.operator().unwrap().wait().await;

        let kept = Arc::new(Mutex::new(vec![operator_lease()]));
        let mut keeping = JoinSet::new();
        keeping.spawn(keep(client.clone(), Arc::clone(&kept)));
        let team = bed.namespace("check", TARGETED).await.unwrap();
        let proxy = FaultProxy::start(bed, bed.admin_identity()).await.unwrap();
        Self { bed, client, team, installation, controller, webhook, proxy, kept, _keeping: keeping }
    }

    /// The present, so many seconds later, as text.
    pub fn time(&self, later: i64) -> String {
        let then = Timestamp::now() + SignedDuration::from_secs(later);
        Timestamp::from_second(then.as_second()).unwrap().to_string()
    }

    async fn run(&self, output: &str) -> std::process::Output {
        let mut command = tokio::process::Command::new(build::sluice().unwrap());
        command.args(["check", "-o", output, "--kubeconfig"]).arg(self.proxy.kubeconfig()).kill_on_drop(true);
        tokio::time::timeout(SOON, command.output()).await.unwrap().unwrap()
    }

    /// What people read.
    pub async fn table(&self) -> String {
        String::from_utf8_lossy(&self.run("table").await.stdout).into_owned()
    }

    pub async fn check(&self) -> Said {
        let begun = Instant::now();
        let output = self.run("json").await;
        let took = begun.elapsed();
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let said: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {text}"));
        let items = said["items"].as_array().unwrap();
        let word = |item: &Value, field: &str| item[field].as_str().unwrap().to_owned();
        let is_found = |item: &&Value| item["state"] == "failed" || item["state"] == "warning";
        let found: Vec<&Value> = items.iter().filter(is_found).collect();
        Said {
            code: output.status.code().unwrap(),
            found: found.iter().map(|item| (word(item, "state"), word(item, "name"))).collect(),
            words: found.iter().map(|item| word(item, "found")).collect::<Vec<_>>().join("; "),
            remedies: found.iter().flat_map(|item| [word(item, "hint"), word(item, "page")]).collect(),
            took,
            text,
        }
    }

    /// Makes a fault; returns how it is undone.
    pub async fn make(&mut self, fault: &Fault) -> Undo {
        match &fault.make {
            Make::Gone(path) => self.gone(path).await,
            Make::Changed(path, patch) => {
                let before = self.read(path).await;
                let answer = call(&self.client, Method::PATCH, path, JSON_PATCH, patch).await.unwrap();
                assert!(answer.is_ok(), "{path}: {answer:?}");
                Undo::Restore(path.clone(), before)
            }
            Make::Made(path, object) => {
                self.made(path, object).await;
                Undo::Delete(format!("{path}/{}", object["metadata"]["name"].as_str().unwrap()))
            }
            Make::SecondAaq => self.second_aaq().await,
            Make::HiddenServer(lease) => {
                self.made(LEASES, lease).await;
                self.kept.lock().unwrap().push(hidden_lease());
                Undo::Hidden
            }
            Make::NoController => {
                self.controller.program.terminate();
                self.controller.program.wait().await;
                Undo::Controller
            }
            Make::ControllerStands => {
                self.controller.program.pause();
                Undo::Controller
            }
            Make::NoWebhook => {
                self.webhook.program.kill();
                self.webhook.program.wait().await;
                Undo::Webhook(None)
            }
            Make::Certificate(names, days) => self.certificate(names, *days).await,
            Make::NoWebhookPods => {
                kubectl(self.bed, &["cordon", SIMULATED]).await;
                let namespace = format!("--namespace={}", names::INSTALL_NAMESPACE);
                let pods = format!("--selector=app.kubernetes.io/component={}", names::WEBHOOK);
                kubectl(self.bed, &["delete", "pods", &namespace, &pods, "--wait=false"]).await;
                Undo::Nodes
            }
            Make::NoOperator => {
                self.kept.lock().unwrap().retain(|path| *path != operator_lease());
                Undo::Operator
            }
            Make::Clock(behind) => {
                self.proxy.advance_dates(-behind);
                Undo::Proxy
            }
            Make::Version(minor) => {
                let version = json!({ "major": "1", "minor": minor, "gitVersion": format!("v1.{minor}.0"),
                    "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "",
                    "platform": "" });
                self.proxy.add(Rule::new(Action::AnswerWith(version)).path("^/version$").unwrap());
                Undo::Proxy
            }
        }
    }

    pub async fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Restore(path, before) => self.restore(&path, before).await,
            Undo::Delete(path) => self.delete(&path).await,
            Undo::Controller => {
                self.controller.program.resume();
                self.controller.program.kill();
                self.controller.program.wait().await;
                self.controller = self.installation.controller().await.unwrap();
            }
            Undo::Webhook(secret) => {
                if let Some(secret) = secret {
                    self.restore(&serving_secret(), secret).await;
                }
                self.webhook.program.kill();
                self.webhook.program.wait().await;
                self.webhook = self.installation.webhook().await.unwrap();
            }
            Undo::Nodes => drop(kubectl(self.bed, &["uncordon", SIMULATED]).await),
            Undo::Operator => self.kept.lock().unwrap().push(operator_lease()),
            Undo::Proxy => {
                self.proxy.advance_dates(0);
                self.proxy.clear();
            }
            Undo::Hidden => {
                self.kept.lock().unwrap().retain(|path| *path != hidden_lease());
                self.delete(&hidden_lease()).await;
            }
        }
    }

    async fn read(&self, path: &str) -> Value {
        let answer = get(&self.client, path).await.unwrap();
        assert!(answer.is_ok(), "{path}: {answer:?}");
        answer.body
    }

    async fn made(&self, path: &str, object: &Value) {
        let made = || async { post(&self.client, path, object).await.ok().filter(Response::is_ok) };
        wait::eventually(SOON, made, &format!("{path} to be made")).await.unwrap();
    }

    async fn delete(&self, path: &str) {
        let answer = call(&self.client, Method::DELETE, path, JSON, &json!({})).await.unwrap();
        assert!(answer.is_ok(), "{path}: {answer:?}");
        let is_gone = || async { (get(&self.client, path).await.ok()?.code == 404).then_some(()) };
        wait::eventually(SOON, is_gone, &format!("{path} to be gone")).await.unwrap();
    }

    async fn gone(&self, path: &str) -> Undo {
        let before = self.read(path).await;
        self.delete(path).await;
        Undo::Restore(path.to_owned(), before)
    }

    /// The object is what it was, whether it is there or not. Others may write it meanwhile.
    async fn restore(&self, path: &str, mut before: Value) {
        let all = path.rsplit_once('/').unwrap().0;
        let meta = before["metadata"].as_object_mut().unwrap();
        for of_server in ["resourceVersion", "uid", "creationTimestamp", "managedFields"] {
            meta.remove(of_server);
        }
        let before = &before;
        let restored = || async {
            let now = get(&self.client, path).await.ok()?;
            if now.code == 404 {
                return post(&self.client, all, before).await.ok().filter(Response::is_ok).map(drop);
            }
            let mut wanted = before.clone();
            wanted["metadata"]["resourceVersion"] = now.body["metadata"]["resourceVersion"].clone();
            let answer = call(&self.client, Method::PUT, path, JSON, &wanted).await.ok()?;
            answer.is_ok().then_some(())
        };
        wait::eventually(SOON, restored, &format!("{path} to be as it was")).await.unwrap();
    }

    /// The webhook would refuse it: it comes while API servers do not ask.
    async fn second_aaq(&self) -> Undo {
        let configuration = format!(
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{}",
            names::VALIDATING_CONFIG
        );
        let asked = self.gone(&configuration).await;
        let aaqs = format!("/apis/{}/{}", names::API_VERSION, names::AAQS);
        let second = json!({
            "apiVersion": names::API_VERSION, "kind": "AAQ", "metadata": { "name": SECOND_AAQ },
            "spec": { "configuration": { "allowApplicationAwareClusterResourceQuota": true } },
        });
        self.made(&aaqs, &second).await;
        if let Undo::Restore(path, before) = asked {
            self.restore(&path, before).await;
        }
        Undo::Delete(format!("{aaqs}/{SECOND_AAQ}"))
    }

    /// A certificate of the installation's authority. API servers keep connections, so the webhook begins anew.
    async fn certificate(&mut self, subjects: &[String], days: i64) -> Undo {
        let before = self.read(&serving_secret()).await;
        let then = Timestamp::now() - SignedDuration::from_hours(24 * days);
        let data = json!({ "data": issued(&self.client, then, subjects).await });
        let answer = call(&self.client, Method::PATCH, &serving_secret(), MERGE, &data).await.unwrap();
        assert!(answer.is_ok(), "{answer:?}");
        self.webhook.program.kill();
        self.webhook.program.wait().await;
        let identity = self.bed.service_account(names::INSTALL_NAMESPACE, names::WEBHOOK).await.unwrap();
        let port = self.installation.webhook_port();
        // With a certificate that has ended it does not become ready.
        self.webhook = self.installation.spawn_webhook(identity.kubeconfig(), port, &[]).unwrap();
        Undo::Webhook(Some(before))
    }
}

fn operator_lease() -> String {
    home("coordination.k8s.io/v1", &format!("leases/{}", names::OPERATOR))
}

fn hidden_lease() -> String {
    format!("{LEASES}/{HIDDEN}")
}

fn serving_secret() -> String {
    home("api/v1", &format!("secrets/{}", names::SERVING_SECRET))
}

/// Renews leases for those that rest or do not exist. One that fails is renewed the next time.
async fn keep(client: Client, kept: Arc<Mutex<Vec<String>>>) {
    loop {
        let paths = kept.lock().unwrap().clone();
        for path in paths {
            let now = Timestamp::from_microsecond(Timestamp::now().as_microsecond()).unwrap();
            let renewed = json!({ "spec": { "holderIdentity": "rests", "renewTime": format!("{now:.6}") } });
            let _ = call(&client, Method::PATCH, &path, MERGE, &renewed).await;
        }
        tokio::time::sleep(RENEWS).await;
    }
}
