//! What pods ask for is what clusters permit: Pod Security `restricted`, and OpenShift's constraints `restricted-v2`.
#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a test stops at what is not as it must be")]

mod common;

use common::of_kind;
use serde_json::Value;
use sluice_api::names;
use sluice_manifests::{InstallOptions, NamespaceUse, Platform, install_objects, render};

/// The users and groups of a namespace on OpenShift (`openshift.io/sa.scc.uid-range`).
const RANGE: std::ops::Range<u64> = 1_000_700_000..1_000_710_000;

/// What `restricted-v2` says against a pod:
/// `bindata/bootkube/scc-manifests/0000_20_kube-apiserver-operator_00_scc-restricted-v2.yaml` of
/// cluster-kube-apiserver-operator, as `apiserver-library-go/pkg/securitycontextconstraints/sccmatching` judges it.
fn refused_by_restricted_v2(pod: &Value) -> Vec<String> {
    let mut refused = Vec::new();
    let mut refuse = |what: &str| refused.push(what.to_owned());
    let context = &pod["securityContext"];
    let outside = |id: &Value| id.as_u64().is_some_and(|id| !RANGE.contains(&id));
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        if pod[field] == true {
            refuse(field);
        }
    }
    if outside(&context["runAsUser"]) || outside(&context["fsGroup"]) {
        refuse("ids of the pod");
    }
    let seccomp = &context["seccompProfile"]["type"];
    if !seccomp.is_null() && seccomp != "RuntimeDefault" {
        refuse("seccompProfile");
    }
    let volumes = [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ];
    for volume in pod["volumes"].as_array().into_iter().flatten() {
        let kinds = volume.as_object().expect("a volume").keys().filter(|key| *key != "name");
        if !kinds.into_iter().all(|kind| volumes.contains(&kind.as_str())) {
            refuse("volumes");
        }
    }
    for container in pod["containers"].as_array().expect("containers") {
        let context = &container["securityContext"];
        if outside(&context["runAsUser"]) {
            refuse("runAsUser of a container");
        }
        if context["privileged"] == true || context["allowPrivilegeEscalation"] != false {
            refuse("privileges");
        }
        let added = context["capabilities"]["add"].as_array().into_iter().flatten();
        if added.into_iter().any(|capability| capability != "NET_BIND_SERVICE") {
            refuse("capabilities");
        }
        let ports = container["ports"].as_array().into_iter().flatten();
        if ports.into_iter().any(|port| port["hostPort"].as_u64().is_some_and(|port| port > 0)) {
            refuse("hostPort");
        }
    }
    refused
}

/// What Pod Security `restricted` asks beyond that (`k8s.io/pod-security-admission/policy`).
fn refused_by_restricted(pod: &Value) -> Vec<&'static str> {
    let mut refused = Vec::new();
    let context = &pod["securityContext"];
    if context["runAsNonRoot"] != true || context["runAsUser"] == 0 {
        refused.push("runAsNonRoot");
    }
    if context["seccompProfile"]["type"] != "RuntimeDefault" {
        refused.push("seccompProfile");
    }
    if pod["hostNetwork"] == true {
        refused.push("hostNetwork");
    }
    for container in pod["containers"].as_array().expect("containers") {
        let context = &container["securityContext"];
        let drops = context["capabilities"]["drop"].as_array().into_iter().flatten();
        if context["allowPrivilegeEscalation"] != false || !drops.into_iter().any(|name| name == "ALL") {
            refused.push("privileges");
        }
    }
    refused
}

fn pods(options: &InstallOptions) -> Vec<Value> {
    let objects = render(options);
    of_kind(&objects, "Deployment").into_iter().map(|it| it["spec"]["template"]["spec"].clone()).collect()
}

#[test]
fn openshift_admits_the_pods_that_are_rendered_for_it() {
    let generic = InstallOptions::default();
    for pod in pods(&generic) {
        assert_eq!(refused_by_restricted_v2(&pod), ["ids of the pod"], "the stand-in sees fixed ids");
    }
    let options = InstallOptions { platform: Platform::Openshift, ..generic };
    for pod in pods(&options) {
        assert_eq!(refused_by_restricted_v2(&pod), Vec::<String>::new());
        for id in ["runAsUser", "runAsGroup", "fsGroup", "supplementalGroups"] {
            assert!(pod["securityContext"].get(id).is_none(), "{id}");
        }
    }
}

#[test]
fn every_platform_keeps_to_the_restricted_level_that_the_namespace_enforces() {
    for platform in [Platform::Generic, Platform::Openshift] {
        let options = InstallOptions { platform, ..InstallOptions::default() };
        for pod in pods(&options) {
            assert_eq!(refused_by_restricted(&pod), Vec::<&str>::new(), "{platform:?}");
        }
        let objects = install_objects(&options);
        let labels = &of_kind(&objects, "Namespace")[0]["metadata"]["labels"];
        assert_eq!(labels["pod-security.kubernetes.io/enforce"], "restricted");
    }
}

/// With the network of its node the webhook does not fit that level, replicas cannot share a node's port, and no label tells
/// the webhook's requests from those of others.
#[test]
fn with_the_network_of_nodes_all_that_depends_on_it_follows() {
    let options = InstallOptions { host_network: true, webhook_port: 9443, ..InstallOptions::default() };
    let objects = render(&options);
    let labels = &of_kind(&objects, "Namespace")[0]["metadata"]["labels"];
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "privileged");
    for deployment in of_kind(&objects, "Deployment") {
        let is_webhook = deployment["metadata"]["name"] == names::WEBHOOK;
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(pod["hostNetwork"] == true, is_webhook);
        assert_eq!(pod["dnsPolicy"] == "ClusterFirstWithHostNet", is_webhook);
        let rolled = &deployment["spec"]["strategy"]["rollingUpdate"];
        assert_eq!(rolled["maxSurge"], if is_webhook { 0 } else { 1 });
        let text = pod.to_string();
        assert_eq!(
            text.contains("--listen=[::]:9443") && text.contains("\"containerPort\":9443"),
            is_webhook
        );
        assert!(!text.contains("8443"));
    }
    let policies = of_kind(&objects, "NetworkPolicy");
    let named =
        |name: &str| &policies.iter().find(|it| it["metadata"]["name"] == name).expect("a policy")["spec"];
    assert_eq!(named(names::WEBHOOK)["ingress"][1]["ports"][0]["port"], 9443);
    assert!(named(names::CONTROLLER)["ingress"][1].get("from").is_none());
}

#[test]
fn a_quota_of_critical_pods_is_only_in_a_namespace_of_our_own() {
    for (namespace_use, namespaces, quotas) in
        [(NamespaceUse::Created, 1, 1), (NamespaceUse::Own, 0, 1), (NamespaceUse::Shared, 0, 0)]
    {
        let objects = install_objects(&InstallOptions { namespace_use, ..InstallOptions::default() });
        let quota = of_kind(&objects, "ResourceQuota").into_iter();
        let quota = quota.filter(|it| it["metadata"]["name"] == "sluice-critical-pods");
        assert_eq!((of_kind(&objects, "Namespace").len(), quota.count()), (namespaces, quotas));
    }
}

#[test]
fn roles_of_the_cluster_may_take_the_place_of_those_in_other_namespaces() {
    let options = InstallOptions { reads_leases_everywhere: true, ..InstallOptions::default() };
    for object in render(&options) {
        let namespace = object["metadata"]["namespace"].as_str();
        assert!(namespace.is_none_or(|namespace| namespace == options.namespace), "{object}");
    }
}
