//! The faults: what is done to the cluster, and under which name it is found.

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::get;
use sluice_e2e::objects;

use super::scene::{Scene, home};

/// A fault.
pub struct Fault {
    /// For people.
    pub what: &'static str,
    /// How the check ends, and which one.
    pub state: &'static str,
    pub name: &'static str,
    /// A part of what is found.
    pub words: &'static str,
    pub make: Make,
}

/// How a fault is made.
pub enum Make {
    /// The object at this path is deleted.
    Gone(String),
    /// The object at this path is changed by a JSON patch.
    Changed(String, Value),
    /// An object is created at this path.
    Made(String, Value),
    /// An API server announces itself by this Lease, and has no address.
    HiddenServer(Value),
    /// A second `AAQ` is created while the webhook is not asked.
    SecondAaq,
    /// The controller ends.
    NoController,
    /// The controller stands still.
    ControllerStands,
    /// The webhook is killed.
    NoWebhook,
    /// The webhook has a certificate for these names, issued so many days ago.
    Certificate(Vec<String>, i64),
    /// No node takes the webhook's pods.
    NoWebhookPods,
    /// Nobody renews the operator's lease.
    NoOperator,
    /// The API server's clock is so many seconds behind.
    Clock(i64),
    /// The API server says that it is of this minor version.
    Version(&'static str),
}

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const MTQ_DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/mtqs.mtq.kubevirt.io";

fn fault(what: &'static str, state: &'static str, name: &'static str, make: Make) -> Fault {
    Fault { what, state, name, words: "", make }
}

impl Fault {
    /// What is found has this part: the fault may look like another one before it is there.
    const fn saying(mut self, words: &'static str) -> Self {
        self.words = words;
        self
    }
}

fn replaced(path: &str, value: Value) -> Value {
    json!([{ "op": "replace", "path": path, "value": value }])
}

/// A Deployment of another program, which asks for no pods.
fn deployment(name: &str) -> Value {
    let labels = json!({ "app": name });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": {
            "replicas": 0, "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "main", "image": "none" }] },
            },
        },
    })
}

fn quota(name: &str, hard: &[(&str, &str)]) -> Value {
    serde_json::to_value(objects::quota(name, hard)).unwrap()
}

/// The first item of `list` at `path` for which `is` holds.
async fn place(scene: &Scene<'_>, path: &str, list: &str, is: impl Fn(&Value) -> bool) -> usize {
    let object = get(&scene.client, path).await.unwrap().body;
    object[list].as_array().unwrap().iter().position(is).unwrap()
}

/// All of them.
pub async fn all(scene: &Scene<'_>) -> Vec<Fault> {
    let mut all = objects_of_admission(scene).await;
    all.extend(processes());
    all.extend(rights_and_kinds(scene).await);
    all.extend(configuration(scene));
    all
}

async fn objects_of_admission(scene: &Scene<'_>) -> Vec<Fault> {
    let mutating = format!("{ADMISSION}/mutatingwebhookconfigurations/{}", names::MUTATING_CONFIG);
    let validating = format!("{ADMISSION}/validatingwebhookconfigurations/{}", names::VALIDATING_CONFIG);
    let binding = format!("{ADMISSION}/validatingadmissionpolicybindings/{}", names::PAUSE_POLICY);
    let is_selective = |entry: &Value| entry["namespaceSelector"]["matchExpressions"].is_array();
    let selective = place(scene, &mutating, "webhooks", is_selective).await;
    let foreign = json!(ByteString(scene.bed.ca_pem().as_bytes().to_vec()));
    let options = home("api/v1", &format!("configmaps/{}", names::OPERATOR));
    let nonsense = json!([{ "op": "add", "path": "/data/options.yaml", "value": "gating: both" }]);
    vec![
        fault("a webhook configuration is missing", "failed", "webhooks", Make::Gone(validating)),
        fault(
            "a webhook trusts another authority",
            "failed",
            "webhooks",
            Make::Changed(mutating.clone(), replaced("/webhooks/0/clientConfig/caBundle", foreign)),
        ),
        fault(
            "the selector of a webhook was emptied",
            "failed",
            "webhooks",
            Make::Changed(mutating, replaced(&format!("/webhooks/{selective}/namespaceSelector"), json!({}))),
        ),
        fault("the binding of a policy was deleted", "failed", "admission policies", Make::Gone(binding)),
        fault("the options cannot be read", "failed", "options", Make::Changed(options, nonsense)),
    ]
}

fn processes() -> Vec<Fault> {
    let service = home("api/v1", &format!("services/{}", names::WEBHOOK));
    let elsewhere = vec!["elsewhere.example".to_owned()];
    let here = vec!["127.0.0.1".to_owned()];
    vec![
        fault("nobody holds the lease", "failed", "leader", Make::NoController),
        fault("the leader does not renew", "failed", "leader", Make::ControllerStands),
        fault("no operator leads", "failed", "leading operator", Make::NoOperator),
        fault("no pod of the webhook is ready", "failed", names::WEBHOOK, Make::NoWebhookPods),
        fault("the webhook does not answer", "failed", "webhook answers", Make::NoWebhook),
        fault(
            "the certificate is for another host",
            "failed",
            "webhook answers",
            Make::Certificate(elsewhere, 0),
        )
        .saying("tls: "),
        fault("the certificate has expired", "failed", "webhook answers", Make::Certificate(here, 400))
            .saying("tls: "),
        fault(
            "the Service selects no pod",
            "failed",
            "webhook service",
            Make::Changed(service, replaced("/spec/selector", json!({ "app": "theirs" }))),
        ),
        fault("a clock is far off", "failed", "clocks", Make::Clock(600)),
        fault("the API server is too old", "failed", "kubernetes", Make::Version("30")),
    ]
}

async fn rights_and_kinds(scene: &Scene<'_>) -> Vec<Fault> {
    let role = format!("{RBAC}/clusterroles/{}", names::CONTROLLER);
    let rule =
        place(scene, &role, "rules", |rule| rule["resources"] == json!(["subjectaccessreviews"])).await;
    let field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/infra";
    let flow = format!("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/{}", names::FLOW);
    let deployments = format!("/apis/apps/v1/namespaces/{}/deployments", scene.team);
    vec![
        fault(
            "a right is missing",
            "failed",
            "rights",
            Make::Changed(role, json!([{ "op": "remove", "path": format!("/rules/{rule}") }])),
        ),
        fault("a CRD is missing", "failed", "custom resources", Make::Gone(MTQ_DEFINITION.to_owned())),
        fault(
            "a CRD is too old",
            "failed",
            "custom resources",
            Make::Changed(MTQ_DEFINITION.to_owned(), json!([{ "op": "remove", "path": field }])),
        ),
        fault("the FlowSchema is missing", "failed", "priority of requests", Make::Gone(flow)),
        fault(
            "application-aware-quota runs beside",
            "failed",
            "no other operator",
            Make::Made(deployments.clone(), deployment("aaq-controller")),
        ),
        fault(
            "managed-tenant-quota runs beside",
            "failed",
            "no other operator",
            Make::Made(deployments, deployment("mtq-operator")),
        ),
    ]
}

fn configuration(scene: &Scene<'_>) -> Vec<Fault> {
    let aaq = format!("/apis/{}/aaqs/{}", names::API_VERSION, names::AAQ_NAME);
    let quotas =
        |namespace: &str| format!("/apis/{}/namespaces/{namespace}/{}", names::API_VERSION, names::ARQS);
    let hidden = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "apiserver-hidden", "labels": { "apiserver.kubernetes.io/identity": "kube-apiserver" } },
        "spec": { "holderIdentity": "hidden", "leaseDurationSeconds": 3_600 },
    });
    let pause = json!([{ "op": "add", "path": "/metadata/annotations", "value": {
        names::PAUSED_ANNOTATION: scene.time(3_600), names::PAUSED_SINCE_ANNOTATION: scene.time(0),
    } }]);
    vec![
        fault(
            "the phase of the AAQ is Error",
            "failed",
            "configuration",
            Make::Changed(format!("{aaq}/status"), replaced("/status/phase", json!("Error"))),
        ),
        fault("there is a second AAQ", "failed", "configuration", Make::SecondAaq),
        fault("an API server cannot be addressed", "failed", "head-room", Make::HiddenServer(hidden)),
        fault(
            "an exempt namespace has a quota",
            "warning",
            "quotas",
            Make::Made(quotas(names::INSTALL_NAMESPACE), quota("exempt", &[("pods", "5")])),
        ),
        fault(
            "nothing counts a key of a quota",
            "warning",
            "quotas",
            Make::Made(quotas(&scene.team.name), quota("uncounted", &[("example.com/license", "3")])),
        ),
        fault(
            "a namespace is paused",
            "warning",
            "pauses",
            Make::Changed(format!("/api/v1/namespaces/{}", scene.team), pause),
        ),
    ]
}
