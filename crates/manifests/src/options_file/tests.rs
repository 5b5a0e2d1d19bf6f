use std::collections::BTreeMap;

use super::*;
use crate::options::{IssuerRef, PullPolicy};
use crate::pod_options::DnsPolicy;
use crate::resources::Amounts;

fn read(text: &str) -> InstallOptions {
    OptionsFile::parse(text).unwrap().over(InstallOptions::default()).unwrap()
}

fn exact<T: serde::de::DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).unwrap()
}

#[test]
fn a_field_that_kubernetes_does_not_know_is_refused() {
    for (text, field) in [
        ("affinity: {nodeAfinity: {}}", "nodeAfinity"),
        (
            "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKye: a, topologyKey: b}]}}",
            "topologyKye",
        ),
        (
            "topologySpreadConstraints: [{topologyKey: a, maxSkew: 1, whenUnsatisfiable: b, minDomain: 2}]",
            "minDomain",
        ),
        ("extraEnv: {webhook: [{name: A, vlaue: b}]}", "vlaue"),
        ("extraEnv: {all: []}", "all"),
        ("extraArgs: {controller: --verbose}", "extraArgs"),
        ("networkPolicy: {metricsFrom: [{podSelector: {matchLabel: {}}}]}", "matchLabel"),
        ("webhook: {dnsPolicy: None}", "webhook"),
    ] {
        let said = OptionsFile::parse(text).unwrap_err().to_string();
        assert!(said.contains(field), "{text}: {said}");
    }
    OptionsFile::parse("affinity: {nodeAffinity: null}\n").unwrap();
}

/// Each option differs from its default.
fn other() -> InstallOptions {
    InstallOptions {
        platform: Platform::Openshift,
        pull_policy: PullPolicy::Always,
        image_pull_secrets: vec!["mirror".to_owned()],
        tolerations: vec![Toleration { operator: Some("Exists".to_owned()), ..Toleration::default() }],
        node_selector: BTreeMap::from([("zone".to_owned(), "on".to_owned())]),
        resources: Resources {
            webhook: Amounts { cpu: "1".to_owned(), memory: "1Gi".to_owned() },
            ..Resources::default()
        },
        pods: PodOptions {
            labels: BTreeMap::from([("team".to_owned(), "platform".to_owned())]),
            annotations: BTreeMap::from([("note".to_owned(), "none".to_owned())]),
            affinity: exact(r#"{"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}"#),
            topology_spread: vec![exact(
                r#"{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}"#,
            )],
            extra_args: PerComponent { controller: vec!["--x".to_owned()], ..PerComponent::default() },
            extra_env: PerComponent {
                webhook: vec![exact(r#"{"name": "A", "value": "b"}"#)],
                ..PerComponent::default()
            },
            webhook_dns_policy: Some(DnsPolicy::Default),
        },
        common_labels: BTreeMap::from([("team".to_owned(), "platform".to_owned())]),
        api_server_cidrs: vec!["192.0.2.0/24".to_owned()],
        metrics_from: vec![exact(r#"{"podSelector": {}}"#)],
        webhook_port: 9443,
        host_network: true,
        balancer_proofs: 12,
        replicas: 3,
        webhook_client: WebhookClient::Url("https://192.0.2.1:8443".to_owned()),
        api_server_ports: vec![443],
        exempt_namespaces: vec!["kube-*".parse().unwrap(), "infra".parse().unwrap()],
        gating: Gating::Webhook,
        platform_accounts: "a:b,c:d".parse().unwrap(),
        further_gate_removers: vec!["system:admin".to_owned()],
        cert_manager: Some(IssuerRef {
            name: "platform".to_owned(),
            kind: "ClusterIssuer".to_owned(),
            group: "cert-manager.io".to_owned(),
        }),
        monitoring: Monitoring {
            service_monitor: true,
            rules: true,
            labels: BTreeMap::from([("release".to_owned(), "prometheus".to_owned())]),
        },
        naming: Naming::Aaq,
        allow_downgrade: true,
        priority_class: None,
        namespace_use: NamespaceUse::Shared,
        ..InstallOptions::default()
    }
}

#[test]
fn what_differs_from_the_default_is_written_and_read_back() {
    assert_eq!(OptionsFile::of(&InstallOptions::default()).text(), "{}\n");
    let text = OptionsFile::of(&other()).text();
    assert_eq!(read(&text), other(), "{text}");
    for (none, field) in [
        (InstallOptions { exempt_namespaces: vec![], ..InstallOptions::default() }, "exemptNamespaces"),
        (
            InstallOptions { platform_accounts: "".parse().unwrap(), ..InstallOptions::default() },
            "platformAccounts",
        ),
    ] {
        let text = OptionsFile::of(&none).text();
        assert!(text.contains(field) && text.lines().count() == 1, "{text}");
        assert_eq!(read(&text), none);
    }
}

#[test]
fn what_a_file_does_not_say_stays() {
    for text in ["", "# nothing\n", "{}", "replicas: null\nwebhook: {}\nexemptNamespaces:\n"] {
        let same = OptionsFile::parse(text).unwrap().over(other()).unwrap();
        assert_eq!(same, other(), "{text:?}");
    }
    let edited = OptionsFile::parse("webhook: {port: 8443}\nsharedNamespace: false\n").unwrap();
    let edited = edited.over(other()).unwrap();
    assert_eq!((edited.webhook_port, edited.host_network), (8443, true));
    let issuer = read("certManager: {issuerRef: {name: own}}").cert_manager.unwrap();
    assert_eq!((issuer.kind.as_str(), issuer.group.as_str()), ("Issuer", "cert-manager.io"));
    assert_eq!(read("resources: {operator: {cpu: 1}}").resources.operator.memory, "64Mi");
}

#[test]
fn an_image_is_put_together() {
    let version = env!("CARGO_PKG_VERSION");
    let digest = format!("sha256:{}", "a".repeat(64));
    for (said, reference) in [
        ("tag: b".to_owned(), "localhost/sluice:b".to_owned()),
        ("registry: r:5000, repository: a/b".to_owned(), format!("r:5000/a/b:{version}")),
        ("registry: '', repository: a/b, tag: ''".to_owned(), format!("a/b:{version}")),
        (format!("digest: '{digest}'"), format!("localhost/sluice@{digest}")),
        (format!("tag: c, digest: '{digest}'"), format!("localhost/sluice:c@{digest}")),
        ("pullPolicy: Never".to_owned(), format!("localhost/sluice:{version}")),
    ] {
        assert_eq!(read(&format!("image: {{{said}}}")).image, reference, "{said}");
    }
}

/// Each of these has the sentence of the field, and one of what to do.
#[test]
fn what_cannot_be_is_refused_with_its_field_and_a_remedy() {
    for (text, field, remedy) in [
        ("replica: 3", "replica", "correct the file"),
        ("replicas: many", "replicas", "correct the file"),
        (
            "image: {tag: 1.10}\nnodeSelector: {a: 1}\nreplicas: many",
            "replicas: error: line 3",
            "correct the file",
        ),
        ("allowDowngrade: perhaps", "allowDowngrade", "correct the file"),
        ("replicas: 0", "replicas", "from 1 to 9"),
        ("image: {tga: a}", "tga", "correct the file"),
        ("image: {repository: 'slu ice'}", "image", "registry/path:tag"),
        ("image: {digest: 'sha256:1'}", "image", "registry/path:tag"),
        ("imagePullSecrets: [{name: A_B}]", "imagePullSecrets", "name of a Secret"),
        ("imagePullSecrets: [mirror]", "imagePullSecrets", "correct the file"),
        ("platform: openshit", "openshit", "correct the file"),
        ("webhook: {port: 443}", "webhook.port", "1024"),
        ("webhook: {port: 8444}", "webhook.port", "another one"),
        ("webhook: {hostNetwork: true, port: 10250}", "webhook.port", "another one"),
        ("webhook: {hostNetwork: true}\nplatform: openshift", "webhook.hostNetwork", "leave it out"),
        ("webhook: {url: 'http://a'}", "webhook.url", "https://"),
        ("tolerations: [{key: a, opreator: Exists}]", "opreator", "correct the file"),
        ("tolerations: [{key: a, operator: Exist}]", "tolerations", "Exists"),
        ("nodeSelector: {a b: c}", "nodeSelector", "key=value"),
        ("resources: {controler: {memory: 1Gi}}", "controler", "correct the file"),
        ("resources: {controller: {memory: 1GiB}}", "resources", "256Mi"),
        ("priorityClassName: High Priority", "priorityClassName", "PriorityClass"),
        ("exemptNamespaces: ['*-system']", "exemptNamespaces", "correct it"),
        ("platformAccounts: [cdi-sa]", "platformAccounts", "correct it"),
        ("platformAccounts: ['kubevirt:kubevirt-controller']", "platformAccounts", "leave it out"),
        ("allowedGateRemovers: ['']", "allowedGateRemovers", "leave it out"),
        ("gating: both", "both", "correct the file"),
        ("networkPolicy: {apiServerPorts: []}", "networkPolicy.apiServerPorts", "6443"),
        ("certManager: {issuerRef: {kind: Issuer}}", "name", "correct the file"),
        ("certManager: {issuerRef: {name: ''}}", "certManager.issuerRef", "ClusterIssuer"),
        ("monitoring: {labels: {a b: c}}", "monitoring.labels", "Prometheus"),
        ("monitoring: {alerts: true}", "alerts", "correct the file"),
        ("names: mtq", "mtq", "correct the file"),
        ("- replicas", "", "correct the file"),
    ] {
        let said = match OptionsFile::parse(text) {
            Err(error) => error.to_string(),
            Ok(file) => {
                let options = file.over(InstallOptions::default());
                options.and_then(|options| options.validate()).expect_err(text).to_string()
            }
        };
        assert!(said.contains(field) && said.contains(remedy), "{text}: {said}");
        assert_eq!(said.lines().count(), 1, "{text}: {said}");
    }
}

#[test]
fn the_schema_is_closed_and_knows_every_option() {
    let schema = OptionsFile::schema();
    let written = serde_json::to_value(OptionsFile::of(&other())).unwrap();
    fn check(schema: &Value, written: &Value, at: &str) {
        let (Some(fields), Some(written)) = (schema.get("properties"), written.as_object()) else { return };
        assert_eq!(schema["additionalProperties"], false, "{at}");
        for (key, value) in written {
            assert!(fields.get(key).is_some(), "{at}.{key} is not in the schema");
            check(&fields[key], value, &format!("{at}.{key}"));
        }
    }
    check(&schema, &written, "");
    assert!(!schema.to_string().contains("$ref"), "{schema:#}");
}
