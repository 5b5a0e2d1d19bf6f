//! Who may do what: one identity per component, no wildcards, names where there are any.

mod operands;
mod removal;

use serde_json::{Value, json};
use sluice_api::{RECORDED_IN, names};

use crate::object::{cluster_metadata, labelled, labels, metadata, set};
use crate::options::InstallOptions;
pub use removal::removal_rights;

const GROUP: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";
const EVENTS: &str = "events.k8s.io";
const FLOWCONTROL: &str = "flowcontrol.apiserver.k8s.io";
/// Where the API servers publish their own addresses, and under which name.
const API_SERVERS: (&str, &str) = ("default", "kubernetes");
/// Verbs of a reader that keeps up. With `resourceNames`, `list` and `watch` need a field selector on the name.
pub(crate) const READ: [&str; 3] = ["get", "list", "watch"];
/// Verbs of the one that makes, changes and removes.
const KEEP: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];

pub(crate) fn objects(options: &InstallOptions) -> Vec<Value> {
    let mut objects = Vec::new();
    for (name, cluster_rules, rules) in [
        (names::CONTROLLER, controller_cluster_rules(), controller_rules()),
        (names::WEBHOOK, webhook_cluster_rules(), webhook_rules()),
        (names::OPERATOR, operator_cluster_rules(options), operator_rules(options)),
    ] {
        objects.push(account(options, name));
        objects.push(role("ClusterRole", cluster_metadata(name), cluster_rules));
        objects.push(binding(options, "ClusterRole", cluster_metadata(name), name));
        objects.push(role("Role", metadata(options, name), rules));
        objects.push(binding(options, "Role", metadata(options, name), name));
    }
    objects.extend(api_servers(options));
    objects.extend(events_of_operator(options));
    objects.push(tenant_view());
    objects.push(metrics_reader());
    objects
}

pub(crate) fn account(options: &InstallOptions, name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(options, name),
        "automountServiceAccountToken": false,
    })
}

/// What each component asks about those who want to see its metrics.
fn access_rules() -> [Value; 2] {
    [
        rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
    ]
}

/// For the accounts of monitoring. The installation binds no account to it.
fn metrics_reader() -> Value {
    let rules = json!([{ "nonResourceURLs": [names::PATH_METRICS], "verbs": ["get"] }]);
    role("ClusterRole", json!({ "name": names::METRICS_READER, "labels": labels(None) }), rules)
}

pub(crate) fn role(kind: &str, metadata: Value, rules: Value) -> Value {
    json!({ "apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": metadata, "rules": rules })
}

pub(crate) fn binding(options: &InstallOptions, role_kind: &str, metadata: Value, name: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": format!("{role_kind}Binding"),
        "metadata": metadata,
        "roleRef": { "apiGroup": GROUP, "kind": role_kind, "name": name },
        "subjects": [subject(options, name)],
    })
}

pub(crate) fn subject(options: &InstallOptions, account: &str) -> Value {
    json!({ "kind": "ServiceAccount", "name": account, "namespace": options.namespace })
}

/// The accounts that make room for migrations.
fn subjects(options: &InstallOptions) -> [Value; 2] {
    [names::CONTROLLER, names::WEBHOOK].map(|account| subject(options, account))
}

pub(crate) fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": resources, "verbs": verbs })
}

pub(crate) fn named(group: &str, resource: &str, name: &str, verbs: &[&str]) -> Value {
    let mut rule = rule(group, &[resource], verbs);
    set(&mut rule, "resourceNames", json!([name]));
    rule
}

/// To wait for kinds that may come later.
fn definitions(kinds: &[(&str, &str)]) -> Value {
    let mut rule = rule("apiextensions.k8s.io", &["customresourcedefinitions"], &["watch"]);
    let names: Vec<_> = kinds.iter().map(|(group, resource)| format!("{resource}.{group}")).collect();
    set(&mut rule, "resourceNames", json!(names));
    rule
}

/// To read the CRDs that charges rest on.
fn recorded_in() -> Value {
    let mut rule = rule("apiextensions.k8s.io", &["customresourcedefinitions"], &READ);
    set(&mut rule, "resourceNames", json!(RECORDED_IN));
    rule
}

/// What both components need to make room for migrations: to read who migrates and what limits it, to write
/// `status.hard` of a quota, and to ask an API server, in dry runs, what it knows. Neither may create a pod.
fn headroom_rules() -> Vec<Value> {
    let kubevirt = ["kubevirts", "virtualmachineinstancemigrations", "virtualmachineinstances"];
    vec![
        rule("kubevirt.io", &kubevirt, &READ),
        definitions(&kubevirt.map(|resource| ("kubevirt.io", resource))),
        definitions(&[(names::OPENSHIFT_QUOTA_GROUP, names::CLUSTER_RESOURCE_QUOTAS)]),
        rule("", &["resourcequotas"], &READ),
        rule("", &["resourcequotas/status"], &["patch"]),
        rule(names::MTQ_GROUP, &[names::VMMRQS], &READ),
        rule(names::OWN_GROUP, &[names::HEADROOM_POLICIES], &READ),
        rule(names::OWN_GROUP, &[names::HEADROOM_PROBES], &["create"]),
        events(),
    ]
}

fn controller_cluster_rules() -> Value {
    let status = |resource: &str| format!("{resource}/status");
    let finalizers = |resource: &str| format!("{resource}/finalizers");
    let mut rules = vec![
        rule("", &["pods"], &["get", "list", "watch", "patch"]),
        rule("", &["namespaces"], &READ),
        rule(names::GROUP, &[names::AAQS, names::ARQS, names::ACRQS], &READ),
        rule(names::GROUP, &[&status(names::ARQS), &status(names::ACRQS)], &["update", "patch"]),
        // Mirrors of cluster quotas, in the namespaces that these select.
        rule(names::GROUP, &[names::AACRQS], &KEEP),
        rule(names::GROUP, &[&status(names::AAQS)], &["patch"]),
        // Managed quotas; `sluice-accounts` holds it to these. The API server asks for `finalizers` where the plugin
        // OwnerReferencesPermissionEnforcement is enabled.
        rule("", &["resourcequotas"], &["create", "patch", "delete"]),
        rule(
            names::OPENSHIFT_QUOTA_GROUP,
            &[names::CLUSTER_RESOURCE_QUOTAS],
            &["list", "watch", "create", "patch", "delete"],
        ),
        rule(names::GROUP, &[&finalizers(names::ARQS), &finalizers(names::ACRQS)], &["update"]),
        // An older installation may lack them.
        definitions(&[
            (names::GROUP, names::ACRQS),
            (names::GROUP, names::AACRQS),
            (names::OWN_GROUP, names::CLUSTER_QUOTA_CHARGES),
            (names::OWN_GROUP, names::EVALUATORS),
            ("resource.k8s.io", "deviceclasses"),
        ]),
        // Whether they keep what is recorded.
        recorded_in(),
        rule("", &["limitranges"], &READ),
        // Extended resources that ResourceClaims are charged to as well.
        rule("resource.k8s.io", &["deviceclasses"], &READ),
        rule(names::MTQ_GROUP, &[&status(names::VMMRQS)], &["update", "patch"]),
        rule(names::OWN_GROUP, &[&status(names::HEADROOM_POLICIES)], &["update", "patch"]),
        rule(names::OWN_GROUP, &[names::EVALUATORS], &READ),
        rule(names::OWN_GROUP, &[&status(names::EVALUATORS)], &["patch"]),
        // To learn, in dry runs, who gates pods at an API server.
        rule(names::OWN_GROUP, &[names::GATE_PROBES], &["create"]),
    ];
    rules.extend(headroom_rules());
    rules.extend(access_rules());
    json!(rules)
}

fn operator_cluster_rules(options: &InstallOptions) -> Value {
    let mut rules = vec![
        // What is asked of the installation, and what is said of it. Finalizers are a part of the object.
        rule(names::GROUP, &[names::AAQS], &["get", "list", "watch", "create", "patch"]),
        rule(names::GROUP, &[&format!("{}/status", names::AAQS)], &["patch"]),
        rule(names::MTQ_GROUP, &[names::MTQS], &["get", "list", "watch", "patch"]),
        rule(names::MTQ_GROUP, &[&format!("{}/status", names::MTQS)], &["patch"]),
        // The one that it makes without another.
        named(names::GROUP, names::AAQS, names::AAQ_NAME, &["delete"]),
        // None is made where another program keeps their CRD.
        named("apiextensions.k8s.io", "customresourcedefinitions", names::AAQ_DEFINITION, &READ),
        // Whether they keep what the controller records.
        recorded_in(),
        definitions(&[(names::MTQ_GROUP, names::MTQS)]),
        // Whether containers may be taken away because nobody names them any more.
        named("apiextensions.k8s.io", "customresourcedefinitions", names::EVALUATOR_DEFINITION, &READ),
        // Containers beside the controller.
        rule(names::OWN_GROUP, &[names::EVALUATORS], &READ),
        // A class that does not exist would keep pods from being made.
        rule("scheduling.k8s.io", &["priorityclasses"], &READ),
        // Who creates the targets of migrations.
        rule("kubevirt.io", &["kubevirts"], &READ),
        definitions(&[("kubevirt.io", "kubevirts")]),
        // A policy, and a binding of it, may only be written by an account that may read what its parameters are.
        rule("", &["resourcequotas"], &["get", "list"]),
        // Whether the installation is being removed.
        named("", "namespaces", &options.namespace, &READ),
        // What the operator makes belongs to its role, and goes with it.
        named(GROUP, "clusterroles", names::OPERATOR, &READ),
    ];
    if options.reads_leases_everywhere {
        rules.push(events());
    }
    rules.extend(access_rules());
    rules.extend(own_admission_rules());
    rules.extend(operands::OF_CLUSTER.iter().flat_map(operands::rules));
    json!(rules)
}

/// Our own admission objects are kept as they are shipped and put back when they are deleted.
///
/// `create` cannot be limited to a name. It gives nothing that `patch` on a named object does not give: an account that may
/// write one webhook configuration may intercept any request. No admission policy can hold it to less, for these kinds are
/// exempt from admission; so it is an account of its own.
///
/// They belong to the operator's role. Where the plugin OwnerReferencesPermissionEnforcement is enabled, as on OpenShift,
/// only an account that may `delete` an object may give it another owner. The operator deletes none.
fn own_admission_rules() -> Vec<Value> {
    let own = [
        ("mutatingwebhookconfigurations", names::MUTATING_CONFIG),
        ("validatingwebhookconfigurations", names::VALIDATING_CONFIG),
        ("mutatingadmissionpolicies", names::GATE_POLICY),
        ("mutatingadmissionpolicies", names::STAMP_POLICY),
        ("mutatingadmissionpolicybindings", names::GATE_POLICY),
        ("mutatingadmissionpolicybindings", names::STAMP_POLICY),
    ];
    let validate = [
        names::CHARGE_POLICY,
        names::LOCK_POLICY,
        names::GUARD_POLICY,
        names::GATED_POLICY,
        names::ACCOUNTS_POLICY,
        names::VMI_STATUS_POLICY,
        names::EXEMPT_NAMES_POLICY,
        names::PAUSE_POLICY,
        names::REVIEW_POLICY,
        names::EVALUATOR_POLICY,
    ];
    let of = |resource: &'static str| validate.map(|name| (resource, name));
    let own: Vec<_> = own
        .into_iter()
        .chain(of("validatingadmissionpolicies"))
        .chain(of("validatingadmissionpolicybindings"))
        .collect();
    let mut resources: Vec<_> = own.iter().map(|(resource, _)| *resource).collect();
    resources.dedup();
    let mut rules = vec![rule(ADMISSION, &resources, &["create"])];
    let verbs = ["get", "list", "watch", "update", "patch", "delete"];
    rules.extend(own.into_iter().map(|(resource, name)| named(ADMISSION, resource, name, &verbs)));
    rules
}

fn controller_rules() -> Value {
    let [create, keep] = lease_rules(names::LEASE);
    // Their names are the uids of cluster quotas.
    let charges = names::CLUSTER_QUOTA_CHARGES;
    json!([
        create,
        keep,
        named("", "secrets", names::SERVING_SECRET, &READ),
        rule(names::OWN_GROUP, &[charges], &["get", "list", "watch", "create", "delete"]),
        rule(names::OWN_GROUP, &[&format!("{charges}/status")], &["update"]),
    ])
}

/// To tell of something.
fn events() -> Value {
    rule(EVENTS, &["events"], &["create", "get", "patch"])
}

/// Events of the operator about `AAQ`s and `MTQ`s: of objects without a namespace they are in `default`.
fn events_of_operator(options: &InstallOptions) -> Vec<Value> {
    const NAME: &str = "sluice-events";
    if options.reads_leases_everywhere {
        return Vec::new();
    }
    let metadata = json!({ "name": NAME, "namespace": "default", "labels": labels(None) });
    let mut bound = binding(options, "Role", metadata.clone(), NAME);
    set(&mut bound, "subjects", json!([subject(options, names::OPERATOR)]));
    vec![role("Role", metadata, json!([events()])), bound]
}

fn operator_rules(options: &InstallOptions) -> Value {
    let [create, keep] = lease_rules(names::OPERATOR);
    let mut secrets = rule("", &["secrets"], &["get", "list", "watch", "update"]);
    set(&mut secrets, "resourceNames", json!([names::CA_SECRET, names::SERVING_SECRET]));
    // Its operands have the image that its own pod has. And what keeps theirs from running is told.
    let own_pod = rule("", &["pods"], &READ);
    let mut rules = vec![create, keep, rule("", &["secrets"], &["create"]), secrets, own_pod];
    if !options.reads_leases_everywhere {
        // About objects that other clients insist on.
        rules.push(events());
    }
    rules.extend(operands::OF_NAMESPACE.iter().flat_map(operands::rules));
    json!(rules)
}

/// To elect one replica. `create` cannot be limited to a name: the API server authorises it before it knows the name.
fn lease_rules(name: &str) -> [Value; 2] {
    const GROUP: &str = "coordination.k8s.io";
    let verbs = ["get", "list", "watch", "update", "patch"];
    [rule(GROUP, &["leases"], &["create"]), named(GROUP, "leases", name, &verbs)]
}

fn webhook_cluster_rules() -> Value {
    let mut rules = vec![
        // To know whether an `AAQ` exists when another one is created.
        rule(names::GROUP, &[names::AAQS], &READ),
        rule("", &["namespaces"], &READ),
        // Whether pods may take keys that Kubernetes does not know.
        rule(names::OWN_GROUP, &[names::EVALUATORS], &READ),
        definitions(&[(names::OWN_GROUP, names::EVALUATORS)]),
        // To see that a migration's target pod has arrived.
        rule("", &["pods"], &["list", "watch"]),
        // To know whether the cluster has the kind; no object of this name is needed for that.
        named(
            names::OPENSHIFT_QUOTA_GROUP,
            names::CLUSTER_RESOURCE_QUOTAS,
            names::PROBE_NAME,
            &["list", "watch"],
        ),
    ];
    rules.extend(headroom_rules());
    rules.extend(access_rules());
    json!(rules)
}

fn webhook_rules() -> Value {
    // The Lease has the address of the controller that leads.
    let leader = named("coordination.k8s.io", "leases", names::LEASE, &READ);
    json!([named("", "secrets", names::SERVING_SECRET, &READ), leader])
}

/// Each API server is asked whether it knows of a raise: where their addresses are, and the Leases that say how many there
/// are, which lie in a namespace with other Leases.
fn api_servers(options: &InstallOptions) -> Vec<Value> {
    let (namespace, name) = API_SERVERS;
    let slices = named("discovery.k8s.io", "endpointslices", name, &READ);
    let leases = rule("coordination.k8s.io", &["leases"], &["list", "watch"]);
    if options.reads_leases_everywhere {
        const NAME: &str = "sluice-api-servers";
        let mut bound = binding(options, "ClusterRole", cluster_metadata(NAME), NAME);
        set(&mut bound, "subjects", json!(subjects(options)));
        return vec![role("ClusterRole", cluster_metadata(NAME), json!([slices, leases])), bound];
    }
    let [addresses, address_binding] = api_server_role(options, namespace, slices);
    let [identities, identity_binding] = api_server_role(options, "kube-system", leases);
    vec![addresses, address_binding, identities, identity_binding]
}

fn api_server_role(options: &InstallOptions, namespace: &str, rule: Value) -> [Value; 2] {
    let metadata = json!({ "name": "sluice-api-servers", "namespace": namespace, "labels": labels(None) });
    let mut bound = binding(options, "Role", metadata.clone(), "sluice-api-servers");
    set(&mut bound, "subjects", json!(subjects(options)));
    [role("Role", metadata, json!([rule])), bound]
}

/// What is needed beside Rancher, whose webhook admits writes to a quota's status only from kube-controller-manager and the
/// API server: to write it, and nothing else, as the quota controller's account (constrained impersonation, Kubernetes
/// 1.36). Whether an account may be impersonated is asked in its own namespace.
///
/// The operator may, too: where the `AAQ` installs it puts back what a crash has left raised.
pub fn rancher_objects(options: &InstallOptions) -> Vec<Value> {
    const NAME: &str = "sluice-rancher";
    let (account, home) = (names::QUOTA_CONTROLLER_ACCOUNT, "kube-system");
    let as_whom = named("authentication.k8s.io", "serviceaccounts", account, &["impersonate:serviceaccount"]);
    let to_do = rule("", &["resourcequotas/status"], &["impersonate-on:serviceaccount:update"]);
    let local = json!({ "name": NAME, "namespace": home, "labels": labels(Some(NAME)) });
    let granted = [("Role", local, as_whom), ("ClusterRole", cluster_metadata(NAME), to_do)];
    let objects = granted.map(|(kind, metadata, rule)| {
        let mut bound = binding(options, kind, metadata.clone(), NAME);
        let subjects = subjects(options).into_iter().chain([subject(options, names::OPERATOR)]);
        set(&mut bound, "subjects", subjects.collect());
        [role(kind, metadata, json!([rule])), bound]
    });
    labelled(options, objects.concat())
}

/// Those who may view a namespace may view its quotas, and of cluster quotas their mirrors there, and may ask why something
/// waits: a QuotaReview tells of its namespace and is never stored. `edit` and `admin` contain `view` and get nothing more:
/// a tenant must not change what limits it.
fn tenant_view() -> Value {
    let mut labels = labels(None);
    set(&mut labels, &format!("{GROUP}/aggregate-to-view"), json!("true"));
    role(
        "ClusterRole",
        json!({ "name": "sluice-view", "labels": labels }),
        json!([
            rule(names::GROUP, &[names::ARQS, names::AACRQS], &READ),
            rule(names::MTQ_GROUP, &[names::VMMRQS], &READ),
            rule(names::OWN_GROUP, &[names::QUOTA_REVIEWS], &["create"]),
        ]),
    )
}
