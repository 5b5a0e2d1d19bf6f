//! The Deployments and what belongs to them.

use serde_json::{Value, json};
use sluice_api::names;

use crate::asked::AskedOfPods;
use crate::object::{metadata, set};
use crate::options::InstallOptions;
use crate::resources::Amounts;
use crate::{placement, security, sidecars};

/// Seconds that a token is valid; kubelet renews it before.
const TOKEN_SECONDS: u32 = 3600;
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Volume of the ConfigMap of a component.
const FILES: &str = "options";

/// What differs between the Deployments. What all components have comes on top.
struct Component {
    name: &'static str,
    arguments: Vec<String>,
    ports: Vec<(&'static str, u16)>,
    resources: Amounts,
    /// A ConfigMap, and where its keys are files.
    files: Option<(&'static str, &'static str)>,
}

/// The Deployment of the operator, and what keeps one pod of it.
pub(crate) fn of_operator(options: &InstallOptions) -> Vec<Value> {
    of_component(options, &operator(options)).collect()
}

/// The same of controller and webhook, whose pods are as it is asked for.
pub(crate) fn of_operands(options: &InstallOptions, asked: &AskedOfPods) -> Vec<Value> {
    let of = |component: &Component| -> Vec<Value> { of_component(options, component).collect() };
    let (mut controller, mut webhook) = (of(&controller(options)), of(&webhook(options)));
    for pod in controller.iter_mut().chain(&mut webhook).filter_map(pod_of_deployment) {
        asked.set(pod);
    }
    controller.iter_mut().for_each(|object| sidecars::add(object, asked));
    [controller, webhook].concat()
}

fn pod_of_deployment(object: &mut Value) -> Option<&mut Value> {
    object.pointer_mut("/spec/template/spec")
}

fn of_component(options: &InstallOptions, component: &Component) -> impl Iterator<Item = Value> + use<> {
    [deployment(options, component)].into_iter().chain(disruption_budget(options, component.name))
}

/// One replica stays while nodes are drained, where there are several.
fn disruption_budget(options: &InstallOptions, component: &'static str) -> Option<Value> {
    (options.replicas > 1).then(|| {
        json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": metadata(options, component),
            "spec": {
                "minAvailable": 1,
                "selector": { "matchLabels": options.naming.selector(component) },
                // Replicas that crash must not keep a node from being drained.
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            },
        })
    })
}

/// Arguments of every component: where it serves [`PORTS`].
fn listen() -> [String; 2] {
    [
        format!("--admin-listen=[::]:{}", names::ADMIN_PORT),
        format!("--metrics-listen=[::]:{}", names::METRICS_PORT),
    ]
}

/// Ports of every component.
const PORTS: [(&str, u16); 2] = [("admin", names::ADMIN_PORT), ("metrics", names::METRICS_PORT)];

/// The command and where it runs.
fn own(command: &str) -> Vec<String> {
    vec![command.to_owned(), "--namespace=$(POD_NAMESPACE)".to_owned()]
}

/// Whose pods are gated and by what, where it is not the default: controller and operator have to agree.
fn gating(options: &InstallOptions) -> Vec<String> {
    let default = InstallOptions::default();
    let by = (options.gating != default.gating).then(|| format!("--gating={}", options.gating));
    by.into_iter().chain(exempt(options)).collect()
}

/// Whose pods are never gated, where it is not the default: all processes have to agree.
fn exempt(options: &InstallOptions) -> Option<String> {
    let default = InstallOptions::default();
    (options.exempt_namespaces != default.exempt_namespaces).then(|| {
        // That of the installation is exempt anyway, and a flag needs a value.
        let own = options.exempt_namespaces.is_empty().then(|| options.namespace.clone());
        let names: Vec<_> = options.exempt_namespaces.iter().map(ToString::to_string).chain(own).collect();
        format!("--exempt-namespaces={}", names.join(","))
    })
}

/// Accounts of the platform, where they are not the default: all processes that judge pods have to agree.
fn platform(options: &InstallOptions) -> Option<String> {
    let accounts = &options.platform_accounts;
    (*accounts != InstallOptions::default().platform_accounts)
        .then(|| format!("--platform-accounts={accounts}"))
}

/// How often an address with several API servers behind it is asked.
fn balancers(options: &InstallOptions) -> Option<String> {
    (options.balancer_proofs > 0).then(|| format!("--balancer-proofs={}", options.balancer_proofs))
}

fn controller(options: &InstallOptions) -> Component {
    let serving = format!("--growth-listen=[::]:{}", names::GROWTH_PORT);
    let certificate = options.naming.parts().serving;
    let certificate = (certificate != names::SERVING_SECRET).then(|| format!("--tls-secret={certificate}"));
    let further = platform(options).into_iter().chain(balancers(options)).chain([serving]).chain(certificate);
    Component {
        name: names::CONTROLLER,
        arguments: [own("controller"), gating(options), further.collect()].concat(),
        ports: vec![("growth", names::GROWTH_PORT)],
        resources: options.resources.controller.clone(),
        files: None,
    }
}

fn webhook(options: &InstallOptions) -> Component {
    let serving = vec![
        format!("--listen=[::]:{}", options.webhook_port),
        format!("--tls-secret={}", options.naming.parts().serving),
    ];
    let judging = exempt(options).into_iter().chain(platform(options));
    let further = judging.chain(balancers(options)).collect();
    Component {
        name: names::WEBHOOK,
        arguments: [own("webhook"), serving, further].concat(),
        ports: vec![("webhook", options.webhook_port)],
        resources: options.resources.webhook.clone(),
        files: None,
    }
}

/// What it keeps is in force without it, but certificates end: the second replica takes over where a node is lost. It is
/// as ready as the first, which alone holds the Lease and writes.
fn operator(options: &InstallOptions) -> Component {
    Component {
        name: names::OPERATOR,
        arguments: [own("operator"), vec![format!("--options={}", names::OPTIONS_PATH)]].concat(),
        ports: vec![],
        resources: options.resources.operator.clone(),
        files: Some((names::OPERATOR, names::OPTIONS_PATH)),
    }
}

fn deployment(options: &InstallOptions, component: &Component) -> Value {
    let labels = options.naming.labels(component.name);
    let mut metadata = metadata(options, options.naming.deployment(component.name));
    set(&mut metadata, "labels", labels.clone());
    let selector = options.naming.selector(component.name);
    // And no affinity by default, which an `AAQ` may replace.
    let mut template = json!({ "metadata": { "labels": labels }, "spec": pod(options, component) });
    options.pods.set(&mut template, component.name, &selector);
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": options.replicas,
            "selector": { "matchLabels": selector },
            "strategy": placement::strategy(options, component.name),
            "template": template,
        },
    })
}

fn pod(options: &InstallOptions, component: &Component) -> Value {
    let mut spec = pod_of(options, component.name, &container(options, component));
    if let Some((map, _)) = component.files {
        let files = json!({ "name": FILES, "configMap": { "name": map } });
        set(&mut spec, "volumes", json!([token_volume(), files]));
    }
    spec
}

/// The specification of a pod that runs under the account of this name.
fn pod_of(options: &InstallOptions, name: &str, container: &Value) -> Value {
    let mut spec = json!({
        "serviceAccountName": name,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 30,
        "securityContext": security::of_pod(options.platform),
        "containers": [container],
        "volumes": [token_volume()],
    });
    if let Some(class) = &options.priority_class {
        set(&mut spec, "priorityClassName", json!(class));
    }
    placement::place(options, name, &mut spec);
    spec
}

fn container(options: &InstallOptions, component: &Component) -> Value {
    let arguments = [component.arguments.as_slice(), &listen()].concat();
    let mut container = container_of(options, component.name, &arguments, &component.resources);
    let ports: Vec<Value> = component
        .ports
        .iter()
        .chain(&PORTS)
        .map(|(name, port)| json!({ "name": name, "containerPort": port, "protocol": "TCP" }))
        .collect();
    let serving = [
        ("ports", json!(ports)),
        ("livenessProbe", probe(names::PATH_HEALTHZ, 10, 3)),
        ("readinessProbe", probe(names::PATH_READYZ, 5, 2)),
        ("startupProbe", probe(names::PATH_HEALTHZ, 2, 30)),
    ];
    for (field, value) in serving {
        set(&mut container, field, value);
    }
    if let Some((_, path)) = component.files {
        let files = json!({ "name": FILES, "mountPath": path, "readOnly": true });
        set(&mut container, "volumeMounts", json!([token_mount(), files]));
    }
    container
}

/// A container that serves nothing.
fn container_of(options: &InstallOptions, name: &str, arguments: &[String], resources: &Amounts) -> Value {
    json!({
        "name": name,
        "image": options.image,
        "imagePullPolicy": options.pull_policy.to_string(),
        "args": arguments,
        // With the default that the API server adds: a reference to a field is one value to it.
        "env": [{
            "name": "POD_NAMESPACE",
            "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" } },
        }, {
            "name": "POD_NAME",
            "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.name" } },
        }, {
            "name": "POD_IP",
            "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "status.podIP" } },
        }, {
            "name": names::ALLOCATOR_VARIABLE,
            "value": names::ALLOCATOR_SETTINGS,
        }],
        // No limit on CPU: throttling would add to the time each pod creation takes.
        "resources": {
            "requests": { "cpu": resources.cpu, "memory": resources.memory },
            "limits": { "memory": resources.memory },
        },
        "securityContext": security::of_container(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [token_mount()],
    })
}

fn token_mount() -> Value {
    json!({ "name": "token", "mountPath": TOKEN_PATH, "readOnly": true })
}

fn probe(path: &str, period: u32, failures: u32) -> Value {
    json!({
        "httpGet": { "path": path, "port": "admin" },
        "periodSeconds": period,
        "failureThreshold": failures,
        "timeoutSeconds": 2,
    })
}

/// A short-lived token, mounted only where it is needed.
fn token_volume() -> Value {
    json!({
        "name": "token",
        "projected": { "sources": [
            { "serviceAccountToken": { "path": "token", "expirationSeconds": TOKEN_SECONDS } },
            { "configMap": {
                "name": "kube-root-ca.crt",
                "items": [{ "key": "ca.crt", "path": "ca.crt" }],
            }},
            // With the default that the API server adds inside of this list: without it each `kubectl apply` sees
            // a difference.
            { "downwardAPI": { "items": [{
                "path": "namespace",
                "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" },
            }]}},
        ]},
    })
}
