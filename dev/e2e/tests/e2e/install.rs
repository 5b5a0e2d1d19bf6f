//! `deploy/crds.yaml` and `deploy/install.yaml`, as they are in the repository, on a cluster of their own.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use sluice_api::names;
use sluice_e2e::build;
use sluice_e2e::call::get;
use sluice_testbed::{Bed, BedOptions, Program, wait};

use crate::context::{SOON, kubectl_tries};

const MANIFESTS: [&str; 2] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/crds.yaml"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/install.yaml"),
];
/// Names and replicas.
const DEPLOYMENTS: [(&str, i32); 3] = [(names::CONTROLLER, 2), (names::WEBHOOK, 2), (names::OPERATOR, 2)];

#[tokio::test(flavor = "multi_thread")]
async fn the_shipped_manifest_installs_on_a_real_cluster() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    bed.add_nodes(2, &[("cpu", "4"), ("memory", "8Gi")]).await.unwrap();
    applies_and_applies_again(&bed).await;
    let _operator = operator(&bed).await;
    its_pods_are_let_in_and_run(&bed).await;
    the_binary_knows_the_arguments(&bed).await;
    pods_wait_until_somebody_answers(&bed).await;
}

async fn gates_by_policy(bed: &Bed) -> bool {
    let served = get(&bed.admin().unwrap(), "/apis/admissionregistration.k8s.io/v1").await.unwrap().body;
    served["resources"].as_array().unwrap().iter().any(|kind| kind["name"] == "mutatingadmissionpolicies")
}

async fn applies_and_applies_again(bed: &Bed) {
    let texts = MANIFESTS.map(|manifest| std::fs::read_to_string(manifest).unwrap());
    let count = texts.iter().flat_map(|text| text.lines()).filter(|line| line.starts_with("kind:")).count();
    let apply = [&["apply"][..], &files()].concat();
    let (done, first, stderr) = kubectl_tries(bed, &apply).await;
    assert!(done, "{first}{stderr}");
    assert_eq!(stderr, "", "no warnings, of Pod Security or other");
    assert_eq!(first.lines().count(), count, "{first}");
    assert!(first.lines().all(|line| line.ends_with(" created")), "{first}");
    let before = generations(bed).await;
    let (done, second, stderr) = kubectl_tries(bed, &apply).await;
    assert!(done && stderr.is_empty(), "{second}{stderr}");
    assert_eq!(second.lines().count(), count, "{second}");
    // kubectl sends the selector of a PodDisruptionBudget each time, for it is replaced as a whole.
    let changed = |line: &&str| !line.ends_with(" unchanged") && !line.starts_with("poddisruptionbudget");
    assert_eq!(second.lines().filter(changed).collect::<Vec<_>>(), Vec::<&str>::new());
    assert_eq!(generations(bed).await, before);
}

fn files() -> [&'static str; 4] {
    let [crds, install] = MANIFESTS;
    ["--filename", crds, "--filename", install]
}

/// What the API server counts as changes of a specification.
async fn generations(bed: &Bed) -> String {
    let columns = "--output=custom-columns=KIND:.kind,NAME:.metadata.name,GENERATION:.metadata.generation";
    let (done, stdout, stderr) = kubectl_tries(bed, &[&["get", columns][..], &files()].concat()).await;
    assert!(done, "{stdout}{stderr}");
    stdout
}

/// The operator makes two of the Deployments. Pods are made by the real controller-manager under the namespace's Pod
/// Security level, and run by simulated kubelets.
async fn its_pods_are_let_in_and_run(bed: &Bed) {
    let client = bed.admin().unwrap();
    let namespace = Api::<k8s_openapi::api::core::v1::Namespace>::all(client.clone());
    let labels = namespace.get(names::INSTALL_NAMESPACE).await.unwrap().metadata.labels.unwrap();
    assert_eq!(labels.get("pod-security.kubernetes.io/enforce").map(String::as_str), Some("restricted"));
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), names::INSTALL_NAMESPACE);
    for (name, replicas) in DEPLOYMENTS {
        wait::wait_for(&deployments, name, SOON, "all replicas to be available", |deployment| {
            let status = deployment.and_then(|deployment| deployment.status.as_ref());
            status.is_some_and(|status| status.available_replicas == Some(replicas))
        })
        .await
        .unwrap();
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), names::INSTALL_NAMESPACE);
    let all = wait::wait_for_all(&pods, watcher::Config::default(), SOON, "six pods", |pods| pods.len() == 6);
    for pod in all.await.unwrap() {
        let spec = pod.spec.as_ref().unwrap();
        assert!(spec.scheduling_gates.is_none(), "{}", pod.name_any());
        assert_eq!(spec.priority_class_name.as_deref(), Some("system-cluster-critical"));
        let account = spec.service_account_name.as_deref().unwrap();
        assert!(DEPLOYMENTS.iter().any(|(name, _)| *name == account), "{}", pod.name_any());
    }
    for (name, replicas) in DEPLOYMENTS {
        let selector = ListParams::default().labels(&format!("app.kubernetes.io/component={name}"));
        let nodes: std::collections::BTreeSet<_> = pods
            .list(&selector)
            .await
            .unwrap()
            .items
            .into_iter()
            .filter_map(|pod| pod.spec?.node_name)
            .collect();
        assert_eq!(i32::try_from(nodes.len()), Ok(replicas), "{name}: the replicas prefer different nodes");
    }
}

/// The flags of the Deployments are flags of the binary: with them it gets as far as looking for its cluster.
async fn the_binary_knows_the_arguments(bed: &Bed) {
    let deployments: Api<Deployment> = Api::namespaced(bed.admin().unwrap(), names::INSTALL_NAMESPACE);
    for (name, _) in DEPLOYMENTS {
        let deployment = deployments.get(name).await.unwrap();
        let pod = deployment.spec.template.spec.unwrap();
        let mut args = pod.containers[0].args.clone().unwrap();
        assert_eq!(pod.containers[0].command, None, "the image's entry point is the binary");
        for arg in &mut args {
            *arg = arg.replace("$(POD_NAMESPACE)", names::INSTALL_NAMESPACE);
            assert!(!arg.contains("$("), "{arg}: not set in the container");
        }
        let exit = |args: Vec<String>, run: &str| {
            let log = bed.dir().join(format!("{name}-{run}.log"));
            Program::start(name, build::sluice().unwrap(), args, Vec::<(String, String)>::new(), log).unwrap()
        };
        let with = |more: &str| [args.clone(), vec![more.to_owned()]].concat();
        let program = exit(with("--kubeconfig=/nonexistent/kubeconfig"), "known");
        let ended = tokio::time::timeout(Duration::from_secs(20), program.wait()).await.unwrap();
        assert_ne!(ended.code, 0);
        assert!(program.log().contains("/nonexistent/kubeconfig"), "{name}: {}", program.log());
        assert!(!program.log().contains("--help"), "{name}: {}", program.log());
        // The same with a flag that does not exist: this test would see it.
        let program = exit(with("--no-such-flag"), "unknown");
        let ended = tokio::time::timeout(Duration::from_secs(20), program.wait()).await.unwrap();
        assert_eq!(ended.code, 2, "{}", program.log());
        assert!(program.log().contains("--help"), "{name}: {}", program.log());
    }
}

/// The operator makes what gates. The webhook has no endpoint here (simulated pods
/// do not answer): pods are created and wait.
async fn pods_wait_until_somebody_answers(bed: &Bed) {
    let namespace = bed.namespace("closed", sluice_e2e::objects::TARGETED).await.unwrap();
    let client = bed.admin().unwrap();
    let count = AtomicU32::new(0);
    let pod = || sluice_e2e::objects::pod(&format!("p-{}", count.fetch_add(1, Relaxed)), &[]);
    if !gates_by_policy(bed).await {
        // Only the webhook can gate here: without an answer of it the pod is refused, by name.
        let refused = || async {
            let answer = sluice_e2e::objects::create(&client, &namespace.name, &pod()).await;
            answer
                .err()
                .is_some_and(|error| error.to_string().contains("gater.cqo.kubevirt.io"))
                .then_some(())
        };
        return wait::eventually(SOON, refused, "a pod to be refused").await.unwrap();
    }
    // What was made a moment ago is not in force at once, and in between pods are refused.
    let held = || async {
        let created = sluice_e2e::objects::create(&client, &namespace.name, &pod()).await.ok()?;
        sluice_e2e::objects::is_held(&created).then_some(())
    };
    wait::eventually(SOON, held, "a pod to be held").await.unwrap();
    let free = bed.namespace("open", &[]).await.unwrap();
    let created = sluice_e2e::objects::create(&client, &free.name, &pod()).await.unwrap();
    assert!(!sluice_e2e::objects::is_held(&created), "{created:?}");
}

/// With the rights that are shipped.
pub async fn operator(bed: &Bed) -> Program {
    operator_in(bed, names::INSTALL_NAMESPACE, &[]).await
}

/// The same in another namespace, with further arguments.
pub async fn operator_in(bed: &Bed, namespace: &str, further: &[String]) -> Program {
    let identity = bed.service_account(namespace, names::OPERATOR).await.unwrap();
    let kubeconfig = identity.kubeconfig().to_str().unwrap().to_owned();
    let listen = ["--admin-listen", "--metrics-listen"]
        .map(|flag| format!("{flag}=127.0.0.1:{}", sluice_testbed::ports::free().unwrap()));
    let own =
        ["operator".to_owned(), format!("--kubeconfig={kubeconfig}"), format!("--namespace={namespace}")];
    let args = [&own[..], &listen, further].concat();
    bed.program("operator", build::sluice().unwrap(), args, Vec::<(String, String)>::new()).unwrap()
}
