//! What a managed-tenant-quota that crashed left behind is listed by an account that may only list, and the listed commands
//! repair it.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::build;
use sluice_e2e::tenant::{SOON, Tenant, hard, shared};
use sluice_testbed::{Bed, Identity, wait};

use crate::context::vmmrqs;

/// Exit code when something is left.
const LEFT: i32 = 3;

#[tokio::test(flavor = "multi_thread")]
async fn leftovers_are_listed_and_the_commands_repair_them() {
    let bed = shared().await.bed;
    let reader = reader(bed).await;
    let (crashed, edited) = (crashed(bed, "crashed", "6").await, crashed(bed, "edited", "9").await);
    lock(&crashed).await;

    let (code, table) = sluice(&reader, "table").await;
    assert_eq!(code, LEFT, "{table}");
    let (code, text) = sluice(&reader, "json").await;
    assert_eq!(code, LEFT, "{text}");
    let listed: Vec<Value> = serde_json::from_str(&text).unwrap();
    let states = |tenant: &Tenant<'_>| -> Vec<_> {
        let of_tenant = listed.iter().filter(|each| each["namespace"] == tenant.name());
        of_tenant.map(|each| (each["state"].as_str().unwrap(), each["command"].is_string())).collect()
    };
    let recorded = ("quotas recorded: 1, migrations recorded: 1", true);
    let [locked, raised, last] = states(&crashed)[..] else { panic!("{text}") };
    assert!(locked.0.starts_with("locks the namespace since ") && locked.1, "{text}");
    assert_eq!([raised, last], [("pods is raised from 4 to 6", true), recorded]);
    let changed = ("pods is 9, changed since 4 was recorded: not restored", false);
    assert_eq!(states(&edited), [changed, recorded]);

    for command in listed.iter().filter_map(|each| each["command"].as_str()) {
        assert!(table.lines().any(|line| line == command), "{command}: {table}");
        carry_out(bed, command).await;
    }
    let (code, text) = sluice(&reader, "table").await;
    assert_eq!((code, text.as_str()), (0, "Nothing is left of a managed-tenant-quota.\n"));
    until_enforced(&crashed, "4").await;
    until_enforced(&edited, "9").await;
}

/// A namespace whose quota of 4 pods has this limit now, and a record of a migration that needed 2 more.
async fn crashed<'b>(bed: &'b Bed, prefix: &str, pods: &str) -> Tenant<'b> {
    let tenant = Tenant::on(bed, prefix).await;
    tenant.quota("rq", json!({ "pods": "4" })).await;
    tenant.vmmrq("mtq", json!({ "pods": "2" })).await;
    let record = json!({ "status": {
        "additionalMigrationResources": { "pods": "2" },
        "migrationsToBlockingResourceQuotas": { "migration": ["rq"] },
        "originalBlockingResourceQuotas": [{ "name": "rq", "spec": { "hard": { "pods": "4" } } }],
    }});
    let params = PatchParams::default();
    vmmrqs(&tenant).patch_status("mtq", &params, &Patch::Merge(record)).await.unwrap();
    let raised = Patch::Merge(json!({ "spec": { "hard": { "pods": pods } } }));
    tenant.quotas.patch("rq", &params, &raised).await.unwrap();
    until_enforced(&tenant, pods).await;
    tenant
}

/// The lock as managed-tenant-quota makes it. Its service does not exist.
async fn lock(tenant: &Tenant<'_>) {
    let name = format!("lock.{}.com", tenant.name());
    let rule = |operation: &str, resource: &str| {
        json!({
            "apiGroups": ["*"], "apiVersions": ["*"], "operations": [operation], "resources": [resource],
            "scope": "Namespaced",
        })
    };
    let lock = json!({
        "metadata": { "name": name, "labels": { "mtq-lock-server": "mtq-lock-server" } },
        "webhooks": [{
            "name": name, "admissionReviewVersions": ["v1", "v1beta1"], "failurePolicy": "Fail", "sideEffects": "None",
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": tenant.name() } },
            "clientConfig": { "service": { "namespace": "mtq", "name": "mtq-lock", "path": "/validate-pods" } },
            "rules": [rule("UPDATE", "resourcequotas"), rule("CREATE", "pods")],
        }],
    });
    let locks: Api<ValidatingWebhookConfiguration> = Api::all(tenant.client.clone());
    locks.create(&PostParams::default(), &serde_json::from_value(lock).unwrap()).await.unwrap();
}

async fn until_enforced(tenant: &Tenant<'_>, pods: &str) {
    tenant.until_quota("rq", &format!("{pods} pods"), |quota| hard(quota)["pods"].0 == pods).await;
}

/// An account that may list what the command reads, and nothing else.
async fn reader(bed: &Bed) -> Identity {
    let (name, namespace, group) = ("mtq-reader", names::INSTALL_NAMESPACE, "rbac.authorization.k8s.io");
    let rule =
        |group: &str, kind: &str| json!({ "apiGroups": [group], "resources": [kind], "verbs": ["list"] });
    let objects = [
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": namespace } }),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": { "name": name },
            "rules": [
                rule("", "resourcequotas"),
                rule(names::MTQ_GROUP, names::VMMRQS),
                rule("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
            ],
        }),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": name },
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": namespace }],
        }),
    ];
    bed.apply_objects(objects).await.unwrap();
    let reader = bed.service_account(namespace, name).await.unwrap();
    // The binding is in force when the API server's cache has it.
    let bound = || async { (sluice(&reader, "table").await.0 != 1).then_some(()) };
    wait::eventually(SOON, bound, "the rights").await.unwrap();
    reader
}

/// The exit code of the command, and what it printed.
async fn sluice(reader: &Identity, output: &str) -> (i32, String) {
    let mut command = tokio::process::Command::new(build::sluice().unwrap());
    command.args(["mtq-leftovers", "--output", output, "--kubeconfig"]).arg(reader.kubeconfig());
    let ended = tokio::time::timeout(SOON, command.kill_on_drop(true).output()).await.unwrap().unwrap();
    (ended.status.code().unwrap(), String::from_utf8(ended.stdout).unwrap())
}

/// Runs a printed command as the administrator.
async fn carry_out(bed: &Bed, command: &str) {
    let (words, patch) = command.split_once('\'').unwrap_or((command, ""));
    let args: Vec<_> = words.split_whitespace().skip(1).chain(patch.strip_suffix('\'')).collect();
    // A lock that is deleted is in force until the API server's cache has it.
    let done = || async { bed.kubectl(&args).await.unwrap().status.success().then_some(()) };
    wait::eventually(SOON, done, command).await.unwrap();
}
