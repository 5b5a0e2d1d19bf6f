//! The story on a cluster of the user's: ask first, leave nothing.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, PropagationPolicy};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource};
use serde::de::DeserializeOwned;
use sluice_api::{ApplicationAwareClusterResourceQuota, names};
use sluice_testbed::{ports, wait};

use crate::arguments::Arguments;
use crate::examples::NAMESPACE;
use crate::page::Page;
use crate::scene::Scene;
use crate::screen::Screen;
use crate::signals::{Interrupted, Signals};
use crate::{cluster, story};

/// How long a namespace with a few pods may take to disappear.
const GONE: Duration = Duration::from_secs(120);
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);

const SKIPPED: &str = "The act of a live migration through a full quota needs KubeVirt and nodes that run VMs: it is left \
                       out here (make demo plays it, examples/migration/ has its files).";

const NOT_ALLOWED: &str = "\nThe act of two namespaces under one cluster quota is left out: no AAQ says \
                           allowApplicationAwareClusterResourceQuota (examples/cluster-quota/00-allow.yaml does).";

/// Checks, asks, plays the story and removes what it created, also after an interruption.
///
/// # Errors
/// When there is no Sluice, the story does not come true, or something is left.
pub async fn run(
    kubeconfig: &Path,
    arguments: &Arguments,
    mut screen: Screen,
    signals: Signals,
) -> anyhow::Result<()> {
    let name = format!("sluice-demo-{:08x}", ports::random() & 0xffff_ffff);
    let prepared = async {
        let (client, place) = connect(kubeconfig).await?;
        installed(&client, &place).await?;
        let allowed = in_time("listing AAQs", cluster::are_allowed(&client)).await??;
        screen.say(&plan(&place, &name, allowed, arguments.keep))?;
        if !arguments.yes && !asked().await? {
            return Ok(None);
        }
        let page = Page::offered(arguments, kubeconfig, &name, &mut screen).await?;
        Ok(Some((client, allowed, page)))
    };
    let prepared: anyhow::Result<Option<(Client, bool, Option<Page>)>> = tokio::select! {
        prepared = prepared => prepared,
        () = signals.came(1) => Err(Interrupted.into()),
    };
    let Some((client, allowed, _page)) = prepared? else {
        return Ok(screen.say("Nothing was created.")?);
    };
    let objects = created(&name, allowed);
    let words: Vec<String> = objects.iter().map(Created::word).collect();
    let remove = format!("kubectl --kubeconfig {} delete {}", kubeconfig.display(), words.join(" "));
    let (signals_of_acts, pace) = (signals.clone(), arguments.pace);
    let scene = Scene { client, written: NAMESPACE, name, nodes: false, pace, signals: signals_of_acts };
    let ended = acts(&scene, allowed, screen).await;
    if arguments.keep && ended.is_ok() {
        return Ok(ended?.say(&format!("\nIt is still there; remove it with\n  {remove}"))?);
    }
    if ended.as_ref().is_err_and(|error| error.is::<Interrupted>()) {
        eprintln!("\nremoving namespace {} …", scene.name);
    }
    let cleaned = tokio::select! {
        cleaned = clean_up(&scene.client, &objects) => cleaned,
        () = signals.came(2) => Err(Interrupted.into()),
    };
    match cleaned.with_context(|| format!("cleaning up; what is left goes with\n  {remove}")) {
        Ok(()) => {
            let mut screen = ended?;
            screen.say(&format!("{} are removed.", words.join(", ")))?;
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

/// An object that the story creates outside of its namespaces.
struct Created {
    /// As `kubectl` takes it.
    short: &'static str,
    kind: ApiResource,
    name: String,
}

impl Created {
    fn word(&self) -> String {
        format!("{}/{}", self.short, self.name)
    }
}

/// What there is on the cluster.
fn created(name: &str, allowed: bool) -> Vec<Created> {
    let namespace =
        |name: String| Created { short: "namespace", kind: ApiResource::erase::<Namespace>(&()), name };
    let class = ApiResource::erase::<PriorityClass>(&());
    let quota = ApiResource::erase::<ApplicationAwareClusterResourceQuota>(&());
    let [web, batch] = cluster::namespaces(name).map(namespace);
    let first = [
        namespace(name.to_owned()),
        Created { short: "priorityclass", kind: class, name: format!("{name}-urgent") },
    ];
    let second = [web, batch, Created { short: "acrq", kind: quota, name: name.to_owned() }];
    first.into_iter().chain(second.into_iter().filter(|_| allowed)).collect()
}

async fn acts(scene: &Scene, allowed: bool, screen: Screen) -> anyhow::Result<Screen> {
    let mut screen = story::act(scene, screen).await?;
    if !allowed {
        return Ok(screen);
    }
    screen.say("")?;
    cluster::act(&scene.of(cluster::NAME), screen).await
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
         `kubectl apply --server-side -f deploy/crds.yaml -f deploy/install.yaml`) and try again",
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

async fn clean_up(client: &Client, created: &[Created]) -> anyhow::Result<()> {
    let now =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
    let api = |object: &Created| Api::<DynamicObject>::all_with(client.clone(), &object.kind);
    for object in created {
        match api(object).delete(&object.name, &now).await {
            // Not being there is what is wanted.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            deleted => drop(deleted.with_context(|| format!("deleting {}", object.word()))?),
        }
    }
    for object in created {
        let gone =
            || async { matches!(api(object).get_metadata_opt(&object.name).await, Ok(None)).then_some(()) };
        wait::eventually(GONE, gone, &format!("{} to disappear", object.word())).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Created, created, plan};

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
        let words = |allowed| created("demo-1", allowed).iter().map(Created::word).collect::<Vec<_>>();
        assert_eq!(words(false), ["namespace/demo-1", "priorityclass/demo-1-urgent"]);
        let all = words(true).join(" ");
        assert!(all.ends_with(" namespace/demo-1-web namespace/demo-1-batch acrq/demo-1"), "{all}");
    }
}
