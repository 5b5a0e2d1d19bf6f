//! An installation with KubeVirt and a Prometheus, which a test breaks and repairs.

use std::path::Path;
use std::time::Duration;

use http::Method;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{JSON, MERGE, call, get};
use sluice_e2e::objects::apply_aaq;
use sluice_e2e::{Controller, Installation, Running, Setup, Webhook, scrape};
use sluice_manifests::certificates::service_names;
use sluice_manifests::install_objects;
use sluice_testbed::proxy::FaultProxy;
use sluice_testbed::{Bed, Identity, Program, wait};
use tokio::task::JoinSet;

use super::faults;
use crate::certificates::issued;
use crate::context::{SOON, kubectl};
use crate::documented::Programs;
use crate::operator_cr::until_condition;
use crate::prometheus::Prometheus;

pub const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
/// So much later it is for a controller.
const DAYS: i64 = 2;
/// A serving certificate lives for seven days.
const AGE: i64 = 6;
/// So often other clients look whether there is something to do.
const OFTEN: Duration = Duration::from_millis(200);

/// What is done to the cluster.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    NoController,
    NoWebhook,
    NoOperator,
    OldCertificate,
    Ungated,
    LetIn,
    HeldLong,
    Frozen,
    SmallGrant,
    HiddenServer,
    NoRestore,
    Overwritten,
    Contested,
}

impl Fault {
    /// Whether it is the fault of which the page of its alert shows what commands print.
    pub const fn is_shown(self) -> bool {
        !matches!(self, Self::LetIn)
    }
}

pub struct Scene<'b> {
    pub bed: &'b Bed,
    pub client: Client,
    pub server: Prometheus,
    pub programs: Programs,
    pub installation: Installation<'b>,
    pub controller: Controller,
    pub webhook: Webhook,
    /// What other clients do until the fault is undone.
    pub doing: JoinSet<()>,
    /// Through which one of the processes speaks with the API server, until the fault is undone.
    pub proxy: Option<FaultProxy>,
}

impl<'b> Scene<'b> {
    pub async fn on(bed: &'b Bed, hastened: u32) -> Self {
        // Beside those for VMs, for the pods of Sluice's Deployments and of the examples.
        bed.add_nodes(2, &[("cpu", "32"), ("memory", "64Gi")]).await.unwrap();
        let client = bed.admin().unwrap();
        let Running { installation, controller, webhook, .. } =
            Running::on(bed, Setup::default()).await.unwrap();
        let shipped = install_objects(installation.options()).into_iter();
        bed.apply_objects(shipped.filter(|object| object["kind"] == "Deployment")).await.unwrap();
        apply_aaq(&client, json!({})).await.unwrap();
        for condition in ["Available", "Degraded=False", "Gating", "Headroom"] {
            until_condition(bed, "aaq/aaq", condition).await;
        }
        let server = Prometheus::start(bed, hastened).await;
        let (programs, doing) = (Programs::on(bed), JoinSet::new());
        let scene =
            Self { bed, client, server, programs, installation, controller, webhook, doing, proxy: None };
        scene.look().await;
        faults::team(&scene).await;
        scene
    }

    /// The processes that there are now are scraped, and commands find them.
    async fn look(&self) {
        let operator = self.installation.operator_admin();
        let all = [
            (names::CONTROLLER, self.controller.admin.as_str()),
            (names::WEBHOOK, self.webhook.admin.as_str()),
            (names::OPERATOR, operator),
        ];
        for (name, admin) in all {
            self.programs.forward(name, admin);
        }
        self.server.scrape(&all.map(|(_, admin)| scrape::address(admin).unwrap())).await;
    }

    pub async fn make(&mut self, fault: Fault) {
        match fault {
            Fault::NoController => end(&self.controller.program, true).await,
            Fault::NoWebhook => {
                faults::full(self).await;
                end(&self.webhook.program, true).await;
                faults::come_late(self).await;
            }
            Fault::NoOperator => end(self.installation.operator().unwrap(), true).await,
            Fault::OldCertificate => {
                self.end_operator().await;
                self.age_certificate().await;
            }
            Fault::Ungated => {
                self.end_operator().await;
                self.ungate().await;
            }
            Fault::LetIn => {
                self.end_operator().await;
                // First what has the last word: there is no moment at which pods are refused.
                self.delete(&format!(
                    "{ADMISSION}/validatingadmissionpolicybindings/{}",
                    names::GATED_POLICY
                ))
                .await;
                self.ungate().await;
                self.until_no("sluice_gate_api_servers{by=\"nothing\"} != 1").await;
                self.until_no("sluice_gate_api_servers{by=\"refused\"} != 0").await;
            }
            Fault::HeldLong => {
                let proxy = self.proxy(names::CONTROLLER).await;
                proxy.advance_dates(DAYS * 24 * 3600);
                self.new_controller(Some(proxy.kubeconfig())).await;
                self.proxy = Some(proxy);
            }
            Fault::Frozen => faults::freeze(self).await,
            Fault::SmallGrant => faults::block(self).await,
            Fault::HiddenServer => {
                faults::grant(self).await;
                faults::one_address(self).await;
                self.doing.spawn(faults::hide(self.client.clone(), OFTEN));
            }
            Fault::NoRestore => {
                let proxy = self.proxy(names::WEBHOOK).await;
                self.new_webhook(Some(proxy.kubeconfig())).await;
                // It would put the quota back, at the end of the lock or a moment before the webhook gives up.
                self.controller.program.pause();
                faults::leave_raised(self, &proxy).await;
                self.proxy = Some(proxy);
            }
            Fault::Overwritten => {
                for path in faults::overwritten(self).await {
                    self.doing.spawn(faults::overwrite(self.client.clone(), path, OFTEN));
                }
            }
            Fault::Contested => drop(self.doing.spawn(faults::contest(self.client.clone(), OFTEN))),
        }
    }

    pub async fn undo(&mut self, fault: Fault) {
        self.doing.shutdown().await;
        match fault {
            Fault::NoController => self.new_controller(None).await,
            Fault::NoWebhook => {
                kubectl(self.bed, &["-n", "team-e", "delete", "pod", "late"]).await;
                self.new_webhook(None).await;
            }
            Fault::NoOperator | Fault::OldCertificate | Fault::Ungated | Fault::LetIn => {
                self.installation.start_operator().await.unwrap();
                self.look().await;
                self.installation.until_gating().await.unwrap();
            }
            Fault::HeldLong => {
                kubectl(self.bed, &["-n", "team-a", "delete", "pod", "huge"]).await;
                self.until_no("sluice_quota_oldest_wait_seconds > 86400").await;
                self.new_controller(None).await;
            }
            Fault::Frozen => faults::thaw(self).await,
            Fault::SmallGrant => faults::unblock(self).await,
            Fault::HiddenServer => self.delete(faults::HIDDEN).await,
            Fault::NoRestore => {
                self.proxy.as_ref().unwrap().clear();
                self.controller.program.resume();
                self.new_controller(None).await;
                faults::until_clear(self).await;
                self.new_webhook(None).await;
            }
            Fault::Overwritten | Fault::Contested => {}
        }
        self.proxy = None;
    }

    /// Waits until a query has no series.
    async fn until_no(&self, query: &str) {
        let none = || async { self.server.value(&format!("absent({query})")).await.map(drop) };
        wait::eventually(SOON, none, &format!("no {query}")).await.unwrap();
    }

    async fn identity(&self, account: &str) -> Identity {
        self.bed.service_account(names::INSTALL_NAMESPACE, account).await.unwrap()
    }

    async fn proxy(&self, account: &str) -> FaultProxy {
        FaultProxy::start(self.bed, &self.identity(account).await).await.unwrap()
    }

    /// Another one in its place, which reaches the API server as the file says.
    async fn new_controller(&mut self, kubeconfig: Option<&Path>) {
        end(&self.controller.program, false).await;
        let own = self.identity(names::CONTROLLER).await;
        let kubeconfig = kubeconfig.unwrap_or_else(|| own.kubeconfig());
        self.controller = self.installation.controller_with(kubeconfig, &[]).await.unwrap();
        self.look().await;
        self.until_no("absent(sluice_leader{component=\"controller\"} == 1)").await;
    }

    /// As [`Self::new_controller`].
    async fn new_webhook(&mut self, kubeconfig: Option<&Path>) {
        end(&self.webhook.program, false).await;
        let own = self.identity(names::WEBHOOK).await;
        let (kubeconfig, port) =
            (kubeconfig.unwrap_or_else(|| own.kubeconfig()), self.installation.webhook_port());
        self.webhook = self.installation.webhook_with(kubeconfig, port, &[]).await.unwrap();
        self.look().await;
        self.webhook.until_proven().await.unwrap();
    }

    /// Neither policy nor webhook gates pods.
    async fn ungate(&self) {
        for (kind, name) in [
            ("mutatingadmissionpolicybindings", names::GATE_POLICY),
            // It gates where the policy does not.
            ("mutatingwebhookconfigurations", names::MUTATING_CONFIG),
        ] {
            self.delete(&format!("{ADMISSION}/{kind}/{name}")).await;
        }
    }

    async fn end_operator(&self) {
        end(self.installation.operator().unwrap(), false).await;
    }

    pub async fn delete(&self, path: &str) {
        let answer = call(&self.client, Method::DELETE, path, JSON, &json!({})).await.unwrap();
        assert!(answer.is_ok(), "{path}: {answer:?}");
        let is_gone = || async { (get(&self.client, path).await.ok()?.code == 404).then_some(()) };
        wait::eventually(SOON, is_gone, &format!("{path} to be gone")).await.unwrap();
    }

    pub async fn patch(&self, path: &str, patch: &Value) {
        let answer = call(&self.client, Method::PATCH, path, MERGE, patch).await.unwrap();
        assert!(answer.is_ok(), "{path}: {answer:?}");
    }

    /// The certificate is one of the same authority that was issued days ago.
    async fn age_certificate(&self) {
        let services = [names::WEBHOOK, names::METRICS_SERVICE];
        let mut subjects: Vec<String> =
            services.iter().flat_map(|name| service_names(name, names::INSTALL_NAMESPACE)).collect();
        subjects.push(self.bed.loopback().to_string());
        let then = Timestamp::now() - SignedDuration::from_hours(24 * AGE);
        let data = json!({ "data": issued(&self.client, then, &subjects).await });
        let path =
            format!("/api/v1/namespaces/{}/secrets/{}", names::INSTALL_NAMESPACE, names::SERVING_SECRET);
        self.patch(&path, &data).await;
    }
}

async fn end(program: &Program, is_killed: bool) {
    if is_killed {
        program.kill();
    } else {
        program.terminate();
    }
    program.wait().await;
}
