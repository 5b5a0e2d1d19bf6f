//! The story on a control plane of its own.

use std::path::Path;
use std::time::Duration;

use sluice_e2e::{Running, Setup};
use sluice_testbed::{Bed, BedOptions, artifacts};

use crate::examples::NAMESPACE;
use crate::migration::{self, Place};
use crate::screen::Screen;
use crate::signals::{Interrupted, Signals};
use crate::stage::Stage;
use crate::story::{Scene, play};
use crate::table::Ink;
use crate::{background, cluster, end, vms, watches};

/// How long a kept cluster stays: then the tokens of Sluice's service accounts end.
const KEPT: Duration = Duration::from_secs(3600);

/// What differs between runs.
pub struct Choice {
    /// Time to read after each step.
    pub pace: Duration,
    /// Leave the cluster up.
    pub keep: bool,
}

/// Builds what is missing, starts everything, plays the story and stops everything. Whenever this future is
/// dropped, all that it started ends.
///
/// # Errors
/// When something does not start, or the story does not come true.
pub async fn run(choice: Choice, mut screen: Screen, signals: Signals) -> anyhow::Result<()> {
    let all = async {
        screen.say("Starting a Kubernetes control plane (the first time its programs are built) …")?;
        let bed = Bed::start(BedOptions { kubevirt: true, ..BedOptions::default() }).await?;
        let played = with(&bed, &choice, screen, &signals).await;
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

async fn with(bed: &Bed, choice: &Choice, mut screen: Screen, signals: &Signals) -> anyhow::Result<()> {
    let seconds = bed.ready_after().as_secs_f32();
    screen.say(&format!("{} answers after {seconds:.1} s; installing Sluice …", bed.server_url()))?;
    // Both acts play on them: they have what KubeVirt asks of a node.
    bed.kubevirt()?.add_nodes(2).await?;
    let _sluice = Running::on(bed, Setup::default()).await?;
    let scene =
        Scene { client: bed.admin()?, namespace: NAMESPACE.to_owned(), nodes: true, pace: choice.pace };
    let updates = watches::open(&scene.client, &scene.namespace);
    let mut stage = Stage::open(updates, screen, signals.clone());
    let played = play(&scene, &mut stage).await;
    let mut screen = end(stage, played)?;
    screen.say("")?;
    cluster::allow(&scene.client).await?;
    let second = Scene { namespace: cluster::NAME.to_owned(), ..scene };
    let mut screen = cluster::act(&second, screen, signals.clone()).await?;
    screen.say("")?;
    let mut screen = vms::act(bed, choice.pace, screen, signals.clone()).await?;
    screen.say("")?;
    let place = Place { bed, client: bed.admin()?, pace: choice.pace };
    let mut screen = migration::act(&place, screen, signals.clone()).await?;
    if !choice.keep {
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
  make demo KUBECONFIG=file  the same story on your cluster, with Sluice from deploy/install.yaml
  examples/                  the files that were applied";

fn usage(kubeconfig: &Path) -> String {
    let kubectl =
        artifacts::kubernetes().map(|path| format!("{} kubectl", path.display())).unwrap_or_default();
    let (pid, shop, vms) = (std::process::id(), cluster::NAME, migration::NAMESPACE);
    let counted = vms::NAMESPACE;
    format!(
        "
  export KUBECONFIG={}
  alias kubectl='{kubectl}'   # if you have no kubectl

  kubectl -n {NAMESPACE} get arq,pods
  kubectl -n {NAMESPACE} get events --field-selector reason=ExceededQuota
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
