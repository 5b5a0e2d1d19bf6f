//! What options add to a manifest, and nothing without them.
#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a test stops at what is not as it must be")]

mod common;

use std::collections::BTreeMap;

use common::of_kind;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_manifests::{
    AskedOfPods, InstallOptions, IssuerRef, Monitoring, Naming, OptionsFile, account_looked_for, certificate,
    install_objects, operand_objects,
};

fn issuer() -> IssuerRef {
    IssuerRef {
        name: "platform".to_owned(),
        kind: "ClusterIssuer".to_owned(),
        group: "cert-manager.io".to_owned(),
    }
}

fn named<'o>(objects: &'o [Value], kind: &str, name: &str) -> Vec<&'o Value> {
    of_kind(objects, kind).into_iter().filter(|object| object["metadata"]["name"] == name).collect()
}

#[test]
fn kinds_of_others_come_with_their_option_alone() {
    let plain = install_objects(&InstallOptions::default());
    for object in &plain {
        let version = object["apiVersion"].as_str().unwrap();
        assert!(
            !version.contains("monitoring.coreos.com") && !version.contains("cert-manager.io"),
            "{object}"
        );
        assert!(!object.to_string().contains("cert-manager"), "no rights either: {object}");
    }
    for (monitoring, kinds) in [
        (Monitoring { service_monitor: true, ..Monitoring::default() }, &["ServiceMonitor"][..]),
        (Monitoring { rules: true, ..Monitoring::default() }, &["PrometheusRule"]),
    ] {
        let objects = install_objects(&InstallOptions { monitoring, ..InstallOptions::default() });
        let of_others = objects.iter().filter(|object| object["apiVersion"] == "monitoring.coreos.com/v1");
        assert_eq!(of_others.map(|object| object["kind"].as_str().unwrap()).collect::<Vec<_>>(), kinds);
    }
}

#[test]
fn a_service_monitor_finds_the_service_its_token_and_a_way_in() {
    let labels = BTreeMap::from([("release".to_owned(), "prometheus".to_owned())]);
    let monitoring = Monitoring { service_monitor: true, rules: true, labels };
    let options = InstallOptions { monitoring, ..InstallOptions::default() };
    let (objects, operands) = (install_objects(&options), operand_objects(&options, &AskedOfPods::default()));
    let monitor = of_kind(&objects, "ServiceMonitor")[0];
    let service = named(&operands, "Service", names::METRICS_SERVICE)[0];
    for (key, value) in monitor["spec"]["selector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(&service["metadata"]["labels"][key], value);
    }
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert_eq!(endpoint["port"], service["spec"]["ports"][0]["name"]);
    assert_eq!(endpoint["tlsConfig"]["serverName"], service["metadata"]["name"]);
    let token = endpoint["authorization"]["credentials"]["name"].as_str().unwrap();
    let secret = named(&objects, "Secret", token)[0];
    let account = &secret["metadata"]["annotations"]["kubernetes.io/service-account.name"];
    assert_eq!(named(&objects, "ServiceAccount", account.as_str().unwrap()).len(), 1);
    let bound = named(&objects, "ClusterRoleBinding", token)[0];
    assert_eq!(bound["roleRef"]["name"], names::METRICS_READER);
    assert_eq!(bound["subjects"].as_array().unwrap().len(), 1);
    for kind in ["ServiceMonitor", "PrometheusRule"] {
        assert_eq!(of_kind(&objects, kind)[0]["metadata"]["labels"]["release"], "prometheus");
    }
    let way_in = &named(&objects, "NetworkPolicy", names::METRICS_SERVICE)[0]["spec"];
    assert_eq!(way_in["ingress"][0]["ports"][0]["port"], names::METRICS_PORT);
    assert!(way_in["ingress"][0].get("from").is_none(), "{way_in}");
    assert_eq!(way_in["podSelector"]["matchLabels"], service["spec"]["selector"]);
}

#[test]
fn an_issuer_gives_the_operator_rights_on_one_certificate_and_its_secret() {
    let options = InstallOptions { cert_manager: Some(issuer()), ..InstallOptions::default() };
    let objects = install_objects(&options);
    let role = named(&objects, "Role", names::GIVEN_SECRET)[0];
    let bound = named(&objects, "RoleBinding", names::GIVEN_SECRET)[0];
    assert_eq!(bound["subjects"][0]["name"], names::OPERATOR);
    for rule in role["rules"].as_array().unwrap() {
        let is_creation = rule["verbs"] == json!(["create"]);
        assert!(is_creation || rule["resourceNames"] == json!([names::GIVEN_SECRET]), "{rule}");
        assert!(!is_creation || rule["apiGroups"] == json!(["cert-manager.io"]), "{rule}");
    }
    let asked = certificate("sluice-system", &issuer(), &["sluice-webhook.sluice-system.svc".to_owned()]);
    assert_eq!(asked["spec"]["issuerRef"], json!(issuer()));
    assert_eq!(asked["spec"]["secretName"], names::GIVEN_SECRET);
    assert!(asked["metadata"].get("annotations").is_none(), "cert-manager's injector has no part in it");
}

#[test]
fn the_operator_reads_what_differs_from_the_default() {
    let options = InstallOptions { replicas: 3, balancer_proofs: 20, ..InstallOptions::default() };
    let objects = install_objects(&options);
    let map = named(&objects, "ConfigMap", names::OPERATOR)[0];
    let text = map["data"][names::OPTIONS_KEY].as_str().unwrap();
    assert_eq!(text, "replicas: 3\nbalancerProofs: 20\n");
    let read = OptionsFile::parse(text).unwrap().over(InstallOptions::default()).unwrap();
    assert_eq!(read, options);
    let deployment = named(&objects, "Deployment", names::OPERATOR)[0];
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let argument = format!("--options={}", names::OPTIONS_PATH);
    assert!(container["args"].as_array().unwrap().contains(&json!(argument)));
    let mount = container["volumeMounts"].as_array().unwrap().iter();
    let mount = mount.clone().find(|mount| mount["mountPath"] == names::OPTIONS_PATH).expect("a mount");
    let volumes = pod["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).expect("a volume");
    assert_eq!(volume["configMap"]["name"], map["metadata"]["name"]);
}

/// Upstream's suite looks for exactly these (`tests/aaq_operator_test.go`), and its usernames get no right.
#[test]
fn with_the_names_of_upstream_its_suite_finds_the_parts_and_its_accounts_may_nothing() {
    let options =
        InstallOptions { naming: Naming::Aaq, namespace: "aaq".to_owned(), ..InstallOptions::default() };
    let (objects, operands) = (install_objects(&options), operand_objects(&options, &AskedOfPods::default()));
    let names = |objects: &[Value], kind: &str| -> Vec<String> {
        of_kind(objects, kind).iter().map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&objects, "Deployment"), ["aaq-operator"]);
    assert_eq!(names(&operands, "Deployment"), ["aaq-controller", "aaq-server"]);
    let managed =
        |object: &&Value| object["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "aaq-operator";
    assert_eq!(objects.iter().chain(&operands).filter(managed).count(), 2, "no more than these two");
    for deployment in of_kind(&operands, "Deployment") {
        let spec = &deployment["spec"];
        let pod = &spec["template"]["metadata"]["labels"];
        assert_eq!(pod["aaq.kubevirt.io"], deployment["metadata"]["name"]);
        assert_eq!(pod["app.kubernetes.io/component"], "multi-tenant");
        for (key, value) in spec["selector"]["matchLabels"].as_object().unwrap() {
            assert_eq!(&pod[key], value);
        }
        assert!(spec["template"]["spec"].to_string().contains("--tls-secret=aaq-server-cert"));
        let account = spec["template"]["spec"]["serviceAccountName"].as_str().unwrap();
        assert!(account.starts_with("sluice-"), "{account}");
    }
    let service = named(&operands, "Service", "aaq-server")[0];
    assert_eq!(service["spec"]["selector"]["aaq.kubevirt.io"], "aaq-server");
    assert_eq!(service["spec"]["ports"][0]["port"], 443);
    let account = named(&objects, "ServiceAccount", "aaq-controller")[0];
    assert_eq!(account["metadata"]["labels"]["aaq.kubevirt.io"], "");
    assert_eq!(Some(account), account_looked_for(&options).as_ref());
    let rules = &named(&objects, "Role", "sluice-names")[0]["rules"];
    let of_accounts =
        rules.as_array().unwrap().iter().filter(|rule| rule["resources"][0] == "serviceaccounts");
    let verbs = json!(["get", "list", "watch", "patch"]);
    let of_accounts: Vec<_> = of_accounts.map(|rule| (&rule["resourceNames"], &rule["verbs"])).collect();
    assert_eq!(of_accounts, [(&json!(["aaq-controller"]), &verbs)]);
    for object in objects.iter().chain(&operands) {
        for subject in object["subjects"].as_array().into_iter().flatten() {
            assert!(subject["name"].as_str().unwrap().starts_with("sluice-"), "{object}");
        }
    }
    let calls = sluice_manifests::mutating(&options);
    assert_eq!(calls["webhooks"][0]["clientConfig"]["service"]["name"], "aaq-server");
    let plain = InstallOptions::default();
    let plain = [install_objects(&plain), operand_objects(&plain, &AskedOfPods::default())].concat();
    assert!(plain.iter().all(|object| !object["metadata"]["name"].as_str().unwrap().starts_with("aaq-")));
}

#[test]
fn what_pods_get_besides_is_in_each_deployment_and_leaves_selectors_alone() {
    let text = "podLabels: {team: platform}\npodAnnotations: {note: a}\n\
                affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}}\n\
                topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]\n\
                extraArgs: {controller: [--c], webhook: [--w], operator: [--o]}\n\
                extraEnv: {controller: [{name: C, value: '1'}]}\nwebhook: {dnsPolicy: Default}\n";
    let options = OptionsFile::parse(text).unwrap().over(InstallOptions::default()).unwrap();
    options.validate().unwrap();
    let all = [install_objects(&options), operand_objects(&options, &AskedOfPods::default())].concat();
    let plain = InstallOptions::default();
    let plain = [install_objects(&plain), operand_objects(&plain, &AskedOfPods::default())].concat();
    for (name, argument) in [(names::CONTROLLER, "--c"), (names::WEBHOOK, "--w"), (names::OPERATOR, "--o")] {
        let deployment = named(&all, "Deployment", name)[0];
        assert_eq!(deployment["spec"]["selector"], named(&plain, "Deployment", name)[0]["spec"]["selector"]);
        let template = &deployment["spec"]["template"];
        assert_eq!(template["metadata"]["labels"]["team"], "platform");
        assert_eq!(template["metadata"]["annotations"], json!({ "note": "a" }));
        let pod = &template["spec"];
        assert!(pod["affinity"]["nodeAffinity"].is_object(), "{name}");
        let spread = &pod["topologySpreadConstraints"][0];
        assert_eq!(
            (&spread["topologyKey"], &spread["labelSelector"]),
            (&json!("zone"), &deployment["spec"]["selector"])
        );
        let container = &pod["containers"][0];
        assert_eq!(container["args"].as_array().unwrap().last().unwrap(), argument);
        let last = container["env"].as_array().unwrap().last().unwrap();
        assert_eq!(last["name"] == "C", name == names::CONTROLLER);
        assert_eq!(pod["dnsPolicy"] == "Default", name == names::WEBHOOK);
    }
}

#[test]
fn common_labels_are_on_all_objects_but_what_gates_and_sluices_own_win() {
    let text = "commonLabels: {team: platform, release: all}\n\
                monitoring: {serviceMonitor: true, rules: true, labels: {release: prometheus}}\n\
                certManager: {issuerRef: {name: a}}\ninstallation: cr\n";
    let options = OptionsFile::parse(text).unwrap().over(InstallOptions::default()).unwrap();
    let all = [install_objects(&options), operand_objects(&options, &AskedOfPods::default())].concat();
    for object in all {
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels["team"], "platform", "{object}");
        let is_selected = object["apiVersion"] == "monitoring.coreos.com/v1";
        assert_eq!(labels["release"], if is_selected { "prometheus" } else { "all" }, "{object}");
        assert!(object["spec"]["selector"]["matchLabels"]["team"].is_null(), "{object}");
    }
}

#[test]
fn who_connects_to_whom_may_be_said_more_narrowly() {
    let text =
        "networkPolicy: {apiServerCIDRs: ['192.0.2.0/24', 'fd00::/64'], metricsFrom: [{podSelector: {}}]}";
    let options = OptionsFile::parse(text).unwrap().over(InstallOptions::default()).unwrap();
    options.validate().unwrap();
    let all = [install_objects(&options), operand_objects(&options, &AskedOfPods::default())].concat();
    for policy in of_kind(&all, "NetworkPolicy") {
        let [servers, dns] = [0, 1].map(|at| &policy["spec"]["egress"][at]);
        assert_eq!(servers["to"][1]["ipBlock"]["cidr"], "fd00::/64");
        assert!(dns["to"].is_null(), "DNS is anywhere: {dns}");
        assert_eq!(policy["spec"]["ingress"][0]["from"], json!([{ "podSelector": {} }]));
    }
}

#[test]
fn options_of_pods_that_cannot_be_are_named() {
    for (text, said) in [
        ("podLabels: {app.kubernetes.io/name: other}", "podLabels: app.kubernetes.io/name is Sluice's own"),
        ("commonLabels: {'a b': c}", "commonLabels: \"a b\": \"c\" is no label"),
        ("podAnnotations: {'/a': b}", "podAnnotations: \"/a\" is no key of an annotation"),
        ("networkPolicy: {apiServerCIDRs: [10.0.0.0/33]}", "networkPolicy.apiServerCIDRs: \"10.0.0.0/33\""),
        ("networkPolicy: {apiServerCIDRs: ['fd00::/129']}", "networkPolicy.apiServerCIDRs"),
        ("networkPolicy: {apiServerCIDRs: [10.0.0.1]}", "networkPolicy.apiServerCIDRs"),
    ] {
        let options = OptionsFile::parse(text).unwrap().over(InstallOptions::default()).unwrap();
        let refused = options.validate().unwrap_err().to_string();
        assert!(refused.starts_with(said), "{text}: {refused}");
    }
}
