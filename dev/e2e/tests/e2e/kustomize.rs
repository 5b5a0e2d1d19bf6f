//! An overlay of the bases in `deploy/kustomize`, as `docs/install.md` has it, by `kubectl apply -k`.

use std::path::Path;

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use sluice_api::names;
use sluice_e2e::objects::TARGETED;
use sluice_testbed::{Bed, BedOptions, wait};

use crate::context::{SOON, kubectl, manifest};
use crate::existence::until_gated;
use crate::install;
use crate::packaging::{deploy, way};
use crate::team::Team;

const NAMESPACE: &str = "quota-system";
const IMAGE: &str = "registry.example.com/sluice:0.1.0";

/// A folder with the overlay.
fn overlay(bed: &Bed) -> String {
    let folder = bed.dir().canonicalize().unwrap().join("overlay");
    std::fs::create_dir(&folder).unwrap();
    let base = |name: &str| way(&folder, &deploy(Path::new("kustomize").join(name).to_str().unwrap()));
    let text = format!(
        "resources:\n- {}\n- {}\nnamespace: {NAMESPACE}\n\
         images:\n- {{ name: localhost/sluice, newName: registry.example.com/sluice, newTag: 0.1.0 }}\n\
         patches:\n- target: {{ kind: ConfigMap, name: sluice-operator }}\n  patch: |-\n\
        \x20   - op: replace\n      path: /data/options.yaml\n      value: |\n        balancerProofs: 20\n",
        base("crds").display(),
        base("operator").display(),
    );
    std::fs::write(folder.join("kustomization.yaml"), text).unwrap();
    folder.to_str().unwrap().to_owned()
}

/// What the API server counts as changes of a specification.
async fn generations(bed: &Bed, overlay: &str) -> String {
    let columns = "--output=custom-columns=KIND:.kind,NAME:.metadata.name,GENERATION:.metadata.generation";
    kubectl(bed, &["get", columns, "--kustomize", overlay]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overlay_installs_in_its_namespace_with_its_image_and_options() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    bed.add_nodes(2, &[("cpu", "4"), ("memory", "8Gi")]).await.unwrap();
    let client = bed.admin().unwrap();
    let overlay = overlay(&bed);
    let apply = ["apply", "--server-side", "--kustomize", &overlay];
    kubectl(&bed, &apply).await;
    let before = generations(&bed, &overlay).await;
    assert!(before.lines().count() > 20, "{before}");
    kubectl(&bed, &apply).await;
    assert_eq!(generations(&bed, &overlay).await, before, "the same once more changes nothing");

    // Its pods are simulated: the process runs beside the cluster, with what its pod has.
    let home = format!("--namespace={NAMESPACE}");
    kubectl(&bed, &["rollout", "status", &format!("deployment/{}", names::OPERATOR), &home]).await;
    let selector = format!("--selector=app.kubernetes.io/component={}", names::OPERATOR);
    let first = ["get", "pods", &home, &selector, "--output=jsonpath={.items[0].metadata.name}"];
    let pod = kubectl(&bed, &first).await;
    let text = "--output=jsonpath={.data['options\\.yaml']}";
    let text = kubectl(&bed, &["get", "configmap", names::OPERATOR, &home, text]).await;
    let options = manifest(&bed, "options.yaml", &text);
    let further = [format!("--options={options}"), format!("--pod-name={}", pod.trim())];
    let _operator = install::operator_in(&bed, NAMESPACE, &further).await;

    kubectl(&bed, &["wait", "--for=create", "--timeout=2m", "aaq/aaq"]).await;
    let team = Team::with(&bed, "overlaid", TARGETED).await;
    until_gated(&team, true).await;
    let deployments: Api<Deployment> = Api::namespaced(client, NAMESPACE);
    for name in [names::CONTROLLER, names::WEBHOOK] {
        let is_ours = |deployment: Option<&Deployment>| {
            let pod = deployment.and_then(|deployment| deployment.spec.template.spec.as_ref());
            pod.is_some_and(|pod| {
                let container = &pod.containers[0];
                let has_option =
                    container.args.iter().flatten().any(|argument| argument == "--balancer-proofs=20");
                container.image.as_deref() == Some(IMAGE) && has_option
            })
        };
        wait::wait_for(&deployments, name, SOON, "image and option of the overlay", is_ours).await.unwrap();
    }
}
