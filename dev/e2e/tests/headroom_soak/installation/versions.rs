//! Sluice is upgraded from the version before, and taken back, while pods are created in namespaces that an AAQ of the
//! user's own selects, pods grow, and a machine migrates. At last the AAQ asks for other nodes, which rolls all once more.
//!
//! `SLUICE_OTHER_BINARY` names the program of the version before. Without one it is this version, with what an upgrade
//! changes: a CRD without its last column, and policies that say something else. On the way back policies are there that
//! an operator of a newer version has written: they are left until `--allow-downgrade`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use http::Method;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::audit::assert_none_rejected;
use sluice_e2e::call::{APPLY, JSON, MERGE, call, get};
use sluice_e2e::objects::{self, is_held};
use sluice_e2e::service::Service;
use sluice_e2e::tenant::{self, SOON, Tenant};
use sluice_e2e::traffic::{Load, Traffic, migrations};
use sluice_e2e::{Controller, Installation, Setup, Webhook, build};
use sluice_testbed::{Bed, ports, wait};

const OTHER: &str = "SLUICE_OTHER_BINARY";
/// 50 a second.
const LOAD: Load = Load { every: Duration::from_millis(20), limit: 150, life: Duration::from_secs(1) };
const MIGRATIONS: usize = 5;
/// So long after its start a leader keeps room for what one before it may have asked for. An upgrade comes later than that.
const KEEPS_ROOM: Duration = Duration::from_secs(55);
/// Namespaces with this label are those that the AAQ selects.
const SELECTED: (&str, &str) = ("team", "versions");
const POLICIES: [&str; 2] = [names::GUARD_POLICY, names::GATED_POLICY];
/// What policies of the version before say more, and who wrote them.
const BEFORE: Writer = Writer { said: " (the version before)", version: "0.0.1" };
/// The same of a version after this one.
const AFTER: Writer = Writer { said: " (a version after)", version: "99.0.0" };
/// Releases may pause for this long while Sluice is replaced.
const PAUSE: Duration = Duration::from_secs(3);

/// An operator of another version.
struct Writer {
    said: &'static str,
    version: &'static str,
}

/// What a version is made of.
struct Version {
    name: &'static str,
    program: Option<PathBuf>,
    objects: Vec<Value>,
}

impl Version {
    /// As its program prints it, but for the Deployments, whose processes run beside the cluster.
    fn of(name: &'static str, program: Option<PathBuf>) -> Self {
        let path = program.clone().unwrap_or_else(|| build::sluice().unwrap());
        let output = Command::new(path).args(["render", "--only", "crds,install"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let mut objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        objects.retain(|object| !object.is_null() && object["kind"] != "Deployment");
        Self { name, program, objects }
    }

    fn now() -> Self {
        Self::of("2.0.0", None)
    }

    fn before() -> Self {
        let program = std::env::var_os(OTHER).map(PathBuf::from);
        let is_other = program.is_some();
        let mut version = Self::of("1.0.0", program);
        let columns = |crd: &mut Value| {
            let columns = crd.pointer_mut("/spec/versions/0/additionalPrinterColumns");
            columns.and_then(Value::as_array_mut).and_then(Vec::pop);
        };
        if !is_other {
            version
                .objects
                .iter_mut()
                .filter(|object| object["kind"] == "CustomResourceDefinition")
                .for_each(columns);
        }
        version
    }

    fn operator_args(&self) -> [String; 1] {
        [format!("--reported-version={}", self.name)]
    }
}

/// Sluice on a bed, behind a Service.
struct Cluster<'b> {
    bed: &'b Bed,
    installation: Installation<'b>,
    service: Service,
    /// As the Deployment has them: one leads, the other follows.
    controllers: [Controller; 2],
    webhook: Webhook,
}

impl<'b> Cluster<'b> {
    async fn start(bed: &'b Bed, version: &Version) -> Self {
        let [argument] = version.operator_args();
        let setup =
            Setup { program: version.program.clone(), operator_args: vec![argument], ..Setup::default() };
        let installation = Installation::apply(bed, setup).await.unwrap();
        bed.apply_objects(version.objects.clone()).await.unwrap();
        let controllers =
            [installation.controller().await.unwrap(), installation.controller().await.unwrap()];
        let (webhook, port) = webhook(bed, &installation).await;
        let service = Service::start(&installation.webhook_address(), port).await.unwrap();
        installation.until_gating().await.unwrap();
        installation.until_guarded().await.unwrap();
        webhook.until_proven().await.unwrap();
        Self { bed, installation, service, controllers, webhook }
    }

    /// As a manifest that is applied and the rollouts that come of it.
    async fn become_version(&mut self, version: &Version) {
        self.bed.apply_objects(version.objects.clone()).await.unwrap();
        let arguments = version.operator_args();
        self.installation.follow_with(version.program.clone(), &arguments.each_ref().map(String::as_str));
        self.replace_operator().await;
        self.roll().await;
    }

    /// The operator of the former version may write again what a newer one has written.
    async fn allow_downgrade(&mut self, version: &Version) {
        let [reported] = version.operator_args();
        self.installation.follow_with(version.program.clone(), &[&reported, "--allow-downgrade"]);
        self.replace_operator().await;
    }

    async fn replace_operator(&mut self) {
        let operator = self.installation.operator().unwrap();
        operator.terminate();
        operator.wait().await;
        self.installation.start_operator().await.unwrap();
    }

    /// An AAQ that asks for other nodes, and the rollout that comes of it.
    async fn become_placed(&mut self, client: &Client) {
        let selector = json!({ "sluice.dev/simulated": "true" });
        let path = format!("/apis/{}/{}/{}", names::API_VERSION, names::AAQS, names::AAQ_NAME);
        let infra = json!({ "spec": { "infra": { "nodeSelector": selector } } });
        assert!(call(client, Method::PATCH, &path, MERGE, &infra).await.unwrap().is_ok());
        for name in [names::CONTROLLER, names::WEBHOOK] {
            let path = format!("/apis/apps/v1/namespaces/{}/deployments/{name}", names::INSTALL_NAMESPACE);
            let placed = || async {
                let live = get(client, &path).await.ok()?.body;
                (live["spec"]["template"]["spec"]["nodeSelector"] == selector).then_some(())
            };
            wait::eventually(SOON, placed, &format!("{name} to be placed as the AAQ asks")).await.unwrap();
        }
        self.roll().await;
    }

    /// As a Deployment is rolled: each process is replaced by one that is ready.
    async fn roll(&mut self) {
        let (webhook, port) = webhook(self.bed, &self.installation).await;
        webhook.until_proven().await.unwrap();
        self.service.hand_on_to(port);
        let old = std::mem::replace(&mut self.webhook, webhook);
        old.program.terminate();
        old.program.wait().await;

        // Whichever leads, the other one of its version must not come in between.
        for place in &mut self.controllers {
            let controller = self.installation.controller().await.unwrap();
            let old = std::mem::replace(place, controller);
            old.program.terminate();
            old.program.wait().await;
        }
    }

    /// How often the Lease of the controller has changed its holder; waits until it has one.
    async fn leaders(&self) -> i32 {
        let leases: Api<Lease> = Api::namespaced(self.bed.admin().unwrap(), names::INSTALL_NAMESPACE);
        let held = || async {
            let spec = leases.get(names::LEASE).await.ok()?.spec?;
            spec.holder_identity.filter(|holder| !holder.is_empty())?;
            Some(spec.lease_transitions.unwrap_or_default())
        };
        wait::eventually(SOON, held, "a leader").await.unwrap()
    }
}

/// A webhook behind the Service, and its port.
async fn webhook(bed: &Bed, installation: &Installation<'_>) -> (Webhook, u16) {
    let identity = bed.service_account(names::INSTALL_NAMESPACE, names::WEBHOOK).await.unwrap();
    let port = ports::free().unwrap();
    (installation.webhook_with(identity.kubeconfig(), port, &[]).await.unwrap(), port)
}

fn policy(name: &str) -> String {
    format!("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{name}")
}

/// Policies as an operator of another version has left them.
async fn write_as(client: &Client, writer: &Writer) {
    let Writer { said: more, version } = writer;
    for name in POLICIES {
        let written = || async {
            let mut live = get(client, &policy(name)).await.ok()?.body;
            live["metadata"]["annotations"][names::WRITER_VERSION_ANNOTATION] = json!(version);
            for validation in live["spec"]["validations"].as_array_mut()? {
                if let Some(said) = validation["message"].as_str().map(|said| format!("{said}{more}")) {
                    validation["message"] = json!(said);
                }
            }
            call(client, Method::PUT, &policy(name), JSON, &live).await.ok().filter(|answer| answer.is_ok())
        };
        wait::eventually(SOON, written, &format!("a policy of version {version}")).await.unwrap();
    }
}

/// Waits until the operator has made them its own.
async fn until_of_this_version(client: &Client) {
    let replaced = || async {
        for name in POLICIES {
            let live = get(client, &policy(name)).await.ok()?.body;
            let writer = &live["metadata"]["annotations"][names::WRITER_VERSION_ANNOTATION];
            let said = live["spec"].to_string();
            let is_other = |other: &Writer| said.contains(other.said) || writer == other.version;
            let is_ours = !is_other(&BEFORE) && !is_other(&AFTER);
            is_ours.then_some(())?;
        }
        Some(())
    };
    wait::eventually(SOON, replaced, "the policies of this version").await.unwrap();
}

/// Waits until the operator says that it leaves what a newer version has written.
async fn until_left(client: &Client) {
    let path = format!("/apis/{}/{}/{}", names::API_VERSION, names::AAQS, names::AAQ_NAME);
    let told = || async {
        let conditions = get(client, &path).await.ok()?.body["status"]["conditions"].as_array()?.clone();
        conditions.iter().any(|condition| condition["reason"] == "LeftToNewerVersion").then_some(())
    };
    wait::eventually(SOON, told, "the operator to leave what a newer version has written").await.unwrap();
    for name in POLICIES {
        let live = get(client, &policy(name)).await.unwrap().body;
        assert!(live["spec"].to_string().contains(AFTER.said), "{name}: {live}");
    }
}

/// An AAQ that selects other namespaces than the default does; returns when their pods are gated.
async fn select(bed: &Bed, client: &Client) {
    let (key, value) = SELECTED;
    let aaq = json!({
        "apiVersion": names::API_VERSION, "kind": "AAQ", "metadata": { "name": names::AAQ_NAME },
        "spec": { "namespaceSelector": { "matchLabels": { key: value } } },
    });
    // The operator of this version makes one of this name, too.
    let path = format!("/apis/{}/{}/{}", names::API_VERSION, names::AAQS, names::AAQ_NAME);
    let path = format!("{path}?fieldManager=test&force=true");
    let created = || async {
        call(client, Method::PATCH, &path, APPLY, &aaq).await.ok().filter(sluice_e2e::call::Response::is_ok)
    };
    wait::eventually(SOON, created, "the AAQ to be created").await.unwrap();
    let probe = bed.namespace("probe", &[SELECTED]).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), &probe.name);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let gated = || async {
        let created = pods.create(&dry, &objects::pod("probe", &[])).await.ok()?;
        is_held(&created).then_some(())
    };
    wait::eventually(SOON, gated, "pods of selected namespaces to be gated").await.unwrap();
}

/// A pod that grows within its quota and shrinks again, until `over`; how often it was done. Undecided answers are tried
/// again, as clients do; a refusal is a fault.
async fn resizes(bed: &Bed, over: &AtomicBool) -> usize {
    let namespace = bed.namespace("grows", &[SELECTED]).await.unwrap();
    let client = bed.admin().unwrap();
    let quota = objects::quota("compute", &[("requests.cpu", "200m")]);
    objects::create(&client, &namespace.name, &quota).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace.name);
    let pod = objects::pod_without_node("grows", &[("cpu", "100m")]);
    pods.create(&PostParams::default(), &pod).await.unwrap();
    wait::wait_for(&pods, "grows", SOON, "the pod to be released", |pod| {
        pod.is_some_and(|pod| !is_held(pod))
    })
    .await
    .unwrap();
    let (mut count, mut ticks) = (0, tokio::time::interval(Duration::from_millis(200)));
    while !over.load(SeqCst) {
        ticks.tick().await;
        let cpu = if count % 2 == 0 { "200m" } else { "100m" };
        let resized = || async {
            let requests = json!({ "name": "main", "resources": { "requests": { "cpu": cpu } } });
            let patch = Patch::Strategic(json!({ "spec": { "containers": [requests] } }));
            match pods.patch_subresource("resize", "grows", &PatchParams::default(), &patch).await {
                Ok(_) => Some(()),
                Err(kube::Error::Api(status)) => {
                    assert!(!status.message.contains("exceeded quota"), "refused: {}", status.message);
                    None
                }
                Err(_) => None,
            }
        };
        wait::eventually(SOON, resized, "a resize").await.unwrap();
        count += 1;
    }
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_its_undoing_and_other_nodes_open_no_gate_and_refuse_nothing() {
    let bed = tenant::own().await;
    let client = bed.admin().unwrap();
    let (before, now) = (Version::before(), Version::now());
    let mut cluster = Cluster::start(&bed, &before).await;
    let upgraded_at = Instant::now() + KEEPS_ROOM;
    select(&bed, &client).await;

    let tenant = Tenant::with(&bed, "moves", &[SELECTED]).await;
    let vm = tenant.vm("web").await;
    tenant.full_quota("full", &["requests.memory"]).await;
    tenant.unlimited().await;
    let namespace = bed.namespace("created", &[SELECTED]).await.unwrap();
    let traffic = Traffic::start(bed.admin_identity(), &namespace.name, LOAD).await;

    let (over, migrated) = (AtomicBool::new(false), AtomicUsize::new(0));
    let changing = async {
        tokio::time::sleep_until(upgraded_at.into()).await;
        let leaders = [cluster.leaders().await];
        write_as_before_and_upgrade(&mut cluster, &client, &now).await;
        let leaders = [leaders[0], cluster.leaders().await];
        write_as(&client, &AFTER).await;
        cluster.become_version(&before).await;
        until_left(&client).await;
        cluster.allow_downgrade(&before).await;
        until_of_this_version(&client).await;
        let leaders = [leaders[0], leaders[1], cluster.leaders().await];
        cluster.become_placed(&client).await;
        let leaders = [leaders[0], leaders[1], leaders[2], cluster.leaders().await];
        let enough = || async { (migrated.load(SeqCst) >= MIGRATIONS).then_some(()) };
        wait::eventually(4 * SOON, enough, "five migrations").await.unwrap();
        over.store(true, SeqCst);
        leaders
    };
    let (leaders, (), resized) =
        tokio::join!(changing, migrations(&vm, &migrated, &over), resizes(&bed, &over));
    let outcome = traffic.end().await;
    println!(
        "{} pods, at most {} of {} at a time (watched with {} lists), releases paused for {:?}; {} migrations, \
         {resized} resizes; changes of leader: {}, {} and {}",
        outcome.created,
        outcome.most,
        LOAD.limit,
        outcome.lists,
        outcome.pause,
        migrated.load(SeqCst),
        leaders[1] - leaders[0],
        leaders[2] - leaders[1],
        leaders[3] - leaders[2],
    );
    outcome.assert_right(LOAD);
    assert_none_rejected(&tenant).await;
    assert!(resized > 0);
    assert!(outcome.pause <= PAUSE, "{:?}", outcome.pause);
    assert!(leaders.windows(2).all(|two| two[1] - two[0] <= 1), "{leaders:?}");
}

async fn write_as_before_and_upgrade(cluster: &mut Cluster<'_>, client: &Client, now: &Version) {
    // An operator that runs would put them right at once.
    let operator = cluster.installation.operator().unwrap();
    operator.terminate();
    operator.wait().await;
    write_as(client, &BEFORE).await;
    cluster.become_version(now).await;
    until_of_this_version(client).await;
}
