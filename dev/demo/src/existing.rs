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
use sluice_api::{ApplicationAwareClusterResourceQuota, names};
use sluice_testbed::{ports, wait};

use crate::cluster;
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

const SKIPPED: &str = "The act of a live migration through a full quota needs KubeVirt and nodes that run VMs: it is left \
                       out here (make demo plays it, examples/migration/ has its files).";

const NOT_ALLOWED: &str = "\nThe act of two namespaces under one cluster quota is left out: no AAQ says \
                           allowApplicationAwareClusterResourceQuota (examples/cluster-quota/00-allow.yaml does).";

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
        let allowed = in_time("listing AAQs", cluster::are_allowed(&client)).await??;
        screen.say(&plan(&place, &namespace, allowed, choice.keep))?;
        Ok(if choice.yes || asked().await? { Some((client, allowed)) } else { None })
    };
    let prepared: anyhow::Result<Option<(Client, bool)>> = tokio::select! {
        prepared = prepared => prepared,
        () = signals.came(1) => Err(Interrupted.into()),
    };
    let Some((client, allowed)) = prepared? else {
        return Ok(screen.say("Nothing was created.")?);
    };
    let scene = Scene { client, namespace, nodes: false, pace: choice.pace };
    let ended = acts(&scene, allowed, screen, &signals).await;
    let (path, namespace) = (choice.kubeconfig.display(), &scene.namespace);
    let remove = format!("kubectl --kubeconfig {path} delete {}", created(namespace, allowed).join(" "));
    if choice.keep && ended.is_ok() {
        return Ok(ended?.say(&format!("\nIt is still there; remove it with\n  {remove}"))?);
    }
    if ended.as_ref().is_err_and(|error| error.is::<Interrupted>()) {
        eprintln!("\nremoving namespace {namespace} …");
    }
    let cleaned = tokio::select! {
        cleaned = clean_up(&scene, allowed) => cleaned,
        () = signals.came(2) => Err(Interrupted.into()),
    };
    match cleaned.with_context(|| format!("cleaning up; what is left goes with\n  {remove}")) {
        Ok(()) => {
            let mut screen = ended?;
            screen.say(&format!("{} are removed.", created(namespace, allowed).join(", ")))?;
            Ok(screen.say(SKIPPED)?)
        }
        // What went wrong first is said too.
        Err(left) => match ended {
            Ok(_) => Err(left),
            Err(error) => Err(left.context(format!("{error:#}"))),
        },
    }
}

/// What there will be on the cluster.
fn plan(place: &str, namespace: &str, allowed: bool, keep: bool) -> String {
    let cluster = if allowed {
        format!(
            "  namespaces {} with a cluster quota {namespace} and 3 small pods that ask for up to 3 CPUs,\n",
            cluster::namespaces(namespace).join(" and ")
        )
    } else {
        String::new()
    };
    let end = if keep { "leaves them there" } else { "removes all at the end" };
    let skipped = if allowed { "" } else { NOT_ALLOWED };
    format!(
        "On {place} this creates\n  namespace {namespace} with a quota, 8 small pods that ask for up to 8 CPUs \
         (image registry.k8s.io/pause:3.10),\n{cluster}  PriorityClass {namespace}-urgent (never preempts)\nand \
         {end}.{skipped}"
    )
}

/// What there is on the cluster, as `kubectl delete` takes it.
fn created(namespace: &str, allowed: bool) -> Vec<String> {
    let [web, batch] = cluster::namespaces(namespace);
    let first = [format!("namespace/{namespace}"), format!("priorityclass/{namespace}-urgent")];
    let second = [format!("namespace/{web}"), format!("namespace/{batch}"), format!("acrq/{namespace}")];
    first.into_iter().chain(second.into_iter().filter(|_| allowed)).collect()
}

async fn acts(scene: &Scene, allowed: bool, screen: Screen, signals: &Signals) -> anyhow::Result<Screen> {
    let updates = watches::open(&scene.client, &scene.namespace);
    let mut stage = Stage::open(updates, screen, signals.clone());
    let played = play(scene, &mut stage).await;
    let mut screen = end(stage, played)?;
    if !allowed {
        return Ok(screen);
    }
    screen.say("")?;
    cluster::act(scene, screen, signals.clone()).await
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
    let reading = format!("reading {kind} {name}");
    let found = in_time(&reading, api.get_metadata_opt(name)).await?;
    Ok(found.context(reading)?.is_some())
}

async fn in_time<T>(what: &str, answer: impl Future<Output = T>) -> anyhow::Result<T> {
    let answer = tokio::time::timeout(ANSWER, answer).await;
    answer.with_context(|| format!("{what}: no answer in {ANSWER:?}"))
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

async fn clean_up(scene: &Scene, allowed: bool) -> anyhow::Result<()> {
    let now =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
    let namespaces: Api<Namespace> = Api::all(scene.client.clone());
    let classes: Api<PriorityClass> = Api::all(scene.client.clone());
    let quotas: Api<ApplicationAwareClusterResourceQuota> = Api::all(scene.client.clone());
    let further = cluster::namespaces(&scene.namespace).into_iter().filter(|_| allowed);
    let created: Vec<String> = std::iter::once(scene.namespace.clone()).chain(further).collect();
    for namespace in &created {
        absent(namespaces.delete(namespace, &now).await).context("deleting the namespaces")?;
    }
    absent(classes.delete(&format!("{}-urgent", scene.namespace), &now).await)
        .context("deleting the PriorityClass")?;
    if allowed {
        absent(quotas.delete(&scene.namespace, &now).await).context("deleting the cluster quota")?;
    }
    for namespace in &created {
        let what = "the namespaces to disappear";
        wait::wait_for(&namespaces, namespace, GONE, what, |namespace| namespace.is_none()).await?;
    }
    Ok(())
}

/// Not being there is what is wanted.
fn absent<T>(deleted: kube::Result<T>) -> kube::Result<()> {
    match deleted {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::{created, plan};

    #[test]
    fn it_says_what_it_will_create() {
        insta::assert_snapshot!(plan("https://there", "demo-1", true, false), @"
        On https://there this creates
          namespace demo-1 with a quota, 8 small pods that ask for up to 8 CPUs (image registry.k8s.io/pause:3.10),
          namespaces demo-1-web and demo-1-batch with a cluster quota demo-1 and 3 small pods that ask for up to 3 CPUs,
          PriorityClass demo-1-urgent (never preempts)
        and removes all at the end.
        ");
        insta::assert_snapshot!(plan("https://there", "demo-1", false, true), @"
        On https://there this creates
          namespace demo-1 with a quota, 8 small pods that ask for up to 8 CPUs (image registry.k8s.io/pause:3.10),
          PriorityClass demo-1-urgent (never preempts)
        and leaves them there.
        The act of two namespaces under one cluster quota is left out: no AAQ says allowApplicationAwareClusterResourceQuota (examples/cluster-quota/00-allow.yaml does).
        ");
        assert_eq!(created("demo-1", false), ["namespace/demo-1", "priorityclass/demo-1-urgent"]);
        let all = created("demo-1", true).join(" ");
        assert!(all.ends_with(" namespace/demo-1-web namespace/demo-1-batch acrq/demo-1"), "{all}");
    }
}
