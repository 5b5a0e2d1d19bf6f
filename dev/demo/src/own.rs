//! The story on a control plane of its own.

use std::path::Path;
use std::time::Duration;

use sluice_e2e::{Running, Setup, build};
use sluice_testbed::{Bed, BedOptions, artifacts};

use crate::arguments::Arguments;
use crate::examples::{ALLOW, NAMESPACE};
use crate::page::Page;
use crate::scene::Scene;
use crate::screen::Screen;
use crate::signals::{Interrupted, Signals};
use crate::table::Ink;
use crate::{background, cluster, migration, story, vms};

/// How long a kept cluster stays, for whoever forgets it.
const KEPT: Duration = Duration::from_secs(3600);

/// Builds what is missing, starts everything, plays the story and stops everything. Whenever this future is
/// dropped, all that it started ends.
///
/// # Errors
/// When something does not start, or the story does not come true.
pub async fn run(arguments: &Arguments, mut screen: Screen, signals: Signals) -> anyhow::Result<()> {
    let all = async {
        screen.say("Starting a Kubernetes control plane (the first time its programs are built) …")?;
        let bed = Bed::start(BedOptions::default()).await?;
        let played = with(&bed, arguments, screen, &signals).await;
        if played.as_ref().is_err_and(|error| !error.is::<Interrupted>()) {
            bed.keep();
        }
        played
    };
    tokio::select! {
        done = all => done,
        () = signals.came(1) => Err(Interrupted.into()),
    }
}

async fn with(bed: &Bed, arguments: &Arguments, mut screen: Screen, signals: &Signals) -> anyhow::Result<()> {
    let seconds = bed.ready_after().as_secs_f32();
    screen.say(&format!("{} answers after {seconds:.1} s; installing Sluice …", bed.server_url()))?;
    // The first acts need no KubeVirt.
    let compiling = artifacts::compile_kubevirt_beside(&bed.dir().join("logs/kubevirt-build.log"))?;
    bed.add_nodes(2, &[("cpu", "32"), ("memory", "128Gi"), ("ephemeral-storage", "1Ti")]).await?;
    let _sluice = Running::on(bed, Setup::default()).await?;
    let _page = Page::offered(arguments, bed.admin_kubeconfig(), NAMESPACE, &mut screen).await?;
    let scene = Scene {
        client: bed.admin()?,
        written: NAMESPACE,
        name: NAMESPACE.to_owned(),
        nodes: true,
        pace: arguments.pace,
        signals: signals.clone(),
    };
    let mut screen = story::act(&scene, screen).await?;
    screen.say("")?;
    scene.apply(&[ALLOW]).await?;
    let mut screen = cluster::act(&scene.of(cluster::NAME), screen).await?;
    let first_time = if compiling.is_some() { " (the first time the rest of it is built)" } else { "" };
    screen.say(&format!("\nStarting KubeVirt's controller{first_time} …\n"))?;
    drop(compiling);
    bed.start_kubevirt().await?;
    bed.kubevirt()?.add_nodes(2).await?;
    let mut screen = vms::act(&scene.of(vms::NAMESPACE), screen).await?;
    screen.say("")?;
    let mut screen = migration::act(&scene.of(migration::NAMESPACE), bed, screen).await?;
    if !arguments.keep {
        return Ok(screen.say(NEXT)?);
    }
    screen.say_in(Ink::Bold, "\nThe cluster stays up, for an hour at most. In this or another terminal:")?;
    screen.say(&usage(bed.admin_kubeconfig()))?;
    background::detach()?;
    tokio::time::sleep(KEPT).await;
    Ok(())
}

const NEXT: &str = "
Go on:
  make demo KEEP=1           leaves the cluster up, to try things with kubectl
  make demo PAGE=1           shows the story on a page in your browser too
  make demo KUBECONFIG=file  the same story on your cluster, with Sluice from deploy/install.yaml
  examples/                  the files that were applied";

fn usage(kubeconfig: &Path) -> String {
    let kubectl =
        artifacts::kubernetes().map(|path| format!("{} kubectl", path.display())).unwrap_or_default();
    let sluice = build::sluice().map(|path| path.display().to_string()).unwrap_or_default();
    let (pid, shop, vms) = (std::process::id(), cluster::NAME, migration::NAMESPACE);
    let counted = vms::NAMESPACE;
    format!(
        "
  export KUBECONFIG={}
  alias kubectl='{kubectl}'   # if you have no kubectl
  alias sluice='{sluice}'

  sluice why pod huge -n {NAMESPACE}
  sluice top -A --watch                     # how full all quotas are, until Ctrl-C
  kubectl -n {NAMESPACE} get arq,pods
  kubectl -n {NAMESPACE} get events --field-selector reason=ExceedsLimit
  kubectl -n {NAMESPACE} delete pod urgent      # room for 2 CPUs
  kubectl -n {NAMESPACE} patch arq compute --type merge -p '{{\"spec\":{{\"hard\":{{\"requests.cpu\":\"18\"}}}}}}'   # huge goes

  kubectl get acrq
  kubectl get pods -A -l tenant={shop}
  kubectl -n {shop}-web get aacrq            # what users of a namespace may read of it

  kubectl -n {counted} get arq,vmi,vmim,pods
  kubectl -n {counted} delete vmi first       # room for another VM

  kubectl -n {vms} get vmi,vmim,resourcequota,headroompolicies
  kubectl -n {vms} get events --field-selector reason=HeadroomGranted
  kubectl -n {vms} describe resourcequota one-vm

  kill {pid}   # stops the cluster and removes all it left",
        kubeconfig.display()
    )
}
