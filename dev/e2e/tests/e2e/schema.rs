//! No controller leads on a CRD that drops what it records, and it goes on when the CRD is right again.

use http::Method;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{JSON, Response, call, get};
use sluice_testbed::{Bed, BedOptions, wait};

use crate::context::SOON;
use crate::operator_cr::{AAQS, created, installed, until_condition, until_told};
use crate::team::Team;

const CRD: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/applicationawareresourcequotas.aaq.kubevirt.io";
const STATUS: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";

/// Writes the CRD with this schema of the status; returns what it was before.
async fn change(client: &kube::Client, fields: impl Fn(&Value) -> Value) -> Value {
    let changed = || async {
        let mut crd = get(client, CRD).await.ok()?.body;
        let status = crd.pointer_mut(STATUS)?;
        let before = status.clone();
        *status = fields(&before);
        call(client, Method::PUT, CRD, JSON, &crd).await.ok().filter(Response::is_ok)?;
        Some(before)
    };
    wait::eventually(SOON, changed, "the CRD to be changed").await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_controller_leads_on_a_schema_that_drops_charges() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    let mut running = installed(&bed).await;
    let client = bed.admin().unwrap();
    created(&client, AAQS, "AAQ", names::AAQ_NAME).await;
    until_condition(&bed, "aaq/aaq", "Available").await;
    let team = Team::on(&bed, "records").await;
    team.quota("compute", &[("requests.cpu", "1")]).await;
    team.pod("before", &[("cpu", "100m")]).await;
    team.until_released("before").await;

    // As the CRD of application-aware-quota is.
    let ours = change(&client, |fields| json!({ "hard": fields["hard"], "used": fields["used"] })).await;
    let aaq = format!("{AAQS}/{}", names::AAQ_NAME);
    until_told(&client, &aaq, "Deployed", (names::DEGRADED, "True", names::SCHEMA_TOO_OLD)).await;
    let said = get(&client, &aaq).await.unwrap().body["status"]["conditions"].to_string();
    assert!(said.contains("drops status.charges, status.conditions, status.held"), "{said}");
    assert_eq!(running.controller.program.wait().await.code, 0, "it ends as by a signal");

    let identity = bed.service_account(names::INSTALL_NAMESPACE, names::CONTROLLER).await.unwrap();
    running.controller = running.installation.spawn_controller(identity.kubeconfig(), &[]).unwrap();
    let waits =
        || async { running.controller.program.log().contains("this process does not lead").then_some(()) };
    wait::eventually(SOON, waits, "the next controller to say that it does not lead").await.unwrap();
    // About the namespace of the installation, which is in no namespace itself.
    let told = || async {
        let all = get(&client, "/apis/events.k8s.io/v1/namespaces/default/events").await.ok()?.body["items"]
            .as_array()?
            .clone();
        all.iter().any(|event| event["reason"] == names::SCHEMA_TOO_OLD).then_some(())
    };
    wait::eventually(SOON, told, "an event about the CRD").await.unwrap();
    let leases: Api<Lease> = Api::namespaced(client.clone(), names::INSTALL_NAMESPACE);
    let holder = leases.get(names::LEASE).await.unwrap().spec.unwrap().holder_identity;
    assert_eq!(holder.unwrap_or_default(), "", "the lease was given back, and nobody took it");

    team.pod("after", &[("cpu", "100m")]).await;
    assert_eq!(team.held().await, ["after"]);
    change(&client, |_| ours.clone()).await;
    team.until_released("after").await;
    team.until_used("compute", "requests.cpu", "200m").await;
    until_told(&client, &aaq, "Deployed", (names::DEGRADED, "False", "DeployCompleted")).await;
    assert!(running.controller.program.is_running());
}
