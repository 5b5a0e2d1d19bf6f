//! Containers that `Evaluator`s name: the operator runs them beside the controller, who may not run programs there names,
//! changes and ends none, and no `Evaluator` keeps the controller from being written.

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{JSON, MERGE, call, get, post};
use sluice_testbed::{Bed, BedOptions, wait};

use crate::context::SOON;
use crate::operator_cr::{
    AAQS, created, deployment_path, installed, until_condition, until_pods, until_rolled, until_told,
};

const EVALUATORS: &str = "/apis/quota.sluice.dev/v1alpha1/evaluators";
const SOCKETS: &str = "/var/run/aaq-sockets";
const IMAGE: &str = "registry.example.com/label:1";
const FORBIDDEN: &str = "forbidden.example.com/label:1";

fn evaluator(name: &str, sidecar: &Value) -> Value {
    json!({
        "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "Evaluator", "metadata": { "name": name },
        "spec": { "sidecar": sidecar },
    })
}

/// That of the operator's condition `Degraded`.
async fn message(client: &Client) -> String {
    let aaq = get(client, &format!("{AAQS}/{}", names::AAQ_NAME)).await.unwrap().body;
    let conditions = aaq["status"]["conditions"].as_array().unwrap().clone();
    let said = conditions.into_iter().find(|said| said["type"] == names::DEGRADED).unwrap();
    said["message"].as_str().unwrap_or_default().to_owned()
}

async fn delete(client: &Client, path: &str) {
    let answer = call(client, Method::DELETE, path, JSON, &json!({})).await.unwrap();
    assert!(answer.is_ok(), "{answer:?}");
}

/// A container of the controller's pods.
fn container<'p>(pod: &'p Value, name: &str) -> Option<&'p Value> {
    pod["containers"].as_array()?.iter().find(|it| it["name"] == name)
}

fn is_asked(pod: &Value, name: &str) -> bool {
    let flag = json!(format!("--evaluator-of-object={name}={SOCKETS}/evaluator-{name}"));
    pod["containers"][0]["args"].as_array().is_some_and(|args| args.contains(&flag))
}

#[tokio::test(flavor = "multi_thread")]
async fn its_container_comes_and_goes_with_it_and_what_keeps_it_from_running_is_said() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    let _running = installed(&bed).await;
    let client = bed.admin().unwrap();
    created(&client, AAQS, "AAQ", names::AAQ_NAME).await;
    until_condition(&bed, "aaq/aaq", "Available").await;
    let sidecar = json!({
        "image": IMAGE, "args": ["--config", "double"], "env": [{ "name": "A", "value": "a" }, { "name": "B" }],
        "resources": { "requests": { "memory": "65536Ki", "cpu": 1 } },
    });
    let answer = post(&client, EVALUATORS, &evaluator("label", &sidecar)).await.unwrap();
    assert_eq!(answer.code, 201, "{answer:?}");
    let runs = |pod: &Value| {
        let Some(container) = container(pod, "label") else { return false };
        is_asked(pod, "label")
            && container["image"] == IMAGE
            && container["resources"]["limits"]["memory"] == "64Mi"
            && container["securityContext"]["allowPrivilegeEscalation"] == false
            && container["volumeMounts"] == json!([{ "mountPath": SOCKETS, "name": "evaluator-label" }])
    };
    until_pods(&bed, names::CONTROLLER, SOON, "the container beside the controller", runs).await;
    let deployment = get(&client, &deployment_path(names::CONTROLLER)).await.unwrap().body;
    let strategy = &deployment["spec"]["strategy"]["rollingUpdate"];
    assert_eq!(
        (&strategy["maxUnavailable"], &strategy["maxSurge"]),
        (&json!(0), &json!(1)),
        "old pods go on"
    );
    until_rolled(&bed).await;
    let aaq = format!("{AAQS}/{}", names::AAQ_NAME);
    let not_degraded = (names::DEGRADED, "False", "DeployCompleted");
    until_told(&client, &aaq, "Deployed", not_degraded).await;

    // A new pod is not made.
    let quotas = format!("/api/v1/namespaces/{}/resourcequotas", names::INSTALL_NAMESPACE);
    let full = json!({ "metadata": { "name": "full" }, "spec": { "hard": { "pods": "0" } } });
    assert_eq!(post(&client, &quotas, &full).await.unwrap().code, 201);
    let one = format!("{quotas}/full");
    let is_counted =
        || async { (get(&client, &one).await.ok()?.body["status"]["hard"]["pods"] == "0").then_some(()) };
    wait::eventually(SOON, is_counted, "the quota to be in force").await.unwrap();
    let path = format!("{EVALUATORS}/label");
    let change = json!({ "spec": { "sidecar": { "args": ["--config", "triple"] } } });
    assert!(call(&client, Method::PATCH, &path, MERGE, &change).await.unwrap().is_ok());
    until_told(&client, &aaq, "Deployed", (names::DEGRADED, "True", "ContainersDoNotRun")).await;
    let said = message(&client).await;
    let why = "Deployment sluice-controller: a new pod is forbidden: exceeded quota: full";
    assert!(said.contains(why), "{said}");
    delete(&client, &one).await;
    until_rolled(&bed).await;
    until_told(&client, &aaq, "Deployed", not_degraded).await;

    delete(&client, &path).await;
    let is_alone = |pod: &Value| container(pod, "label").is_none() && !is_asked(pod, "label");
    until_pods(&bed, names::CONTROLLER, SOON, "the controller alone", is_alone).await;
}

/// A policy of the cluster refuses Deployments with this image.
async fn forbid(bed: &Bed, client: &Client) {
    let (version, name) = ("admissionregistration.k8s.io/v1", "forbidden-images");
    let policy = json!({
        "apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": { "name": name },
        "spec": {
            "matchConstraints": { "resourceRules": [{
                "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"],
                "operations": ["CREATE", "UPDATE"],
            }] },
            "validations": [{
                "expression": format!("object.spec.template.spec.containers.all(c, c.image != '{FORBIDDEN}')"),
                "message": "this image is forbidden",
            }],
        },
    });
    let binding = json!({
        "apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": { "name": name },
        "spec": { "policyName": name, "validationActions": ["Deny"] },
    });
    bed.apply_objects([policy, binding]).await.unwrap();
    let path = format!("{}?dryRun=All", deployment_path(names::CONTROLLER));
    let with = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "x", "image": FORBIDDEN }] } } } });
    let is_refused = || async {
        let answer = call(client, Method::PATCH, &path, MERGE, &with).await.ok()?;
        answer.message().contains("this image is forbidden").then_some(())
    };
    wait::eventually(SOON, is_refused, "the policy to be in force").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_api_server_does_not_take_keeps_neither_the_controller_nor_other_containers_from_being_written()
 {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    let _running = installed(&bed).await;
    let client = bed.admin().unwrap();
    created(&client, AAQS, "AAQ", names::AAQ_NAME).await;
    until_condition(&bed, "aaq/aaq", "Available").await;
    forbid(&bed, &client).await;
    for (name, image) in [("bad", FORBIDDEN), ("good", IMAGE)] {
        let sidecar = json!({ "image": image });
        assert_eq!(post(&client, EVALUATORS, &evaluator(name, &sidecar)).await.unwrap().code, 201);
    }
    // It is asked all the same: its pods wait.
    let is_left_out = |pod: &Value| {
        is_asked(pod, "bad") && container(pod, "bad").is_none() && container(pod, "good").is_some()
    };
    until_pods(&bed, names::CONTROLLER, SOON, "the other container", is_left_out).await;
    let aaq = format!("{AAQS}/{}", names::AAQ_NAME);
    until_told(&client, &aaq, "Deployed", (names::DEGRADED, "True", "EvaluatorsDoNotRun")).await;
    let said = message(&client).await;
    assert!(said.starts_with("the container of the Evaluator bad is left out, and pods that"), "{said}");
    assert!(said.contains("this image is forbidden") && !said.contains("good"), "{said}");
    let class = json!({ "spec": { "priorityClass": "system-node-critical" } });
    assert!(call(&client, Method::PATCH, &aaq, MERGE, &class).await.unwrap().is_ok());
    let is_written = |pod: &Value| pod["priorityClassName"] == "system-node-critical" && is_left_out(pod);
    until_pods(&bed, names::CONTROLLER, SOON, "what else is asked", is_written).await;

    let path = format!("{EVALUATORS}/bad");
    let corrected = json!({ "spec": { "sidecar": { "image": IMAGE } } });
    assert!(call(&client, Method::PATCH, &path, MERGE, &corrected).await.unwrap().is_ok());
    let both = |pod: &Value| container(pod, "bad").is_some() && container(pod, "good").is_some();
    until_pods(&bed, names::CONTROLLER, SOON, "both containers", both).await;
    until_rolled(&bed).await;
    until_told(&client, &aaq, "Deployed", (names::DEGRADED, "False", "DeployCompleted")).await;
}

/// What is refused, by the webhook or by the schema, each with the field and what to do.
#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_run_is_refused_by_field() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    let _running = installed(&bed).await;
    let client = bed.admin().unwrap();
    created(&client, AAQS, "AAQ", names::AAQ_NAME).await;
    until_condition(&bed, "aaq/aaq", "Gating").await;
    let with = |field: &str, value: Value| json!({ "image": IMAGE, field: value });
    let amounts =
        |requests: Value, limits: Value| with("resources", json!({ "requests": requests, "limits": limits }));
    let named = "metadata.name: that of an Evaluator with an image has 1 to 40 lower case letters";
    for (name, sidecar, said) in [
        ("a.b", json!({ "image": IMAGE }), named),
        ("refused-0", json!({ "image": IMAGE }), named),
        ("sluice-controller", json!({ "image": IMAGE }), named),
        (&*"a".repeat(41), json!({ "image": IMAGE }), named),
        ("a", json!({ "image": "" }), "spec.sidecar.image"),
        ("a", json!({ "image": "two words" }), "spec.sidecar.image"),
        ("a", json!({ "image": "label:1\n" }), "spec.sidecar.image"),
        (
            "a",
            json!({ "args": ["-v"] }),
            "args is of the container that image names: name its image, or remove args",
        ),
        ("a", with("args", json!(["a".repeat(513)])), "spec.sidecar.args[0]"),
        ("a", with("env", json!([{ "name": "" }])), "spec.sidecar.env[0].name"),
        ("a", with("env", json!([{ "name": "A=B" }])), "spec.sidecar.env[0].name"),
        ("a", with("env", json!([{ "name": ".." }])), "spec.sidecar.env[0].name"),
        ("a", with("env", json!([{ "name": "A" }, { "name": "A" }])), "spec.sidecar.env[1]"),
        ("a", amounts(json!({ "memory": "much" }), json!({})), "spec.sidecar.resources.requests.memory"),
        ("a", amounts(json!({ "cpu": "-1" }), json!({})), "it is negative: write an amount that is not"),
        ("a", amounts(json!({}), json!({ "memory": -1 })), "it is negative: write an amount that is not"),
        (
            "a",
            amounts(json!({ "memory": "2Gi" }), json!({ "memory": "1024Mi" })),
            "it is above limits.memory: request no more than the limit",
        ),
        ("a", amounts(json!({ "cpu": 2 }), json!({ "cpu": "1500m" })), "it is above limits.cpu"),
    ] {
        let answer = post(&client, EVALUATORS, &evaluator(name, &sidecar)).await.unwrap();
        assert!([403, 422].contains(&answer.code) && answer.message().contains(said), "{said}: {answer:?}");
    }
    // What would give it more is no field: a client that asks for strictness is told so.
    let unknown = [
        "volumeMounts",
        "volumeDevices",
        "securityContext",
        "ports",
        "livenessProbe",
        "lifecycle",
        "envFrom",
    ];
    let unknown = unknown.map(|field| (field.to_owned(), with(field, Value::Null)));
    let sources = ["secretKeyRef", "configMapKeyRef", "fileKeyRef", "fieldRef"].map(|source| {
        let variable = json!({ "name": "A", "valueFrom": { source: { "name": "s", "key": "k" } } });
        ("env[0].valueFrom".to_owned(), with("env", json!([variable])))
    });
    let claims = ("resources.claims".to_owned(), with("resources", json!({ "claims": [] })));
    let gpu = json!({ "limits": { "example.com/gpu": "1" } });
    let gpu = ("resources.limits.example.com/gpu".to_owned(), with("resources", gpu));
    for (field, sidecar) in unknown.into_iter().chain(sources).chain([claims, gpu]) {
        let path = format!("{EVALUATORS}?fieldValidation=Strict");
        let answer = post(&client, &path, &evaluator("a", &sidecar)).await.unwrap();
        let said = format!("unknown field \"spec.sidecar.{field}\"");
        assert!(answer.code == 400 && answer.message().contains(&said), "{answer:?}");
    }
    // What the schema lets through the pods take: the largest that may be.
    let variables: Vec<_> =
        (0..32).map(|n| json!({ "name": format!("A.b-{n}"), "value": "a".repeat(512) })).collect();
    let most = json!({
        "image": IMAGE, "args": vec!["a".repeat(512); 32], "env": variables,
        "resources": { "requests": { "cpu": "0", "memory": "1.5" }, "limits": { "cpu": "1e3", "memory": "1Ti" } },
    });
    assert_eq!(post(&client, EVALUATORS, &evaluator(&"a".repeat(40), &most)).await.unwrap().code, 201);
    let runs = |pod: &Value| container(pod, &"a".repeat(40)).is_some();
    until_pods(&bed, names::CONTROLLER, SOON, "the largest container", runs).await;
}

/// A user with these verbs on `Evaluator`s, once they are in force.
async fn user(bed: &Bed, name: &str, verbs: &[&str]) -> Client {
    let rbac = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": { "name": name },
        "rules": [{ "apiGroups": ["quota.sluice.dev"], "resources": ["evaluators"], "verbs": verbs }],
    });
    let binding = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": name },
        "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": name },
        "subjects": [{ "apiGroup": rbac, "kind": "User", "name": name }],
    });
    bed.apply_objects([role, binding]).await.unwrap();
    let client = bed.client_as_user(name, &[]).unwrap().client().unwrap();
    for verb in verbs {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": { "verb": verb, "group": "quota.sluice.dev", "resource": "evaluators" } },
        });
        let is_allowed = || async {
            let answer = post(&client, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review)
                .await
                .ok()?;
            (answer.body["status"]["allowed"] == true).then_some(())
        };
        wait::eventually(SOON, is_allowed, "the right to be in force").await.unwrap();
    }
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_run_it_names_steers_and_ends_no_container() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    let _running = installed(&bed).await;
    let client = bed.admin().unwrap();
    created(&client, AAQS, "AAQ", names::AAQ_NAME).await;
    until_condition(&bed, "aaq/aaq", "Gating").await;
    let writes = ["get", "create", "update", "patch", "delete"];
    let ruler = user(&bed, "ruler", &writes).await;
    let runner = user(&bed, "runner", &[&writes[..], &["run"]].concat()).await;
    let refused = "spec.sidecar.image: it runs a container beside the controller: have an administrator write or delete it";
    let container = json!({ "image": IMAGE });
    // The policy may not be in force at once.
    let is_refused = || async {
        let path = format!("{EVALUATORS}?dryRun=All");
        let answer = post(&ruler, &path, &evaluator("mine", &container)).await.ok()?;
        (answer.code == 403 && answer.message().contains(refused)).then_some(())
    };
    wait::eventually(SOON, is_refused, "who may not run containers to be refused one").await.unwrap();
    assert_eq!(post(&runner, EVALUATORS, &evaluator("theirs", &container)).await.unwrap().code, 201);

    let (mine, theirs) = (format!("{EVALUATORS}/mine"), format!("{EVALUATORS}/theirs"));
    let write = async |who: &Client, path: &str, patch: Value| {
        call(who, Method::PATCH, path, MERGE, &patch).await.unwrap()
    };
    // A policy is none.
    assert_eq!(post(&ruler, EVALUATORS, &evaluator("mine", &json!({}))).await.unwrap().code, 201);
    assert!(write(&ruler, &mine, json!({ "spec": { "sidecar": { "concurrency": 2 } } })).await.is_ok());
    for (path, patch) in [
        (&mine, json!({ "spec": { "sidecar": container } })),
        (&theirs, json!({ "spec": { "sidecar": { "image": "other:1" } } })),
        (&theirs, json!({ "spec": { "sidecar": { "image": null } } })),
        (&theirs, json!({ "spec": { "sidecar": { "args": ["-v"] } } })),
        (&theirs, json!({ "spec": { "sidecar": { "env": [{ "name": "A", "value": "a" }] } } })),
        (&theirs, json!({ "spec": { "sidecar": { "timeout": "50ms" } } })),
        (&theirs, json!({ "spec": { "mode": "Off" } })),
        (&theirs, json!({ "spec": { "podSelector": { "matchLabels": { "a": "b" } } } })),
    ] {
        let answer = write(&ruler, path, patch.clone()).await;
        assert!(answer.code == 403 && answer.message().contains(refused), "{patch}: {answer:?}");
    }
    let answer = call(&ruler, Method::DELETE, &theirs, JSON, &json!({})).await.unwrap();
    assert!(answer.code == 403 && answer.message().contains(refused), "{answer:?}");
    let labelled = json!({ "metadata": { "labels": { "team": "a" } } });
    assert!(write(&ruler, &theirs, labelled).await.is_ok(), "labels steer nothing");
    delete(&ruler, &mine).await;

    assert!(write(&runner, &theirs, json!({ "spec": { "mode": "Off" } })).await.is_ok());
    assert!(write(&runner, &theirs, json!({ "spec": { "sidecar": { "image": null } } })).await.is_ok());
    // Without a container it is as any other.
    delete(&ruler, &theirs).await;
}
