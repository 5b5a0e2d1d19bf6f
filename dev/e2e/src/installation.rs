//! An installation: the shipped objects on a control plane, and the programs beside it.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{ResourceQuota, Secret};
use serde_json::json;
use sluice_api::{GateProbe, GateProbeSpec, HeadroomProbe, HeadroomProbeSpec, names};
use sluice_engine::headroom::MARK;
use sluice_manifests::{
    AskedOfPods, Gating, InstallOptions, Installation as InstalledBy, OptionsFile, WebhookClient,
    admission_objects, crds, install_objects, operand_objects,
};
use sluice_testbed::artifacts::KUBERNETES_VERSION;
use sluice_testbed::{Bed, Identity, Program, wait};

use crate::build;
use crate::probe::ready;
use crate::programs::{Controller, LOCKING, Webhook};

use crate::scrape::{self, Scraper};
use crate::shipped::{gates_by_webhook, is_about_pods, runs_nothing};

/// Choices for an installation on a bed.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The program of all processes; `None`: the one that is built of the sources as they are.
    pub program: Option<PathBuf>,
    /// Further arguments of every operator.
    pub operator_args: Vec<String>,
    /// Further arguments of every controller.
    pub controller_args: Vec<String>,
    /// Leave the webhook configurations and the policies about pods out: pods are created with the gate by the test
    /// of the controller.
    pub without_webhook: bool,
    /// What installs.
    pub installed_by: InstalledBy,
    /// No admission policy gates pods; also for all suites with `SLUICE_GATING=webhook` in the environment, and on an older
    /// Kubernetes.
    pub webhook_alone: bool,
    /// A file of options for the operator and for what is applied.
    pub options: Option<String>,
    /// Namespace of all of it; `None`: the default.
    pub namespace: Option<&'static str>,
}

impl Setup {
    /// Who gates pods.
    #[must_use]
    pub fn gating(&self) -> Gating {
        let by_environment = std::env::var("SLUICE_GATING").is_ok_and(|gating| gating == "webhook");
        let is_old = std::env::var(KUBERNETES_VERSION).is_ok_and(|version| gates_by_webhook(&version));
        if self.webhook_alone || by_environment || is_old { Gating::Webhook } else { Gating::Policy }
    }
}

/// Sluice's objects on a bed.
pub struct Installation<'b> {
    bed: &'b Bed,
    setup: Setup,
    options: InstallOptions,
    webhook_port: u16,
    started: AtomicU32,
    scraper: Scraper,
    operator: Option<Program>,
    /// Where the operator has its probes.
    operator_admin: String,
}

impl<'b> Installation<'b> {
    /// Applies what is shipped, but for the Deployment: its containers could not run here. The operator writes the rest;
    /// where there is none, what neither runs nor judges pods is applied. The webhook is reached at a loopback port.
    ///
    /// # Errors
    /// When the API server refuses an object.
    pub async fn apply(bed: &'b Bed, setup: Setup) -> anyhow::Result<Self> {
        let webhook_port = free_port()?;
        let options = InstallOptions {
            namespace: setup.namespace.unwrap_or(names::INSTALL_NAMESPACE).to_owned(),
            webhook_client: WebhookClient::Url(format!(
                "https://{}",
                SocketAddr::new(bed.loopback(), webhook_port)
            )),
            gating: setup.gating(),
            installation: setup.installed_by,
            ..InstallOptions::default()
        };
        let options = match &setup.options {
            Some(text) => OptionsFile::parse(text)?.over(options)?,
            None => options,
        };
        let shipped = [crds(), install_objects(&options)].concat();
        bed.apply_objects(shipped.into_iter().filter(runs_nothing)).await?;
        if setup.without_webhook {
            let operands =
                operand_objects(&options, &AskedOfPods::default()).into_iter().filter(runs_nothing);
            let objects = admission_objects(&options).into_iter().filter(|object| !is_about_pods(object));
            bed.apply_objects(operands.chain(objects)).await?;
        }
        let scraper = Scraper::on(bed, &options).await?;
        let started = AtomicU32::new(0);
        let operator_admin = String::new();
        let mut installation =
            Self { bed, setup, options, webhook_port, started, scraper, operator: None, operator_admin };
        if !installation.setup.without_webhook {
            installation.start_operator().await?;
        }
        Ok(installation)
    }

    /// What was applied follows these.
    #[must_use]
    pub const fn options(&self) -> &InstallOptions {
        &self.options
    }

    /// The process that keeps certificates, webhook configurations and admission policies.
    ///
    /// # Errors
    /// When there is none: in an installation without webhook.
    pub fn operator(&self) -> anyhow::Result<&Program> {
        self.operator.as_ref().context("an installation without webhook has no operator")
    }

    /// Starts an operator with the rights that are shipped, in the place of the one there was.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn start_operator(&mut self) -> anyhow::Result<()> {
        let identity = self.identity(names::OPERATOR).await?;
        let admin = self.free_address()?;
        let mut args = self.command("operator", identity.kubeconfig());
        args.extend(["--admin-listen".into(), admin.clone().into()]);
        args.extend(["--webhook-san".into(), self.bed.loopback().to_string().into()]);
        args.extend(["--webhook-url".into(), format!("https://{}", self.webhook_address()).into()]);
        args.extend(self.gating_args());
        // Older programs do not know it.
        if self.setup.installed_by != InstalledBy::default() {
            args.push(format!("--installation={}", self.setup.installed_by).into());
        }
        if let Some(text) = &self.setup.options {
            let file = self.bed.dir().join("options.yaml");
            std::fs::write(&file, text).context("could not write the options of the operator")?;
            args.extend(["--options".into(), file.into()]);
        }
        args.extend(self.setup.operator_args.iter().map(Into::into));
        args.extend(self.metrics(&admin, false)?);
        let program = self.bed.program(&self.name("operator"), self.program()?, args, log_settings())?;
        ready(&admin, &program).await?;
        self.operator = Some(program);
        self.operator_admin = admin;
        Ok(())
    }

    /// Where the operator has its probes; empty without one.
    #[must_use]
    pub fn operator_admin(&self) -> &str {
        &self.operator_admin
    }

    fn gating_args(&self) -> Option<OsString> {
        (self.setup.gating() == Gating::Webhook).then(|| "--gating=webhook".into())
    }

    /// Processes that are started from now on are of this program, and operators have these further arguments.
    pub fn follow_with(&mut self, program: Option<PathBuf>, operator_args: &[&str]) {
        self.setup.program = program;
        self.setup.operator_args = operator_args.iter().map(|arg| (*arg).to_owned()).collect();
    }

    /// The port at which the API server reaches the webhook. Another program may listen there and hand on to webhooks.
    #[must_use]
    pub const fn webhook_port(&self) -> u16 {
        self.webhook_port
    }

    /// Further arguments of the controllers that are started from now on.
    pub fn add_controller_args(&mut self, args: &[&str]) {
        self.setup.controller_args.extend(args.iter().map(|arg| (*arg).to_owned()));
    }

    /// Starts a controller with the rights that are shipped.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn controller(&self) -> anyhow::Result<Controller> {
        let identity = self.identity(names::CONTROLLER).await?;
        self.controller_with(identity.kubeconfig(), &[]).await
    }

    /// Starts a controller that reaches the API server as `kubeconfig` says, for example through a proxy.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn controller_with(&self, kubeconfig: &Path, args: &[&str]) -> anyhow::Result<Controller> {
        let controller = self.spawn_controller(kubeconfig, args)?;
        ready(&controller.admin, &controller.program).await?;
        Ok(controller)
    }

    /// As [`Self::controller_with`], but does not wait until it is ready.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn_controller(&self, kubeconfig: &Path, args: &[&str]) -> anyhow::Result<Controller> {
        let admin = self.free_address()?;
        let mut all = self.command("controller", kubeconfig);
        all.extend(self.certificate());
        all.extend(["--admin-listen".into(), admin.clone().into()]);
        all.extend(["--growth-listen".into(), self.free_address()?.into()]);
        all.extend(self.gating_args());
        all.extend(self.setup.controller_args.iter().map(Into::into));
        all.extend(args.iter().map(Into::into));
        all.extend(self.metrics(&admin, self.setup.without_webhook)?);
        let program = self.bed.program(&self.name("controller"), self.program()?, all, log_settings())?;
        Ok(Controller { program, admin })
    }

    /// Starts a webhook with the rights that are shipped.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn webhook(&self) -> anyhow::Result<Webhook> {
        let identity = self.identity(names::WEBHOOK).await?;
        self.webhook_at(&identity, &[]).await
    }

    /// As [`Self::webhook`], with an identity that may speak with another API server.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn webhook_at(&self, identity: &Identity, args: &[&str]) -> anyhow::Result<Webhook> {
        self.webhook_with(identity.kubeconfig(), self.webhook_port, args).await
    }

    /// Starts a webhook that serves at `port` and reaches the API server as `kubeconfig` says, for example through a proxy.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn webhook_with(&self, kubeconfig: &Path, port: u16, args: &[&str]) -> anyhow::Result<Webhook> {
        let webhook = self.spawn_webhook(kubeconfig, port, args)?;
        ready(&webhook.admin, &webhook.program).await?;
        Ok(webhook)
    }

    /// As [`Self::webhook_with`], but does not wait until it is ready.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn_webhook(&self, kubeconfig: &Path, port: u16, args: &[&str]) -> anyhow::Result<Webhook> {
        let admin = self.free_address()?;
        let mut all = self.command("webhook", kubeconfig);
        all.extend(self.certificate());
        all.extend(["--admin-listen".into(), admin.clone().into()]);
        all.extend(["--listen".into(), self.address(port).into()]);
        all.extend(args.iter().map(Into::into));
        all.extend(self.metrics(&admin, false)?);
        let program = self.bed.program(&self.name("webhook"), self.program()?, all, log_settings())?;
        Ok(Webhook { program, admin })
    }

    async fn identity(&self, account: &str) -> anyhow::Result<Identity> {
        self.bed.service_account(&self.options.namespace, account).await
    }

    fn command(&self, command: &str, kubeconfig: &Path) -> Vec<OsString> {
        let namespace = format!("--namespace={}", self.options.namespace);
        vec![command.into(), "--kubeconfig".into(), kubeconfig.into(), namespace.into()]
    }

    /// The Secret of the serving certificate, where it has another name.
    fn certificate(&self) -> Option<OsString> {
        let name = self.options.naming.parts().serving;
        (name != names::SERVING_SECRET).then(|| format!("--tls-secret={name}").into())
    }

    /// Arguments about the metrics of a program with its probes at `admin`. Without a certificate they are `plain`. Each
    /// scrape is a new one: tests look at what has just happened.
    fn metrics(&self, admin: &str, plain: bool) -> anyhow::Result<Vec<OsString>> {
        let mut args: Vec<OsString> = vec!["--metrics-cache=0s".into()];
        if plain {
            args.push("--metrics-plain".into());
        } else {
            let metrics = self.free_address()?;
            scrape::register(admin, &metrics, &self.scraper);
            args.extend(["--metrics-listen".into(), metrics.into()]);
        }
        Ok(args)
    }

    /// A path of the webhook with the segment before it that only webhook configurations know.
    ///
    /// # Errors
    /// When the API server does not tell, or there is no such segment yet.
    pub async fn webhook_path(&self, path: &str) -> anyhow::Result<String> {
        let secrets: kube::Api<Secret> = kube::Api::namespaced(self.bed.admin()?, &self.options.namespace);
        let secret = secrets.get(self.options.naming.parts().serving).await?;
        let segment = secret.data.as_ref().and_then(|data| data.get(names::SECRET_PATH));
        let segment = segment.context("the Secret holds no path of the webhook")?;
        Ok(format!("/{}{path}", String::from_utf8_lossy(&segment.0)))
    }

    /// Where the API server reaches the webhook.
    #[must_use]
    pub fn webhook_address(&self) -> String {
        self.address(self.webhook_port)
    }

    fn address(&self, port: u16) -> String {
        SocketAddr::new(self.bed.loopback(), port).to_string()
    }

    fn free_address(&self) -> anyhow::Result<String> {
        Ok(self.address(free_port()?))
    }

    fn program(&self) -> anyhow::Result<PathBuf> {
        self.setup.program.clone().map_or_else(build::sluice, Ok)
    }

    /// Waits until a pod created in a targeted namespace is gated: certificate, trust bundle, selector and policies are all
    /// in force in the API server.
    ///
    /// # Errors
    /// When that does not happen.
    pub async fn until_gating(&self) -> anyhow::Result<()> {
        let namespace = self.bed.namespace("gating", crate::objects::TARGETED).await?;
        let client = self.bed.admin()?;
        let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::namespaced(client, &namespace.name);
        let probe = crate::objects::pod("probe", &[]);
        let dry = kube::api::PostParams { dry_run: true, ..Default::default() };
        let gated = || async {
            let created = pods.create(&dry, &probe).await.ok()?;
            crate::objects::is_held(&created).then_some(())
        };
        wait::eventually(LOCKING, gated, "new pods to be gated").await?;
        let is_old = self.bed.kubernetes().is_some_and(gates_by_webhook);
        let gating = if is_old { Gating::Webhook } else { self.setup.gating() };
        self.until_gated_by(&self.bed.admin()?, gating).await
    }

    /// Waits until the API server of `client` gates by policy or by webhook, and refuses what is not gated.
    ///
    /// # Errors
    /// When that does not happen.
    pub async fn until_gated_by(&self, client: &kube::Client, gating: Gating) -> anyhow::Result<()> {
        let probes: kube::Api<GateProbe> = kube::Api::all(client.clone());
        let dry = kube::api::PostParams { dry_run: true, ..Default::default() };
        let by = (gating == Gating::Webhook).then(|| names::GATED_BY_WEBHOOK.to_owned());
        let gated = || async {
            let plain = GateProbe::new(names::PROBE_NAME, GateProbeSpec::default());
            let answer = probes.create(&dry, &plain).await.ok()?;
            let bound = GateProbeSpec { node_name: Some("none".to_owned()), ..GateProbeSpec::default() };
            let refused = probes.create(&dry, &GateProbe::new(names::PROBE_NAME, bound)).await.err()?;
            let last_word = refused.to_string().contains(&format!("'{}'", names::GATED_POLICY));
            (last_word && answer.spec.scheduling_gates.is_some() && answer.spec.gated_by == by).then_some(())
        };
        wait::eventually(LOCKING, gated, &format!("pods to be gated by {gating:?}")).await
    }

    /// Waits until the API server enforces the admission policies of head-room.
    ///
    /// # Errors
    /// When that does not happen.
    pub async fn until_guarded(&self) -> anyhow::Result<()> {
        let (client, namespace) = (self.bed.admin()?, self.options.namespace.as_str());
        let probes: kube::Api<HeadroomProbe> = kube::Api::namespaced(client.clone(), namespace);
        let dry = kube::api::PostParams { dry_run: true, ..Default::default() };
        let probe = HeadroomProbe::new(names::PROBE_NAME, HeadroomProbeSpec { mark: 0 });
        let quotas: kube::Api<ResourceQuota> = kube::Api::namespaced(client, namespace);
        let patch =
            kube::api::Patch::Merge(json!({ "status": { "hard": { MARK: "1" }, "used": { MARK: "1" } } }));
        let dry_patch = kube::api::PatchParams { dry_run: true, ..Default::default() };
        let says = |error: kube::Error, text: &str| error.to_string().contains(text).then_some(());
        let denied = || async {
            says(probes.create(&dry, &probe).await.err()?, names::PROBE_DENIED)?;
            says(
                quotas.patch_status(names::PROOF_QUOTA, &dry_patch, &patch).await.err()?,
                names::CHARGE_DENIED,
            )
        };
        wait::eventually(LOCKING, denied, "the admission policies of head-room to be in force").await
    }

    fn name(&self, program: &str) -> String {
        format!("sluice-{program}-{}", self.started.fetch_add(1, Ordering::Relaxed))
    }
}

fn log_settings() -> Vec<(String, String)> {
    let level = std::env::var("SLUICE_LOG").unwrap_or_else(|_| "info,sluice_gate=debug".to_owned());
    vec![("SLUICE_LOG".to_owned(), level)]
}

fn free_port() -> anyhow::Result<u16> {
    sluice_testbed::ports::free()
}
