//! `sluice bundle` on a real control plane: what explains a held pod is in it, and no secret, wherever that was written.

use std::io::Read as _;
use std::path::Path;
use std::process::Output;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::call::{get, post};
use sluice_e2e::objects::apply_aaq;
use sluice_e2e::simulated_kubelet::{Logs, SimulatedKubelet};
use sluice_e2e::{Installation, Running, Setup, build};
use sluice_testbed::{Bed, wait};

use crate::context::{SOON, idle_bed, shared};
use crate::pages::Pages;
use crate::team::Team;

/// What must not be in a bundle.
const MARKER: &str = "do-not-tell-anybody";
/// A pod of Sluice, and the node that it is on.
const POD: &str = "sluice-controller-5c48449c7-nk5vv";
const NODE: &str = "node-with-logs";

/// Runs the command to its end in a folder of its own.
async fn sluice(bed: &Bed, folder: &Path, arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(build::sluice().unwrap());
    command.arg("bundle").args(arguments).arg("--kubeconfig").arg(bed.admin_kubeconfig()).kill_on_drop(true);
    tokio::time::timeout(SOON, command.current_dir(folder).output()).await.unwrap().unwrap()
}

/// What it printed, without its progress; its exit code has to be this.
async fn said(bed: &Bed, folder: &Path, code: i32, arguments: &[&str]) -> (Vec<u8>, String) {
    let output = sluice(bed, folder, arguments).await;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}{stderr}", text(&output.stdout));
    // A busy machine has some.
    let told = stderr.lines().filter(|line| !line.ends_with(" …")).map(|line| format!("{line}\n"));
    (output.stdout, told.collect())
}

/// A bundle that was unpacked.
struct Unpacked(Vec<(String, String)>);

impl Unpacked {
    /// Paths are those in its one folder.
    fn of(archive: &[u8]) -> Self {
        let mut archive = tar::Archive::new(GzDecoder::new(archive));
        let files = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let (folder, path) = path.split_once('/').unwrap();
            assert!(folder.starts_with("sluice-bundle-"), "{folder}");
            let path = path.to_owned();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            (path, text)
        });
        Self(files.collect())
    }

    fn file(&self, path: &str) -> &str {
        let paths: Vec<&String> = self.0.iter().map(|(path, _)| path).collect();
        let file = self.0.iter().find(|(known, _)| known == path);
        &file.unwrap_or_else(|| panic!("no {path} in {paths:#?}")).1
    }

    /// The documents of a file.
    fn objects(&self, path: &str) -> Vec<Value> {
        serde_saphyr::from_multiple(self.file(path)).unwrap()
    }

    fn index(&self) -> Value {
        serde_json::from_str(self.file("index.json")).unwrap()
    }

    /// The files that have this text.
    fn with(&self, text: &str) -> Vec<&str> {
        self.0.iter().filter(|(_, content)| content.contains(text)).map(|(path, _)| path.as_str()).collect()
    }
}

/// A folder of the bed's, empty.
fn folder(bed: &Bed, name: &str) -> std::path::PathBuf {
    let path = bed.dir().join(name);
    std::fs::create_dir(&path).unwrap();
    path
}

/// Security as the namespace of the installation demands it.
fn restricted(container: Value) -> Value {
    let mut container = container;
    container["securityContext"] = json!({
        "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] }, "runAsNonRoot": true,
        "seccompProfile": { "type": "RuntimeDefault" },
    });
    container
}

/// Objects with a marker wherever a secret may be.
fn planted(team: &str) -> Vec<Value> {
    let secret = |name: &str, kind: &str, key: &str, text: String| {
        let annotations = json!({ "kubernetes.io/service-account.name": "default" });
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": kind, "stringData": { key: text },
            "metadata": { "name": name, "namespace": team, "annotations": annotations },
        })
    };
    let registry = json!({ "auths": { "example.com": { "password": MARKER } } }).to_string();
    vec![
        secret("opaque", "Opaque", "password", MARKER.to_owned()),
        secret("token", "kubernetes.io/service-account-token", "extra", MARKER.to_owned()),
        secret("registry", "kubernetes.io/dockerconfigjson", ".dockerconfigjson", registry),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": { "options.yaml": MARKER },
            "metadata": { "name": "of-others", "namespace": names::INSTALL_NAMESPACE },
        }),
        json!({
            "apiVersion": names::API_VERSION, "kind": "ApplicationAwareResourceQuota",
            "metadata": { "name": "compute", "namespace": team, "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": MARKER,
            } },
            "spec": { "hard": { "requests.cpu": "1" } },
        }),
    ]
}

/// A pod that its quota never lets go.
fn held() -> Value {
    let container = |name: &str| {
        json!({
            "name": name, "image": "none", "command": [MARKER], "args": [MARKER], "workingDir": format!("/{MARKER}"),
            "env": [{ "name": "PASSWORD", "value": MARKER }], "resources": { "requests": { "cpu": "2" } },
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "held", "labels": { "app": "web" }, "annotations": { "example.com/token": MARKER } },
        "spec": {
            "containers": [container("main")], "initContainers": [container("first")],
            "imagePullSecrets": [{ "name": "registry" }],
            "volumes": [{ "name": "v", "csi": { "driver": "x", "volumeAttributes": { "password": MARKER } } }],
        },
    })
}

/// The secret segment of the webhook's paths.
async fn secret_path(bed: &Bed) -> String {
    let path = format!(
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{}",
        names::VALIDATING_CONFIG
    );
    let configuration = get(&bed.admin().unwrap(), &path).await.unwrap().body;
    let url = configuration["webhooks"][0]["clientConfig"]["url"].as_str().unwrap();
    let segment = url.split('/').nth(3).unwrap().to_owned();
    assert_eq!(segment.len(), 32, "{url}");
    segment
}

/// A pod as the Deployment of the controller has them, and its logs.
async fn with_logs(bed: &Bed, secret: &str) -> SimulatedKubelet {
    let logs = Logs::from([
        ((POD, names::CONTROLLER, false), format!("{{\"message\":\"calling https://x/{secret}/growth\"}}\n")),
        (
            (POD, names::CONTROLLER, true),
            "{\"message\":\"the last words of the process before\"}\n".to_owned(),
        ),
        ((POD, "of-others", false), MARKER.to_owned()),
    ]);
    let kubelet = SimulatedKubelet::start(bed, NODE, logs).await.unwrap();
    let container = |name: &str| restricted(json!({ "name": name, "image": "none" }));
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": POD, "labels": { "app.kubernetes.io/part-of": names::APP } },
        "spec": {
            "nodeName": NODE, "automountServiceAccountToken": false, "tolerations": [{ "operator": "Exists" }],
            "containers": [container(names::CONTROLLER), container("of-others")],
        },
    });
    let path = format!("/api/v1/namespaces/{}/pods", names::INSTALL_NAMESPACE);
    let answer = post(&bed.admin().unwrap(), &path, &pod).await.unwrap();
    assert!(answer.is_ok(), "{answer:?}");
    kubelet
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bundle_explains_a_held_pod_and_has_no_secret() {
    let bed = idle_bed().await;
    let _running = Running::on(&bed, Setup::default()).await.unwrap();
    let secret = secret_path(&bed).await;
    let _kubelet = with_logs(&bed, &secret).await;
    let team = Team::on(&bed, "bundle").await;
    let name = team.namespace.name.as_str();
    bed.apply_objects(planted(name)).await.unwrap();
    apply_aaq(&team.client, json!({})).await.unwrap();
    let created = team.create(&held()).await;
    assert!(created.is_ok(), "{created:?}");
    assert!(created.body.to_string().contains(MARKER));
    let events: Api<k8s_openapi::api::core::v1::Event> = Api::namespaced(team.client.clone(), name);
    let told = || async {
        let all = events.list(&ListParams::default()).await.ok()?.items;
        all.into_iter().find(|event| event.reason.as_deref() == Some("ExceedsLimit")).map(drop)
    };
    wait::eventually(SOON, told, "the event of the held pod").await.unwrap();

    let folder = folder(&bed, "bundles");
    let (printed, stderr) = said(&bed, &folder, 4, &["--file", "a.tar.gz", "-o", "json"]).await;
    let archive = std::fs::read(folder.join("a.tar.gz")).unwrap();
    assert!(archive.len() < 20 << 20, "{}", archive.len());
    let bundle = Unpacked::of(&archive);
    for nowhere in [MARKER, &STANDARD.encode(MARKER), &secret] {
        assert_eq!(bundle.with(nowhere), Vec::<&str>::new(), "{nowhere}");
        assert!(!String::from_utf8_lossy(&printed).contains(nowhere) && !stderr.contains(nowhere));
    }

    assert_eq!(bundle.0[0].0, "index.md");
    let index = bundle.index();
    assert_eq!(serde_json::from_slice::<Value>(&printed).unwrap(), index);
    assert_eq!(index["files"].as_array().unwrap().len() + 2, bundle.0.len());
    assert_eq!(index["namespace"], Value::Null);

    let pods = bundle.objects("tenants/held-pods.yaml");
    let pod = pods.iter().find(|pod| pod["metadata"]["namespace"] == name).unwrap();
    assert_eq!((&pod["kind"], &pod["metadata"]["labels"]["app"]), (&json!("Pod"), &json!("web")));
    assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"], "2");
    assert_eq!(pod["spec"]["schedulingGates"][0]["name"], names::GATE);
    let quotas = bundle.objects("quotas/quotas.yaml");
    let quota = quotas.iter().find(|quota| quota["metadata"]["namespace"] == name).unwrap();
    assert_eq!(quota["spec"]["hard"]["requests.cpu"], "1");
    assert!(bundle.file("events/by-controller.yaml").contains("ExceedsLimit"));
    let hooks = bundle.file("installation/validatingwebhookconfigurations.yaml");
    assert!(hooks.contains("/REDACTED/") && hooks.contains("caBundle"), "{hooks}");
    assert!(bundle.objects("installation/customresourcedefinitions.yaml").len() >= 12);
    assert_eq!(bundle.objects("configuration/aaqs.yaml")[0]["metadata"]["name"], names::AAQ_NAME);
    let check: Value = serde_json::from_str(bundle.file("check.json")).unwrap();
    assert_eq!(check["kind"], "Check");

    let log = |file: &str| bundle.file(&format!("logs/{POD}/{file}")).to_owned();
    assert_eq!(log("sluice-controller.log"), "{\"message\":\"calling https://x/REDACTED/growth\"}\n");
    assert!(log("sluice-controller.previous.log").contains("the last words"));
    assert!(bundle.file("index.md").contains("log of container of-others"));
    assert!(stderr.is_empty(), "{stderr}");
    // Pods have no address at which they could be asked, and those of Deployments no node that has logs.
    let gaps = index["notRead"].as_array().unwrap().iter();
    let unread: Vec<&str> =
        gaps.flat_map(|gap| gap["what"].as_array().unwrap()).filter_map(Value::as_str).collect();
    assert!(unread.contains(&format!("whether {POD} is ready").as_str()), "{unread:?}");
    assert!(
        unread.iter().all(|what| what.starts_with("whether ") || what.starts_with("metrics of ")),
        "{unread:?}"
    );

    let (piped, summary) = said(&bed, &folder, 4, &["--file", "-", "-n", name]).await;
    let piped = Unpacked::of(&piped);
    assert!(summary.starts_with("standard output: ") && summary.contains("Not read:"), "{summary}");
    assert_eq!(piped.index()["namespace"], name);
    assert_eq!(piped.objects("tenants/namespaces.yaml").len(), 1);
    assert_eq!(piped.with(MARKER), Vec::<&str>::new());
    for wrong in [["--file", "none/a.tar.gz"], ["--file", "."]] {
        let (_, error) = said(&bed, &folder, 2, &wrong).await;
        assert!(error.starts_with("error: --file "), "{error}");
    }
    said(&bed, &folder, 2, &["--file", "-", "-o", "json"]).await;

    // The same as a page, when the cluster is gone.
    bed.stop_api_server();
    let record = Pages::of_bundle(&bed, &folder.join("a.tar.gz")).await;
    let taken = index["taken"].as_str().unwrap().replace('T', " ").replace('Z', "");
    let overview = record.page("/").await;
    assert!(overview.contains(&format!("This is a record of {taken} UTC.")), "{overview}");
    assert!(
        overview.contains("a.tar.gz") && overview.contains(&format!("href=\"q/{name}/compute\"")),
        "{overview}"
    );
    let quota = record.page(&format!("/q/{name}/compute")).await;
    assert!(
        quota.contains("requests.cpu") && quota.contains("Who takes it cannot be told: a bundle has"),
        "{quota}"
    );
    assert!(quota.contains("held") && quota.contains("ExceedsLimit: "), "{quota}");
    let why = record.page(&format!("/why/pod/{name}/held")).await;
    assert!(why.contains("ExceedsLimit: ") && why.contains("waits behind the gate"), "{why}");
    let unknown = record.page(&format!("/why/pod/{name}/other")).await;
    assert!(unknown.contains(&format!("other of namespace {name} is not in the bundle")), "{unknown}");
    let drain = record.page("/drain?node=node-1").await;
    assert!(drain.contains("It cannot be told: a bundle has the pods that wait"), "{drain}");
    record.page("/migrations").await;
    record.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_with_view_gets_a_bundle_of_one_namespace() {
    let bed = shared().await.bed;
    let (team, other) = (Team::on(bed, "bundle-own").await, Team::on(bed, "bundle-other").await);
    let name = team.namespace.name.as_str();
    for team in [&team, &other] {
        team.quota("none", &[("pods", "0")]).await;
        team.pod("held", &[]).await;
    }
    let bound = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": "tenant", "namespace": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant-of-bundle" }],
    });
    bed.apply_objects([bound]).await.unwrap();
    let folder = folder(bed, "bundles-of-tenant");
    let arguments = ["--as", "tenant-of-bundle", "-n", name, "--file", "a.tar.gz"];
    let taken = || async {
        said(bed, &folder, 4, &arguments).await;
        let bundle = Unpacked::of(&std::fs::read(folder.join("a.tar.gz")).unwrap());
        // Authorizers learn of a binding by a watch.
        bundle.index()["files"].to_string().contains("tenants/held-pods.yaml").then_some(bundle)
    };
    let bundle = wait::eventually(SOON, taken, "a bundle with the tenant's pod").await.unwrap();
    let pods = bundle.objects("tenants/held-pods.yaml");
    assert_eq!((pods.len(), &pods[0]["metadata"]["namespace"]), (1, &json!(name)));
    assert_eq!(bundle.objects("quotas/quotas.yaml").len(), 1);
    assert_eq!(bundle.with(&other.namespace.name), Vec::<&str>::new());
    let page = bundle.file("index.md");
    assert!(
        page.contains("missing right: get validatingwebhookconfigurations.admissionregistration.k8s.io"),
        "{page}"
    );
    assert!(page.contains("# of a Role in namespace sluice-system\n"), "{page}");
    let (_, stderr) = said(bed, &folder, 4, &["--as", "tenant-of-bundle", "--file", "b.tar.gz"]).await;
    assert!(stderr.is_empty(), "{stderr}");
    let bundle = Unpacked::of(&std::fs::read(folder.join("b.tar.gz")).unwrap());
    assert_eq!(bundle.index()["namespace"], "default", "that of the context, for all may not be listed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bundle_is_taken_with_no_process_of_sluice_alive() {
    let bed = idle_bed().await;
    let setup = Setup { without_webhook: true, ..Setup::default() };
    let _installed = Installation::apply(&bed, setup).await.unwrap();
    let folder = folder(&bed, "bundles-of-nobody");
    let (printed, _) = said(&bed, &folder, 0, &[]).await;
    let printed = String::from_utf8(printed).unwrap();
    assert!(printed.starts_with("sluice-bundle-") && printed.contains(" files, "), "{printed}");
    let name = printed.split(':').next().unwrap();
    let bundle = Unpacked::of(&std::fs::read(folder.join(name)).unwrap());
    let page = bundle.file("index.md");
    assert!(page.contains("failed (") && page.contains("Everything else could be read."), "{page}");
    assert!(page.contains("* pods of Sluice in namespace sluice-system\n"), "{page}");
    assert!(bundle.file("installation/clusterroles.yaml").contains(names::CONTROLLER));

    // An API server that stands still ends the command, and does not hang it.
    bed.pause(sluice_testbed::Component::ApiServer);
    let output = sluice(&bed, &folder, &["--request-timeout", "3s"]).await;
    bed.resume(sluice_testbed::Component::ApiServer);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("asking for the version of the API server …"), "{error}");
    assert!(error.contains("could not read the version of the API server"), "{error}");
}
