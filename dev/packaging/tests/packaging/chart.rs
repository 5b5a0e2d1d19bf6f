use std::path::Path;

use serde_json::{Value, json};
use sluice_manifests::{crds, install_objects, rancher_objects};
use sluice_packaging::{chart, read};

use crate::values::Values;
use crate::{assert_same, deploy, packaging, write};

const NAMESPACE: &str = "quota-system";

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// What Helm renders of the chart in this folder, with these values if any.
fn template(deploy: &Path, kubernetes: &str, values: Option<&str>) -> Result<String, String> {
    let (chart, given) = (deploy.join("helm/sluice"), deploy.join("values.yaml"));
    write(&given, values.unwrap_or("{}"));
    packaging(&["helm-template", text(&chart), "sluice", NAMESPACE, kubernetes, text(&given)])
}

fn expected(values: &Values) -> Vec<Value> {
    let options = values.options(NAMESPACE);
    let mut objects = install_objects(&options);
    if values.rancher {
        objects.extend(rancher_objects(&options));
    }
    if values.crds {
        objects.extend(crds().into_iter().map(|mut crd| {
            crd["metadata"]["annotations"] = json!({ "helm.sh/resource-policy": "keep" });
            crd
        }));
    }
    objects
}

#[test]
fn each_set_of_values_renders_what_the_options_render() {
    let deploy = deploy();
    let cases = chart::cases();
    assert!(cases.len() >= 12);
    for (path, values) in cases {
        let rendered = template(deploy.path(), "1.36", Some(values)).unwrap();
        let values = Values::parse(values);
        assert_same(read(&rendered).unwrap(), expected(&values), text(&path));
    }
}

#[test]
fn what_is_rendered_is_the_same_for_all_versions_that_are_supported() {
    let deploy = deploy();
    let newest = template(deploy.path(), "1.36", None).unwrap();
    for version in ["1.31", "1.34", "v1.35.2-gke.100"] {
        assert_eq!(template(deploy.path(), version, None).unwrap(), newest, "{version}");
    }
    let old = template(deploy.path(), "1.30", None).unwrap_err();
    assert!(old.contains("kubeVersion") && old.contains("1.31"), "{old}");
}

#[test]
fn values_yaml_says_the_defaults() {
    let deploy = deploy();
    let values = std::fs::read_to_string(deploy.path().join("helm/sluice/values.yaml")).unwrap();
    assert_same(expected(&Values::parse(&values)), expected(&Values::parse("{}")), "values.yaml");
}

#[test]
fn a_wrong_value_is_refused() {
    let deploy = deploy();
    for (values, named) in [
        ("replica: 3", "replica"),
        ("replicas: 0", "replicas"),
        ("image: {tga: a}", "tga"),
        ("image: {repository: 'slu ice'}", "repository"),
        ("image: {digest: 'sha256:1'}", "digest"),
        ("platform: openshit", "platform"),
        ("webhook: {port: 443}", "port"),
        ("webhook: {port: 8444}", "port"),
        ("tolerations: [{key: a, opreator: Exists}]", "opreator"),
        ("resources: {controller: {memory: 1GiB}}", "memory"),
        ("resources: {controler: {memory: 1Gi}}", "controler"),
        ("exemptNamespaces: ['*-system']", "exemptNamespaces"),
        ("gating: both", "gating"),
        ("uninstallHook: true", "uninstallHook"),
        ("names: aaq", "names"),
        ("certManager: {issuerRef: {kind: Issuer}}", "name"),
        ("certManager: {issuer: own}", "issuer"),
        ("monitoring: {alerts: true}", "alerts"),
        ("affinity: []", "affinity"),
        ("podLabels: {app.kubernetes.io/name: other}", "app.kubernetes.io/name"),
        ("commonLabels: {a: 1}", "commonLabels"),
        ("extraArgs: {all: [a]}", "all"),
        ("networkPolicy: {apiServerCIDRs: [everything]}", "apiServerCIDRs"),
        ("webhook: {dnsPolicy: None}", "dnsPolicy"),
        ("extraObjects: {a: b}", "extraObjects"),
        ("platform: openshift\nwebhook: {hostNetwork: true}", "webhook.hostNetwork"),
        ("webhook: {hostNetwork: true, port: 10250}", "webhook.port: 10250 is the kubelet's"),
    ] {
        let said = template(deploy.path(), "1.36", Some(values)).unwrap_err();
        assert!(said.contains(named), "{values}: {said}");
    }
    let chart = deploy.path().join("helm/sluice");
    for namespace in ["kube-system", "default"] {
        let said = packaging(&["helm-template", text(&chart), "sluice", namespace, "1.36"]).unwrap_err();
        assert!(said.contains(namespace), "{said}");
    }
}

#[test]
fn dashboards_and_objects_of_a_user_come_with_their_values() {
    let deploy = deploy();
    let values = "monitoring: {dashboards: true}\ncommonLabels: {team: platform}\n\
                  extraObjects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ .Release.Name }}-own'}}]";
    let plain =
        read(&template(deploy.path(), "1.36", Some("commonLabels: {team: platform}")).unwrap()).unwrap();
    let objects = read(&template(deploy.path(), "1.36", Some(values)).unwrap()).unwrap();
    let is_new = |object: &&Value| !plain.iter().any(|other| other["metadata"] == object["metadata"]);
    let new: Vec<&Value> = objects.iter().filter(is_new).collect();
    let names: Vec<_> = new.iter().map(|object| object["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["sluice-dashboard-operations", "sluice-dashboard-quotas", "sluice-own"]);
    for (object, file) in new.iter().zip(["operations", "quotas"]) {
        let shipped = deploy.path().join(format!("monitoring/grafana/{file}.json"));
        let shipped: Value = serde_json::from_str(&std::fs::read_to_string(shipped).unwrap()).unwrap();
        let text = object["data"][format!("{file}.json")].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), shipped);
        let labels = &object["metadata"]["labels"];
        assert_eq!((&labels["grafana_dashboard"], &labels["team"]), (&json!("1"), &json!("platform")));
    }
}

#[test]
fn lint_finds_nothing_and_the_notes_say_what_to_do() {
    let deploy = deploy();
    let chart = deploy.path().join("helm/sluice");
    packaging(&["helm-lint", text(&chart)]).unwrap();
    let notes = packaging(&["helm-notes", text(&chart), "sluice", NAMESPACE, "1.36"]).unwrap();
    assert!(notes.contains("kubectl wait --for=condition=Available --timeout=5m aaq/aaq"), "{notes}");
    assert!(!notes.contains("privileged") && !notes.contains("{{"), "{notes}");
    let (who_installs, given) = ("deploy/aaq-cr.yaml", deploy.path().join("values.yaml"));
    assert!(!notes.contains(who_installs), "{notes}");
    write(&given, "installation: cr");
    let notes = packaging(&["helm-notes", text(&chart), "sluice", NAMESPACE, "1.36", text(&given)]).unwrap();
    assert!(notes.contains(who_installs), "{notes}");
}
