//! What the tests share.

use std::time::Duration;

use serde_json::Value;
use sluice_api::ApplicationAwareResourceQuota;
use sluice_e2e::{Running, Setup};
use sluice_testbed::{Bed, BedOptions};
use tokio::sync::OnceCell;

/// How long anything may take that should take milliseconds: the machine may be busy with other tests.
pub const SOON: Duration = Duration::from_secs(120);

/// The control plane and the Sluice that tests share, started by the first that asks.
pub async fn shared() -> &'static Running<'static> {
    static SHARED: OnceCell<Running<'static>> = OnceCell::const_new();
    SHARED
        .get_or_init(|| async {
            let bed = Bed::shared().await.unwrap();
            let controller_args = vec!["--in-flight-grace=3".to_owned()];
            let setup = Setup { controller_args, ..Setup::default() };
            let shared = Running::on(bed, setup).await.unwrap();
            bed.add_nodes(1, &[("cpu", "1000"), ("memory", "4000Gi"), ("pods", "10000")]).await.unwrap();
            shared
        })
        .await
}

/// Sluice on a control plane on which no pod is ever started, for tests that share it.
pub async fn idle() -> &'static Running<'static> {
    static SHARED: OnceCell<Running<'static>> = OnceCell::const_new();
    let start = || async {
        let bed = Bed::start_shared(idle_options()).await.unwrap();
        Running::on(bed, Setup::default()).await.unwrap()
    };
    SHARED.get_or_init(start).await
}

/// A control plane on which no pod is ever started.
pub async fn idle_bed() -> Bed {
    Bed::start(idle_options()).await.unwrap()
}

pub fn idle_options() -> BedOptions {
    BedOptions { kwok: false, scheduler: false, ..BedOptions::default() }
}

/// Names of the gates of a pod, in order.
pub fn gates(pod: &Value) -> Vec<&str> {
    let gates = pod["spec"]["schedulingGates"].as_array();
    gates.into_iter().flatten().filter_map(|gate| gate["name"].as_str()).collect()
}

pub fn used_of(quota: Option<&ApplicationAwareResourceQuota>, key: &str) -> Option<String> {
    Some(quota?.status.as_ref()?.used.get(key)?.0.clone())
}

/// What kubectl printed; it has to succeed.
pub async fn kubectl(bed: &Bed, args: &[&str]) -> String {
    let (done, stdout, stderr) = kubectl_tries(bed, args).await;
    assert!(done, "kubectl {args:?}: {stdout}{stderr}");
    stdout
}

/// Whether kubectl succeeded, and what it printed to its two outputs.
pub async fn kubectl_tries(bed: &Bed, args: &[&str]) -> (bool, String, String) {
    let output = bed.kubectl(args).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

/// Writes a manifest to a file in the bed's directory; returns its path.
pub fn manifest(bed: &Bed, name: &str, text: &str) -> String {
    let path = bed.dir().join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}
