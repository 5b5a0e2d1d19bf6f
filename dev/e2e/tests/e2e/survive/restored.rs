//! etcd is restored from a backup while processes run that know what came after it.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use sluice_api::ApplicationAwareResourceQuota as Arq;
use sluice_e2e::objects::{self, TARGETED, is_held};
use sluice_e2e::{Running, Setup};
use sluice_testbed::{Bed, BedOptions, Component, Program, wait};

use crate::context::SOON;

/// Within this time after the next start, what is used has to be right.
const EXACT: Duration = Duration::from_secs(60);
const QUOTA: &str = "compute";

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (from, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            std::fs::copy(&from, &to).unwrap();
        }
    }
}

/// Nothing runs that reads or writes the data meanwhile.
async fn while_stopped(bed: &Bed, change: impl FnOnce(&Path, &Path)) {
    bed.stop_api_server();
    bed.stop(Component::Etcd);
    change(&bed.dir().join("etcd"), &bed.dir().join("etcd-backup"));
    bed.start_component(Component::Etcd).unwrap();
    bed.start_api_server().await.unwrap();
}

async fn until_used(bed: &Bed, namespace: &str, used: &str, deadline: Duration) {
    let quotas: Api<Arq> = Api::namespaced(bed.admin().unwrap(), namespace);
    let says = |quota: Option<&Arq>| {
        let status = quota.and_then(|quota| quota.status.as_ref());
        status.and_then(|status| status.used.get("pods")).is_some_and(|is| is.0 == used)
    };
    wait::wait_for(&quotas, QUOTA, deadline, &format!("{used} pods to be used"), says).await.unwrap();
}

async fn create(bed: &Bed, namespace: &str, names: &[&str]) {
    for name in names {
        let pod = objects::pod_without_node(name, &[]);
        let created =
            || async { objects::create(&bed.admin().unwrap(), namespace, &pod).await.ok().filter(is_held) };
        wait::eventually(SOON, created, "a pod to be created with the gate").await.unwrap();
    }
}

/// Returns when the watch of quotas shows what becomes of them: it begins anew some time after an API server has.
async fn until_watched(bed: &Bed, namespace: &str, quota: &str) {
    objects::create(&bed.admin().unwrap(), namespace, &objects::quota(quota, &[("requests.cpu", "100")]))
        .await
        .unwrap();
    let quotas: Api<Arq> = Api::namespaced(bed.admin().unwrap(), namespace);
    let says = |quota: Option<&Arq>| quota.is_some_and(|quota| quota.status.is_some());
    wait::wait_for(&quotas, quota, SOON, "a status", says).await.unwrap();
}

async fn ends(program: &Program) {
    let ended = tokio::time::timeout(SOON, program.wait()).await;
    let end = ended.unwrap_or_else(|_| panic!("{} goes on:\n{}", program.name(), program.log()));
    let log = program.log();
    assert_eq!(end.code, 1, "{}:\n{log}", program.name());
    assert!(
        log.contains("resource versions went back from ") && log.contains(": etcd was restored"),
        "{log}"
    );
}

/// API servers write at once, so versions are soon as late as they were, and watches go on from what was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_etcd_ends_the_controller_and_the_next_one_counts_what_there_is() {
    let bed =
        &Bed::start(BedOptions { kwok: false, scheduler: false, ..BedOptions::default() }).await.unwrap();
    // A leader that was killed holds the lease of the backup.
    let running = Running::on(bed, Setup::default()).await.unwrap();
    let namespace = bed.namespace("restored", TARGETED).await.unwrap().name;
    let client = bed.admin().unwrap();
    objects::create(&client, &namespace, &objects::quota(QUOTA, &[("pods", "4")])).await.unwrap();
    create(bed, &namespace, &["a", "b"]).await;
    until_used(bed, &namespace, "2", SOON).await;
    while_stopped(bed, copy).await;

    until_watched(bed, &namespace, "watched").await;
    create(bed, &namespace, &["c", "d", "e"]).await;
    until_used(bed, &namespace, "4", SOON).await;
    until_watched(bed, &namespace, "shown").await;
    while_stopped(bed, |data, backup| {
        std::fs::remove_dir_all(data).unwrap();
        std::fs::rename(backup, data).unwrap();
    })
    .await;

    ends(&running.controller.program).await;
    let _controller = running.installation.controller().await.unwrap();
    create(bed, &namespace, &["f", "g", "h"]).await;
    until_used(bed, &namespace, "4", EXACT).await;
    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    let released = || async {
        let pods = pods.list(&Default::default()).await.ok()?.items;
        (pods.iter().filter(|pod| !is_held(pod)).count() == 4).then_some(pods.len())
    };
    assert_eq!(wait::eventually(SOON, released, "two more pods to go").await.unwrap(), 5);
}
