#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

use std::io;
use std::process::ExitCode;

use clap::Parser;
use serde_json::Value;
use sluice_manifests::Gating;

use super::{RenderArgs, objects, run, text, write};

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    render: RenderArgs,
}

fn args(words: &[&str]) -> RenderArgs {
    Line::try_parse_from([&["render"], words].concat()).unwrap().render
}

fn rendered(words: &[&str]) -> Vec<Value> {
    objects(&args(words)).unwrap()
}

/// What the parser of arguments or the validation says.
fn refused(words: &[&str]) -> String {
    match Line::try_parse_from([&["render"], words].concat()) {
        Err(error) => {
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        }
        Ok(line) => text(&line.render).unwrap_err().to_string(),
    }
}

fn file(content: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), content).unwrap();
    file
}

fn kinds(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(|object| object["kind"].as_str().unwrap()).collect()
}

#[test]
fn each_wrong_option_is_refused_with_its_field_and_a_remedy() {
    for (words, field, remedy) in [
        (&["--namespace=kube-system"][..], "namespace", "namespace of its own"),
        (&["--namespace=default"], "namespace", "namespace of its own"),
        (&["--namespace=openshift-quota"], "namespace", "namespace of its own"),
        (&["--namespace=Sluice"], "namespace", "namespace of its own"),
        (&["--image=registry.example.com/slu ice:1"], "image", "registry/path:tag"),
        (&["--image="], "image", "registry/path:tag"),
        (&["--image=registry.example.com/sluice@sha256:1234"], "image", "registry/path:tag"),
        (&["--image=registry.example.com/Sluice:1"], "image", "registry/path:tag"),
        (&["--kubernetes=1.12"], "--kubernetes", "1.31 to 1.37"),
        (&["--kubernetes=latest"], "--kubernetes", "1.31 to 1.37"),
        (&["--replicas=0"], "replicas", "from 1 to 9"),
        (&["--platform=openshit"], "--platform", "openshift"),
        (&["--port=443"], "port", "1024"),
        (&["--port=8444"], "port", "another one"),
        (&["--port=70000"], "--port", "65535"),
        (&["--host-network", "--port=10250"], "(--port): 10250 is the kubelet's", "leave host-network out"),
        (&["--host-network", "--platform=openshift"], "host-network", "leave it out"),
        (&["--node-selector=infra"], "--node-selector", "key=value"),
        (&["--node-selector=a b=c"], "node-selector", "key=value"),
        (&["--image-pull-secret=A_B"], "image-pull-secret", "name of a Secret"),
        (&["--tolerations=/nonexistent"], "tolerations", "a file that can be read"),
        (&["--only=everything"], "--only", "install"),
        (&["--monitorin"], "--monitorin", "unexpected"),
        (&["--cert-manager=Issuer/"], "certManager.issuerRef", "Issuer"),
        (&["--cert-manager=A_B"], "certManager.issuerRef", "Issuer"),
    ] {
        let said = refused(words);
        assert!(said.contains(field) && said.contains(remedy), "{words:?}: {said}");
    }
}

#[test]
fn the_kubelets_port_is_free_to_pods_with_their_own_network() {
    assert!(!rendered(&["--port=10250"]).is_empty());
    assert!(!rendered(&["--host-network"]).is_empty());
    assert_eq!(run(&args(&["--host-network", "--port=10250"])), ExitCode::from(2));
}

#[test]
fn a_typing_error_in_a_file_is_refused() {
    for (flag, content, named) in [
        ("tolerations", "- {key: infra, opreator: Exists}\n", "opreator"),
        ("tolerations", "- {key: infra, operator: Exist}\n", "Exists"),
        ("tolerations", "- {operator: Exists, value: a}\n", "leave the value out"),
        ("tolerations", "- {effect: NoSchedule}\n", "give it a key"),
        ("tolerations", "- {key: infra, effect: NoShedule}\n", "NoShedule"),
        ("tolerations", "- {key: infra, tolerationSeconds: 1}\n", "NoExecute"),
        ("tolerations", "key: infra\n", "a list of tolerations"),
        ("resources", "controler: {memory: 1Gi}\n", "controler"),
        ("resources", "controller: {memroy: 1Gi}\n", "memroy"),
        ("resources", "controller: {memory: 1GiB}\n", "1GiB"),
        ("resources", "controller: {cpu: 0}\n", "amount"),
    ] {
        let file = file(content);
        let said = refused(&[&format!("--{flag}={}", file.path().display())]);
        assert!(said.starts_with(flag) && said.contains(named), "{content}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn below_kubernetes_1_36_every_kind_is_known() {
    let known = [
        "ClusterRole",
        "ClusterRoleBinding",
        "ConfigMap",
        "CustomResourceDefinition",
        "Deployment",
        "FlowSchema",
        "Namespace",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "PriorityLevelConfiguration",
        "ResourceQuota",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
        "AAQ",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ];
    const ALL: &str = "--only=crds,install,operands,aaq-cr,admission,rancher";
    for version in ["1.31", "1.34", "1.35"] {
        let objects = rendered(&["--kubernetes", version, ALL]);
        for kind in kinds(&objects) {
            assert!(known.contains(&kind), "{version}: {kind}");
        }
    }
    assert!(kinds(&rendered(&[ALL])).contains(&"MutatingAdmissionPolicy"), "1.36 has them");
}

#[test]
fn what_gates_is_in_no_manifest() {
    for kind in kinds(&rendered(&[])) {
        assert!(!kind.contains("AdmissionPolicy") && !kind.contains("Webhook"), "{kind}");
    }
    assert_eq!(kinds(&rendered(&["--only=aaq-cr"])), ["AAQ"]);
    assert!(kinds(&rendered(&["--only=crds"])).iter().all(|kind| *kind == "CustomResourceDefinition"));
    assert!(!kinds(&rendered(&["--only=install"])).contains(&"CustomResourceDefinition"));
}

#[test]
fn a_version_does_not_tie_an_installation_to_it() {
    // The operator asks API servers itself: an installation goes on when its cluster is upgraded.
    assert_eq!(rendered(&["--kubernetes=1.34"]), rendered(&["--kubernetes=1.37"]));
    assert_eq!(args(&["--gating=webhook"]).install_options().unwrap().gating, Gating::Webhook);
}

#[test]
fn one_reference_fills_every_image() {
    let reference = format!("registry.example.com:5000/quota/sluice:1@sha256:{}", "a".repeat(64));
    let objects = rendered(&["--image", &reference, "--only=install,operands"]);
    let deployments: Vec<_> = objects.iter().filter(|object| object["kind"] == "Deployment").collect();
    assert_eq!(deployments.len(), 3);
    for deployment in deployments {
        for container in deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap() {
            assert_eq!(container["image"], reference.as_str());
        }
    }
}

#[test]
fn what_cannot_be_written_is_said() {
    struct Closed;
    impl io::Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let said = write(&mut Closed, "a").unwrap_err().to_string();
    assert!(said.starts_with("stdout: ") && said.contains("redirect"), "{said}");
}

#[test]
fn yaml_is_read_back_as_the_objects() {
    let words = ["--only=crds,install,operands,aaq-cr,admission,rancher"];
    let text = text(&args(&words)).unwrap();
    let read: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    assert_eq!(read, rendered(&words));
}

#[test]
fn flags_win_over_the_file_and_the_file_over_the_defaults() {
    let file = file("replicas: 3\nwebhook: {port: 9443}\nimage: {tag: b}\nexemptNamespaces: [infra]\n");
    let path = format!("--options={}", file.path().display());
    let options = args(&[&path, "--replicas=4", "--gating=webhook"]).install_options().unwrap();
    assert_eq!((options.replicas, options.webhook_port, options.gating), (4, 9443, Gating::Webhook));
    assert_eq!((options.image.as_str(), options.exempt_namespaces.len()), ("localhost/sluice:b", 1));
    assert_eq!(
        rendered(&[]),
        rendered(&["--replicas=2", "--port=8443", "--platform=generic", "--names=sluice"])
    );
}

#[test]
fn issuer_monitoring_and_platform_are_flags_too() {
    let options = |words: &[&str]| args(words).install_options().unwrap();
    let issuer = |words: &[&str]| options(words).cert_manager.map(|issuer| (issuer.kind, issuer.name));
    let named = |kind: &str| Some((kind.to_owned(), "pki".to_owned()));
    assert_eq!(issuer(&["--cert-manager=pki"]), named("Issuer"));
    assert_eq!(issuer(&["--cert-manager=ClusterIssuer/pki"]), named("ClusterIssuer"));
    assert_eq!(issuer(&[]), None);
    assert_eq!(options(&["--cert-manager=pki"]).cert_manager.unwrap().group, "cert-manager.io");

    let monitored = rendered(&["--monitoring"]);
    for kind in ["ServiceMonitor", "PrometheusRule"] {
        assert!(kinds(&monitored).contains(&kind) && !kinds(&rendered(&[])).contains(&kind), "{kind}");
    }

    assert_eq!(options(&["--platform=aks"]).balancer_proofs, 20);
    assert_eq!(options(&["--platform=aks", "--balancer-proofs=5"]).balancer_proofs, 5);
    let same = [rendered(&["--platform=aks"]), rendered(&["--balancer-proofs=20"])];
    assert_eq!(same[0], same[1], "all else is as anywhere");
}

#[test]
fn a_file_of_options_that_cannot_be_is_refused_in_one_sentence() {
    for (content, field, remedy) in [
        ("replica: 3\n", "replica", "correct the file"),
        ("replicas: 0\n", "replicas", "from 1 to 9"),
        ("webhook: {port: 443}\n", "webhook.port", "1024"),
        ("image: {repository: 'slu ice'}\n", "image", "registry/path:tag"),
        ("certManager: {issuerRef: {name: A_B}}\n", "certManager.issuerRef", "Issuer"),
    ] {
        let file = file(content);
        let said = refused(&[&format!("--options={}", file.path().display())]);
        assert!(said.contains(field) && said.contains(remedy), "{content}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
