//! The story on a cluster of the user's: ask first, leave nothing.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, PropagationPolicy};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource};
use serde::de::DeserializeOwned;
use sluice_api::names;
use sluice_testbed::{ports, wait};

use crate::end;
use crate::screen::Screen;
use crate::signals::{Interrupted, Signals};
use crate::stage::Stage;
use crate::story::{Scene, play};
use crate::watches;

/// How long a namespace with a few pods may take to disappear.
const GONE: Duration = Duration::from_secs(120);
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);

const SKIPPED: &str = "The second act, a live migration through a full quota, needs KubeVirt and nodes that run VMs: \
                       it is left out here (make demo plays it, examples/migration/ has its files).";

/// What differs between runs.
pub struct Choice {
    /// The cluster.
    pub kubeconfig: PathBuf,
    /// Do not ask.
    pub yes: bool,
    /// Time to read after each step.
    pub pace: Duration,
    /// Leave the namespace.
    pub keep: bool,
}

/// Checks, asks, plays the story and removes what it created, also after an interruption.
///
/// # Errors
/// When there is no Sluice, the story does not come true, or something is left.
pub async fn run(choice: Choice, mut screen: Screen, signals: Signals) -> anyhow::Result<()> {
    let namespace = format!("sluice-demo-{:08x}", ports::random() & 0xffff_ffff);
    let prepared = async {
        let (client, place) = connect(&choice.kubeconfig).await?;
        installed(&client, &place).await?;
        screen.say(&format!(
            "On {place} this creates\n  namespace {namespace} with a quota, 8 small pods that ask for up to 8 CPUs \
             (image registry.k8s.io/pause:3.10),\n  PriorityClass {namespace}-urgent (never preempts)\nand \
             {}.",
            if choice.keep { "leaves them there" } else { "removes both at the end" }
        ))?;
        Ok(if choice.yes || asked().await? { Some(client) } else { None })
    };
    let prepared: anyhow::Result<Option<Client>> = tokio::select! {
        prepared = prepared => prepared,
        () = signals.came(1) => Err(Interrupted.into()),
    };
    let Some(client) = prepared? else {
        return Ok(screen.say("Nothing was created.")?);
    };
    let scene = Scene { client, namespace, nodes: false, pace: choice.pace };
    let mut stage = Stage::open(watches::open(&scene.client, &scene.namespace), screen, signals.clone());
    let played = play(&scene, &mut stage).await;
    let ended = end(stage, played);
    let (path, namespace) = (choice.kubeconfig.display(), &scene.namespace);
    let remove =
        format!("kubectl --kubeconfig {path} delete namespace/{namespace} priorityclass/{namespace}-urgent");
    if choice.keep && ended.is_ok() {
        return Ok(ended?.say(&format!("\nIt is still there; remove it with\n  {remove}"))?);
    }
    if ended.as_ref().is_err_and(|error| error.is::<Interrupted>()) {
        eprintln!("\nremoving namespace {namespace} …");
    }
    let cleaned = tokio::select! {
        cleaned = clean_up(&scene) => cleaned,
        () = signals.came(2) => Err(Interrupted.into()),
    };
    match cleaned.with_context(|| format!("cleaning up; what is left goes with\n  {remove}")) {
        Ok(()) => {
            let mut screen = ended?;
            screen.say(&format!("Namespace {namespace} and its PriorityClass are removed."))?;
            Ok(screen.say(SKIPPED)?)
        }
        // What went wrong first is said too.
        Err(left) => match ended {
            Ok(_) => Err(left),
            Err(error) => Err(left.context(format!("{error:#}"))),
        },
    }
}

async fn connect(kubeconfig: &Path) -> anyhow::Result<(Client, String)> {
    let file = Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("reading kubeconfig {}", kubeconfig.display()))?;
    let context = file.current_context.clone().unwrap_or_default();
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let mut config = config.with_context(|| format!("using kubeconfig {}", kubeconfig.display()))?;
    config.connect_timeout = Some(ANSWER);
    let place = format!("{} (context {context:?})", config.cluster_url);
    Ok((Client::try_from(config).context("making a client")?, place))
}

/// The things without which the story could only fail.
async fn installed(client: &Client, place: &str) -> anyhow::Result<()> {
    let crd = format!("{}.{}", names::ARQS, names::GROUP);
    let there = exists::<CustomResourceDefinition>(client, &crd).await?
        && exists::<MutatingWebhookConfiguration>(client, names::MUTATING_CONFIG).await?;
    ensure!(
        there,
        "Sluice is not installed on {place}: it has no CustomResourceDefinition {crd} or no \
         MutatingWebhookConfiguration {}. Install it (`make image`, load target/image/sluice.tar into the nodes, \
         `kubectl apply -f deploy/install.yaml`) and try again",
        names::MUTATING_CONFIG
    );
    Ok(())
}

async fn exists<K>(client: &Client, name: &str) -> anyhow::Result<bool>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let kind = K::kind(&());
    let api = Api::<K>::all(client.clone());
    let found = tokio::time::timeout(ANSWER, api.get_metadata_opt(name)).await;
    let found = found.with_context(|| format!("reading {kind} {name}: no answer in {ANSWER:?}"))?;
    Ok(found.with_context(|| format!("reading {kind} {name}"))?.is_some())
}

/// Asks on the terminal; anything but yes is no.
async fn asked() -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!(
            "standard input is no terminal, so there is no way to ask whether to go on: say --yes if you want it"
        );
    }
    let ask = || {
        let mut out = std::io::stdout().lock();
        out.write_all(b"Go on? [y/N] ").and_then(|()| out.flush())?;
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer)?;
        anyhow::Ok(matches!(answer.trim(), "y" | "Y" | "yes" | "Yes"))
    };
    tokio::task::spawn_blocking(ask).await.context("asking")?
}

async fn clean_up(scene: &Scene) -> anyhow::Result<()> {
    let now =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
    let namespaces: Api<Namespace> = Api::all(scene.client.clone());
    let classes: Api<PriorityClass> = Api::all(scene.client.clone());
    absent(namespaces.delete(&scene.namespace, &now).await).context("deleting the namespace")?;
    absent(classes.delete(&format!("{}-urgent", scene.namespace), &now).await)
        .context("deleting the PriorityClass")?;
    let what = "the namespace to disappear";
    wait::wait_for(&namespaces, &scene.namespace, GONE, what, |namespace| namespace.is_none()).await.map(drop)
}

/// Not being there is what is wanted.
fn absent<T>(deleted: kube::Result<T>) -> kube::Result<()> {
    match deleted {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}
