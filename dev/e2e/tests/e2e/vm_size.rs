//! For which VMs an API server calls the webhook that warns of pods larger than their guest.
//!
//! The kinds are stand-ins without a schema; what is told of real ones is tested beside the calculators,
//! in `machines/size.rs`.

use http::Method;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_api::{WebhookEntry, names};
use sluice_e2e::call::{JSON, MERGE, Response, call, get, post};
use sluice_testbed::wait;

use crate::context::SOON;
use crate::gate_policies::world::{asleep, delete};
use crate::team::Team;
use crate::vmi_status::{instances, kind};

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const ENTRY: &str = WebhookEntry::VM_SIZE.name;

/// A namespace with the kinds and, apart from the shipped one, the entry in a form in which it shows when it is called:
/// without a process of Sluice each call fails, and then the request.
struct Closed {
    team: Team,
    configuration: String,
}

impl Closed {
    async fn on(prefix: &str, stored: &[Value]) -> Self {
        let bed = asleep().await;
        // Not targeted: no other entry is called.
        let team = Team::with(bed, prefix, &[]).await;
        let machines = kind("VirtualMachine", "virtualmachines", &json!({ "status": {} }));
        bed.apply_objects([instances(), machines]).await.unwrap();
        let this = Self { configuration: format!("{CONFIGURATIONS}/{}", team.namespace), team };
        for (kind, plural) in [KINDS[0], KINDS[1]] {
            let probe = object(kind, "probe", &json!({}));
            let served = || async { this.tries(plural, &probe).await.is_ok().then_some(()) };
            wait::eventually(SOON, served, "the kind to be served").await.unwrap();
        }
        for object in stored {
            let created = post(&this.team.client, &this.path("virtualmachines"), object).await.unwrap();
            assert!(created.is_ok(), "{created:?}");
        }
        let shipped = get(&this.team.client, &format!("{CONFIGURATIONS}/{}", names::VALIDATING_CONFIG)).await;
        let mut webhooks = shipped.unwrap().body["webhooks"].as_array().unwrap().clone();
        webhooks.retain(|webhook| webhook["name"] == ENTRY);
        assert_eq!(webhooks[0]["failurePolicy"], "Ignore");
        webhooks[0]["failurePolicy"] = json!("Fail");
        let here = json!({ "matchLabels": { "kubernetes.io/metadata.name": this.team.namespace.name } });
        webhooks[0]["namespaceSelector"] = here;
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": this.team.namespace.name }, "webhooks": webhooks,
        });
        let created =
            call(&this.team.client, Method::POST, CONFIGURATIONS, JSON, &configuration).await.unwrap();
        assert!(created.is_ok(), "{created:?}");
        let certain = machine("certain", &json!({ "resources": { "requests": { "cpu": "1" } } }));
        let called = || async { is_called(&this.tries("virtualmachines", &certain).await).then_some(()) };
        wait::eventually(SOON, called, "the entry to be in force").await.unwrap();
        this
    }

    fn path(&self, plural: &str) -> String {
        format!("/apis/kubevirt.io/v1/namespaces/{}/{plural}", self.team.namespace)
    }

    /// What would become of a new object.
    async fn tries(&self, plural: &str, object: &Value) -> Response {
        let path = format!("{}?dryRun=All", self.path(plural));
        post(&self.team.client, &path, object).await.unwrap()
    }

    /// What would become of a stored VirtualMachine.
    async fn changes(&self, name: &str, change: &Value) -> Response {
        let path = format!("{}/{name}?dryRun=All", self.path("virtualmachines"));
        call(&self.team.client, Method::PATCH, &path, MERGE, change).await.unwrap()
    }

    async fn end(self) {
        delete(&self.team.client, &self.configuration).await;
    }
}

const KINDS: [(&str, &str); 2] =
    [("VirtualMachine", "virtualmachines"), ("VirtualMachineInstance", "virtualmachineinstances")];

/// Whether the request failed because the entry was called. An error in a condition would be code 403.
fn is_called(answer: &Response) -> bool {
    let called = answer.code == 500 && answer.message().contains(ENTRY);
    assert!(called || answer.is_ok(), "{answer:?}");
    called
}

fn object(kind: &str, name: &str, content: &Value) -> Value {
    let mut object = content.clone();
    object["apiVersion"] = json!("kubevirt.io/v1");
    object["kind"] = json!(kind);
    object["metadata"]["name"] = json!(name);
    object
}

fn machine(name: &str, domain: &Value) -> Value {
    let content = json!({ "spec": { "template": { "spec": { "domain": domain } } } });
    object("VirtualMachine", name, &content)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_vms_that_state_resources_are_looked_at_and_no_others() {
    let closed = Closed::on("size-new", &[]).await;
    for (resources, expected) in [
        (json!({ "requests": { "cpu": "1" } }), true),
        (json!({ "requests": { "memory": "1Gi", "example.com/gpu": "1" } }), true),
        (json!({ "limits": { "memory": "1Gi" } }), true),
        (json!({ "requests": {}, "limits": { "cpu": 1 } }), true),
        (json!({ "requests": { "example.com/gpu": "1" }, "limits": {} }), false),
        (json!({ "overcommitGuestOverhead": true }), false),
        (json!({}), false),
        (Value::Null, false),
    ] {
        let domain = json!({ "resources": resources });
        let vmi = object("VirtualMachineInstance", "vm", &json!({ "spec": { "domain": domain } }));
        let (vm, vmi) = (
            closed.tries("virtualmachines", &machine("vm", &domain)).await,
            closed.tries("virtualmachineinstances", &vmi).await,
        );
        assert_eq!([is_called(&vm), is_called(&vmi)], [expected; 2], "{resources}");
    }
    let stating = json!({ "resources": { "requests": { "cpu": "1" } } });
    for (owner, expected) in
        [(json!({ "controller": true }), false), (json!({ "controller": false }), true), (json!({}), true)]
    {
        let mut owner = owner;
        for (field, value) in
            [("apiVersion", "kubevirt.io/v1"), ("kind", "VirtualMachine"), ("name", "vm"), ("uid", "1")]
        {
            owner[field] = json!(value);
        }
        let content = json!({ "metadata": { "ownerReferences": [owner] }, "spec": { "domain": stating } });
        let vmi = object("VirtualMachineInstance", "vm", &content);
        assert_eq!(is_called(&closed.tries("virtualmachineinstances", &vmi).await), expected, "{owner}");
    }
    closed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vms_that_get_another_size_are_looked_at_and_no_other_update_is() {
    let sized = json!({
        "cpu": { "sockets": 2 }, "memory": { "guest": "1Gi" }, "resources": { "requests": { "memory": "1Gi" } },
    });
    let stored = [
        machine("sized", &sized),
        machine("bare", &json!({})),
        object("VirtualMachine", "empty", &json!({})),
    ];
    let closed = Closed::on("size-change", &stored).await;
    let domain = |change: Value| json!({ "spec": { "template": { "spec": { "domain": change } } } });
    let requests = json!({ "resources": { "requests": { "memory": "2Gi" } } });
    for (name, change, expected) in [
        ("sized", json!({ "metadata": { "labels": { "a": "b" }, "finalizers": ["a/b"] } }), false),
        ("sized", json!({ "spec": { "running": true } }), false),
        ("sized", domain(json!({ "devices": { "rng": {} } })), false),
        ("sized", domain(json!({ "resources": null })), false),
        ("sized", domain(requests.clone()), true),
        ("sized", domain(json!({ "memory": { "guest": "512Mi" } })), true),
        ("sized", domain(json!({ "cpu": { "sockets": 1 } })), true),
        ("bare", domain(json!({ "cpu": { "sockets": 1 } })), false),
        ("bare", domain(requests.clone()), true),
        ("empty", json!({ "spec": { "running": true } }), false),
        ("empty", domain(requests), true),
    ] {
        assert_eq!(is_called(&closed.changes(name, &change).await), expected, "{name}: {change}");
    }
    let status = json!({ "status": { "ready": true } });
    let path = format!("{}/sized/status", closed.path("virtualmachines"));
    let written = call(&closed.team.client, Method::PATCH, &path, MERGE, &status).await.unwrap();
    assert!(!is_called(&written));
    closed.end().await;
}

/// As it is shipped it refuses nothing.
#[rstest]
#[case::machine(KINDS[0])]
#[case::instance(KINDS[1])]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_webhook_vms_are_created_without_a_word(#[case] (kind_of, plural): (&str, &str)) {
    let bed = asleep().await;
    let team = Team::on(bed, "size-asleep").await;
    let machines = kind("VirtualMachine", "virtualmachines", &json!({ "status": {} }));
    bed.apply_objects([instances(), machines]).await.unwrap();
    let domain = json!({ "memory": { "guest": "1Gi" }, "resources": { "requests": { "memory": "2Gi" } } });
    let content = json!({ "spec": { "domain": domain, "template": { "spec": { "domain": domain } } } });
    let path = format!("/apis/kubevirt.io/v1/namespaces/{}/{plural}", team.namespace);
    let created = || async {
        let answer = post(&team.client, &path, &object(kind_of, "vm", &content)).await.unwrap();
        assert!(answer.is_ok() || answer.code == 404, "{answer:?}");
        answer.is_ok().then_some(())
    };
    wait::eventually(SOON, created, "the kind to be served").await.unwrap();
}
