//! Rights: enough for everything that the other suites do (they run with nothing else), and no more.

mod asked;
mod people;
mod rights;

use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;
use sluice_api::names;
use sluice_e2e::call::{MERGE, call};
use sluice_e2e::objects;

use crate::context::shared;
use crate::team::Team;
use asked::{check, granted, set};
use rights::{
    CONTROLLER_AT_HOME, CONTROLLER_EVERYWHERE, HEADROOM_EVERYWHERE, MANAGED_CLUSTER_QUOTAS, NOT_FOR_HEADROOM,
    NOT_FOR_THE_CONTROLLER, NOT_FOR_THE_WEBHOOK, OPERATOR_AT_HOME, OPERATOR_EVERYWHERE, READ_ELSEWHERE,
    WEBHOOK_EVERYWHERE,
};

const OWN: &str = names::INSTALL_NAMESPACE;

#[tokio::test]
async fn the_controller_has_exactly_these_rights() {
    let bed = shared().await.bed;
    let identity = bed.service_account(OWN, names::CONTROLLER).await.unwrap();
    let everywhere = [CONTROLLER_EVERYWHERE, HEADROOM_EVERYWHERE].concat();
    assert_eq!(granted(bed, &identity, "").await, set(&everywhere));
    let own = [&everywhere[..], CONTROLLER_AT_HOME].concat();
    assert_eq!(granted(bed, &identity, OWN).await, set(&own));
    check(&identity, READ_ELSEWHERE, true).await;
    // Nothing is served there; a plugin asks for it where an object is to block the deletion of its owner.
    check(&identity, &["update aaq.kubevirt.io:applicationawareresourcequotas/finalizers default q"], true)
        .await;
    check(&identity, MANAGED_CLUSTER_QUOTAS, true).await;
    check(&identity, NOT_FOR_HEADROOM, false).await;
}

#[tokio::test]
async fn the_operator_has_exactly_these_rights() {
    let bed = shared().await.bed;
    let identity = bed.service_account(OWN, names::OPERATOR).await.unwrap();
    assert_eq!(granted(bed, &identity, "").await, set(OPERATOR_EVERYWHERE));
    let own = [OPERATOR_EVERYWHERE, OPERATOR_AT_HOME].concat();
    assert_eq!(granted(bed, &identity, OWN).await, set(&own));
    check(&identity, NOT_FOR_HEADROOM, false).await;
}

#[tokio::test]
async fn the_webhook_has_exactly_these_rights() {
    let bed = shared().await.bed;
    let identity = bed.service_account(OWN, names::WEBHOOK).await.unwrap();
    let everywhere = [WEBHOOK_EVERYWHERE, HEADROOM_EVERYWHERE].concat();
    assert_eq!(granted(bed, &identity, "").await, set(&everywhere));
    assert_eq!(granted(bed, &identity, OWN).await, set(&everywhere));
    check(&identity, READ_ELSEWHERE, true).await;
    check(&identity, &[NOT_FOR_HEADROOM, NOT_FOR_THE_WEBHOOK].concat(), false).await;
    check(
        &identity,
        &[
            "get :secrets sluice-system sluice-webhook-cert",
            "watch :secrets sluice-system sluice-webhook-cert",
            // Whether the kind exists.
            "list quota.openshift.io:clusterresourcequotas - probe",
            "watch quota.openshift.io:clusterresourcequotas - probe",
        ],
        true,
    )
    .await;
    let refused = [
        "get :secrets sluice-system sluice-ca",
        "update :secrets sluice-system sluice-webhook-cert",
        "get :secrets default sluice-webhook-cert",
        "get :pods default",
        "patch :pods default p",
        "create :resourcequotas default",
        "patch :resourcequotas default rq",
        "delete :resourcequotas default rq",
        "list quota.openshift.io:clusterresourcequotas",
        "create quota.openshift.io:clusterresourcequotas",
        "patch quota.openshift.io:clusterresourcequotas - probe",
        "list :limitranges",
        "list :events",
        "patch quota.sluice.dev:headroompolicies/status - p",
        "patch quota.sluice.dev:evaluators - e",
        "run quota.sluice.dev:evaluators - e",
        "patch quota.sluice.dev:evaluators/status - e",
        "patch mtq.kubevirt.io:virtualmachinemigrationresourcequotas/status default q",
        "list admissionregistration.k8s.io:validatingwebhookconfigurations",
        "create admissionregistration.k8s.io:validatingwebhookconfigurations",
        "create admissionregistration.k8s.io:validatingadmissionpolicies",
        "create admissionregistration.k8s.io:mutatingadmissionpolicies",
        "create quota.sluice.dev:gateprobes",
        "patch admissionregistration.k8s.io:validatingadmissionpolicies - sluice-headroom-charge",
        "update admissionregistration.k8s.io:mutatingwebhookconfigurations - gating-mutator",
        "update coordination.k8s.io:leases sluice-system sluice-controller",
    ];
    check(&identity, &refused, false).await;
}

#[tokio::test]
async fn the_controllers_rights_on_named_objects_end_with_these_names() {
    let identity = shared().await.bed.service_account(OWN, names::CONTROLLER).await.unwrap();
    let lease = "coordination.k8s.io:leases";
    let granted = [
        format!("get {lease} {OWN} sluice-controller"),
        format!("update {lease} {OWN} sluice-controller"),
        format!("watch :secrets {OWN} sluice-webhook-cert"),
    ];
    check(&identity, &granted.each_ref().map(String::as_str), true).await;
    check(&identity, NOT_FOR_THE_CONTROLLER, false).await;
}

#[tokio::test]
async fn the_operators_rights_on_named_objects_end_with_these_names() {
    let identity = shared().await.bed.service_account(OWN, names::OPERATOR).await.unwrap();
    let hooks = "admissionregistration.k8s.io:mutatingwebhookconfigurations";
    let validating = "admissionregistration.k8s.io:validatingwebhookconfigurations";
    let lease = "coordination.k8s.io:leases";
    let granted = [
        format!("patch {hooks} - gating-mutator"),
        format!("watch {hooks} - gating-mutator"),
        format!("patch {validating} - aaq-validator"),
        "patch admissionregistration.k8s.io:validatingadmissionpolicies - sluice-headroom-charge".to_owned(),
        "watch admissionregistration.k8s.io:validatingadmissionpolicies - sluice-headroom-charge".to_owned(),
        "patch admissionregistration.k8s.io:validatingadmissionpolicybindings - sluice-headroom-lock"
            .to_owned(),
        "patch admissionregistration.k8s.io:mutatingadmissionpolicies - sluice-gate".to_owned(),
        "patch admissionregistration.k8s.io:mutatingadmissionpolicybindings - sluice-stamp".to_owned(),
        "patch admissionregistration.k8s.io:validatingadmissionpolicies - sluice-guard".to_owned(),
        "patch admissionregistration.k8s.io:validatingadmissionpolicybindings - sluice-gated".to_owned(),
        "watch rbac.authorization.k8s.io:clusterroles - sluice-operator".to_owned(),
        // Which OwnerReferencesPermissionEnforcement asks of an account that makes them go with its role.
        format!("delete {hooks} - gating-mutator"),
        "delete admissionregistration.k8s.io:mutatingadmissionpolicies - sluice-gate".to_owned(),
        "delete admissionregistration.k8s.io:validatingadmissionpolicybindings - sluice-headroom-lock"
            .to_owned(),
        format!("get {lease} {OWN} sluice-operator"),
        format!("update {lease} {OWN} sluice-operator"),
        format!("get :secrets {OWN} sluice-ca"),
        format!("update :secrets {OWN} sluice-ca"),
        format!("update :secrets {OWN} sluice-webhook-cert"),
        format!("watch apps:deployments {OWN} sluice-operator"),
        format!("patch apps:deployments {OWN} sluice-controller"),
        format!("patch apps:deployments {OWN} sluice-webhook"),
        format!("delete apps:deployments {OWN} sluice-webhook"),
        format!("patch :services {OWN} sluice-metrics"),
        format!("patch :resourcequotas {OWN} sluice-headroom-proof"),
        "delete flowcontrol.apiserver.k8s.io:flowschemas - sluice".to_owned(),
        // Its own, which it takes back.
        "delete aaq.kubevirt.io:aaqs - aaq".to_owned(),
        // None is made where another program keeps the definition.
        "watch apiextensions.k8s.io:customresourcedefinitions - aaqs.aaq.kubevirt.io".to_owned(),
        // Of objects without a namespace.
        "create events.k8s.io:events default".to_owned(),
    ];
    check(&identity, &granted.each_ref().map(String::as_str), true).await;
    let refused = [
        "delete aaq.kubevirt.io:aaqs - aaq-kubevirt-hyperconverged".to_owned(),
        "delete mtq.kubevirt.io:mtqs - mtq".to_owned(),
        // Rights where the AAQ installs (--installation=cr).
        "list :pods".to_owned(),
        "create events.k8s.io:events kube-system".to_owned(),
        "delete :resourcequotas default q".to_owned(),
        format!("patch apps:deployments {OWN} sluice-operator"),
        format!("delete apps:deployments {OWN} sluice-operator"),
        format!("update apps:deployments {OWN} sluice-webhook"),
        "create apps:deployments default".to_owned(),
        "list apps:deployments".to_owned(),
        "patch apps:deployments default sluice-webhook".to_owned(),
        format!("patch policy:poddisruptionbudgets {OWN} sluice-operator"),
        format!("patch networking.k8s.io:networkpolicies {OWN} sluice-operator"),
        format!("patch :services {OWN} other"),
        format!("patch :resourcequotas {OWN} sluice-critical-pods"),
        "patch flowcontrol.apiserver.k8s.io:flowschemas - exempt".to_owned(),
        "delete flowcontrol.apiserver.k8s.io:prioritylevelconfigurations - exempt".to_owned(),
        format!("patch {hooks} - somebody-elses"),
        format!("patch {validating} - gating-mutator"),
        format!("delete {hooks} - somebody-elses"),
        format!("delete {validating} - lock.team-a.com"),
        format!("list {validating}"),
        "patch admissionregistration.k8s.io:validatingadmissionpolicies - other".to_owned(),
        "patch admissionregistration.k8s.io:mutatingadmissionpolicies - other".to_owned(),
        "delete admissionregistration.k8s.io:mutatingadmissionpolicies - other".to_owned(),
        "list rbac.authorization.k8s.io:clusterroles".to_owned(),
        "get rbac.authorization.k8s.io:clusterroles - cluster-admin".to_owned(),
        "update rbac.authorization.k8s.io:clusterroles - sluice-operator".to_owned(),
        "get coordination.k8s.io:leases kube-system other".to_owned(),
        format!("update {lease} {OWN} other"),
        format!("delete {lease} {OWN} sluice-operator"),
        format!("update {lease} kube-system sluice-operator"),
        format!("get :secrets {OWN} other"),
        format!("get :secrets {OWN}"),
        format!("list :secrets {OWN}"),
        "list :secrets".to_owned(),
        format!("delete :secrets {OWN} sluice-ca"),
        "get :secrets default sluice-ca".to_owned(),
        "create :pods default".to_owned(),
        "delete :pods default p".to_owned(),
        "get :pods default p".to_owned(),
        "patch :pods default p".to_owned(),
        "patch :resourcequotas/status default q".to_owned(),
        "get :namespaces - default".to_owned(),
        "create :pods/exec default p".to_owned(),
        "create :pods/binding default p".to_owned(),
        "update :pods/status default p".to_owned(),
        "create :serviceaccounts/token kube-system default".to_owned(),
        "impersonate :users - admin".to_owned(),
        "escalate rbac.authorization.k8s.io:clusterroles".to_owned(),
        "bind rbac.authorization.k8s.io:clusterroles - cluster-admin".to_owned(),
        "get :nodes".to_owned(),
        "update :resourcequotas default".to_owned(),
        "create :resourcequotas default".to_owned(),
        "patch :resourcequotas default rq".to_owned(),
        "delete :resourcequotas default rq".to_owned(),
        "update :resourcequotas/status default".to_owned(),
        "update aaq.kubevirt.io:applicationawareresourcequotas default q".to_owned(),
        "delete aaq.kubevirt.io:applicationawareresourcequotas default q".to_owned(),
        "update aaq.kubevirt.io:aaqs - aaq".to_owned(),
    ];
    check(&identity, &refused.each_ref().map(String::as_str), false).await;
}

fn code<T: std::fmt::Debug>(answer: kube::Result<T>) -> u16 {
    match answer {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn what_is_not_granted_is_refused_for_real() {
    let bed = shared().await.bed;
    let team = Team::on(bed, "refused").await;
    team.quota("q", &[("pods", "0")]).await;
    team.pod("p", &[]).await;
    let namespace = &team.namespace.name;
    let quota =
        format!("/apis/aaq.kubevirt.io/v1alpha1/namespaces/{namespace}/applicationawareresourcequotas/q");
    for name in [names::CONTROLLER, names::WEBHOOK, names::OPERATOR] {
        let client = bed.service_account(OWN, name).await.unwrap().client().unwrap();
        let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), namespace);
        assert_eq!(code(pods.create(&PostParams::default(), &objects::pod("x", &[])).await), 403, "{name}");
        assert_eq!(code(pods.delete("p", &DeleteParams::default()).await), 403, "{name}");
        let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(client.clone(), OWN);
        assert_eq!(code(secrets.list(&ListParams::default()).await), 403, "{name}");
        assert_eq!(code(secrets.get("other").await), 403, "{name}");
        let raised = json!({"spec": {"hard": {"pods": "9"}}});
        let answer = call(&client, http::Method::PATCH, &quota, MERGE, &raised).await.unwrap();
        assert_eq!(answer.code, 403, "{name}: {answer:?}");
    }
    let webhook = bed.service_account(OWN, names::WEBHOOK).await.unwrap().client().unwrap();
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(webhook, namespace);
    assert_eq!(code(pods.get("p").await), 403);
    assert_eq!(team.held().await, ["p"]);
}
