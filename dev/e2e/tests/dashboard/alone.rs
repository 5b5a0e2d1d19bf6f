//! Without any process of Sluice: who is let in, what hostile texts become, many quotas, an API server that goes and comes
//! back, credentials that are not accepted any more, a tenant.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures::{StreamExt as _, stream};
use http::Method;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use sluice_api::{ApplicationAwareResourceQuota as Arq, names};
use sluice_e2e::browser::Browser;
use sluice_e2e::objects::{self, TARGETED};
use sluice_e2e::{Installation, Setup};
use sluice_testbed::{Bed, BedOptions, TestNamespace};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::context::{Dashboard, assert_clean, assert_fits, screenshot};

const QUOTAS: usize = 10_000;
/// So many MiB a dashboard has at most with them.
const MEMORY: u64 = 150;
/// So many bytes a page has at most, however many quotas there are.
const PAGE: u64 = 256 * 1024;
/// Requests at a time.
const AT_A_TIME: usize = 32;
const HOSTILE: &str = "<img src=x onerror=\"window.pwned=1\">\u{202e}";

/// The kinds and rights of Sluice, without a process.
async fn bed() -> Bed {
    let bed =
        Bed::start(BedOptions { kwok: false, scheduler: false, ..BedOptions::default() }).await.unwrap();
    let setup = Setup { without_webhook: true, ..Setup::default() };
    drop(Installation::apply(&bed, setup).await.unwrap());
    bed
}

async fn set_status(bed: &Bed, namespace: &TestNamespace, quota: &str, status: Value) {
    let quotas: Api<Arq> = Api::namespaced(bed.admin().unwrap(), &namespace.name);
    let patch = Patch::Merge(json!({ "status": status }));
    quotas.patch_status(quota, &PatchParams::default(), &patch).await.unwrap();
}

async fn quota(bed: &Bed, namespace: &TestNamespace, name: &str, hard: &[(&str, &str)]) {
    objects::create(&bed.admin().unwrap(), &namespace.name, &objects::quota(name, hard)).await.unwrap();
}

/// A server that is not the dashboard; its address and the heads of the requests to it. It answers all with a page that asks
/// it for something more.
async fn listener() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    const PAGE: &str =
        "<body><script>fetch('/steal').then(() => document.body.append('it was asked'))</script>";
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let heads = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await.is_ok_and(|read| read > 0)
            {
            }
            heads.lock().unwrap().push(String::from_utf8_lossy(&head).into_owned());
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close";
            let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{PAGE}", PAGE.len());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (address, asked)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_get_nothing_and_texts_stay_texts() {
    let bed = &bed().await;
    let (own, other) =
        (bed.namespace("own", TARGETED).await.unwrap(), bed.namespace("other", TARGETED).await.unwrap());
    quota(bed, &own, "compute", &[("pods", "4"), (HOSTILE, "8")]).await;
    quota(bed, &other, "secret", &[("pods", "4")]).await;
    let told = json!({
        "type": "UncountedKeys", "status": "True", "reason": "None", "message": HOSTILE,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let status = json!({
        "hard": { "pods": "4", HOSTILE: "8" }, "used": { "pods": "1", HOSTILE: "8" }, "held": 1,
        "heldSince": "2026-01-01T00:00:00Z", "conditions": [told],
    });
    set_status(bed, &own, "compute", status).await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "waits" },
        "spec": {
            "schedulingGates": [{ "name": names::GATE }],
            "containers": [{
                "name": "main", "image": "none", "resources": { "requests": { "cpu": "1" } },
            }],
        },
    });
    let path = format!("/api/v1/namespaces/{own}/pods");
    assert!(sluice_e2e::call::post(&bed.admin().unwrap(), &path, &pod).await.unwrap().is_ok());

    let dashboard = Dashboard::start(bed, "dashboard", bed.admin_kubeconfig()).await;
    for (method, path, host, code) in [
        (Method::GET, "/", "evil.example", 421),
        (Method::GET, "/", "localhost", 421),
        (Method::GET, "/", dashboard.address.as_str(), 401),
        (Method::GET, "/changes/", dashboard.address.as_str(), 401),
        (Method::GET, "/enter/0000", dashboard.address.as_str(), 401),
        (Method::POST, "/", dashboard.address.as_str(), 405),
        (Method::DELETE, "/q/own/compute", dashboard.address.as_str(), 405),
    ] {
        let (is, body) = dashboard.ask(method.clone(), path, &[("host", host)]).await;
        assert_eq!(is, code, "{method} {path} for {host}");
        assert!(!body.contains("compute") && !body.contains(&own.name), "{body}");
    }

    let browser = Browser::start(bed).await.unwrap();
    let foreign = format!("http://evil.example:{}/", dashboard.address.split(':').next_back().unwrap());
    browser.open(&foreign).await.unwrap();
    browser.until_text("this host is not served here").await.unwrap();
    browser.open(&dashboard.url("/")).await.unwrap();
    browser.until_text("open the address that").await.unwrap();
    // Those two were refused as they must be.
    browser.console().await.unwrap();
    browser.open(&dashboard.entrance).await.unwrap();
    browser.until_text("<img src=x onerror=").await.unwrap();
    assert_clean(&browser).await;
    // A server of another user of the machine: a page of it sends no cookie of the dashboard to it.
    let (address, asked) = listener().await;
    browser.open(&format!("http://{address}/lure")).await.unwrap();
    browser.until_text("it was asked").await.unwrap();
    let heads = asked.lock().unwrap().join("\n").to_lowercase();
    assert!(
        heads.contains("get /lure ") && heads.contains("get /steal ") && !heads.contains("cookie"),
        "{heads}"
    );
    browser.console().await.unwrap();
    let (is, _) =
        dashboard.ask(Method::GET, dashboard.entrance.split_at(dashboard.url("").len()).1, &[]).await;
    assert_eq!(is, 401, "an address is for one browser");
    browser.open(&dashboard.url(&format!("/q/{own}/compute"))).await.unwrap();
    browser.until_text("<img src=x onerror=").await.unwrap();
    browser.until_text("waits").await.unwrap();
    assert_clean(&browser).await;
    assert!(!browser.text().await.unwrap().contains('\u{202e}'));

    // A tenant sees the own namespace and is told what is left out.
    let tenant = bed.tenant(&own).await.unwrap();
    let of_tenant = Dashboard::start(bed, "tenant", tenant.kubeconfig()).await;
    browser.open(&of_tenant.entrance).await.unwrap();
    let left_out =
        format!("Of applicationawareresourcequotas.aaq.kubevirt.io those of namespace {own} are shown");
    browser.until_text(&left_out).await.unwrap();
    browser.until_text("compute").await.unwrap();
    let text = browser.text().await.unwrap();
    assert!(!text.contains(&other.name) && !text.contains("secret"), "{text}");
    browser.open(&of_tenant.url(&format!("/q/{other}/secret"))).await.unwrap();
    browser.until_text("There is no such quota, or it may not be read.").await.unwrap();
    browser.open(&of_tenant.url(&format!("/why/pod/{other}/waits"))).await.unwrap();
    browser.until_text("list pods in namespace").await.unwrap();
    browser.open(&of_tenant.url(&format!("/why/pod/{own}/waits"))).await.unwrap();
    browser.until_text("waits").await.unwrap();
    browser.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_quotas_and_a_cluster_that_does_not_answer() {
    let bed = &bed().await;
    let client = &bed.admin().unwrap();
    let mut namespaces = Vec::new();
    for _ in 0..10 {
        namespaces.push(bed.namespace("many", &[]).await.unwrap());
    }
    let created = stream::iter(0..QUOTAS).map(|number| {
        let quota = objects::quota(&format!("quota-{number:05}"), &[("requests.cpu", "8"), ("pods", "10")]);
        let namespace = &namespaces[number % namespaces.len()].name;
        async move { objects::create(client, namespace, &quota).await.map(drop) }
    });
    let created: Vec<_> = created.buffer_unordered(AT_A_TIME).collect().await;
    created.into_iter().for_each(|created| created.unwrap());
    let last = |number: usize| (&namespaces[number % namespaces.len()], format!("quota-{number:05}"));
    let (namespace, name) = last(QUOTAS - 1);
    let full = |held: i64| {
        json!({
            "hard": { "requests.cpu": "8", "pods": "10" }, "used": { "requests.cpu": "8", "pods": "4" },
            "held": held, "heldSince": "2026-01-01T00:00:00Z",
        })
    };
    set_status(bed, namespace, &name, full(3)).await;

    // An account whose credentials are taken from it later.
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "viewer", "namespace": names::INSTALL_NAMESPACE } });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "viewer" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view" },
        "subjects": [{ "kind": "ServiceAccount", "name": "viewer", "namespace": names::INSTALL_NAMESPACE }],
    });
    bed.apply_objects([account, binding]).await.unwrap();
    let viewer = bed.service_account(names::INSTALL_NAMESPACE, "viewer").await.unwrap();

    let browser = Browser::start(bed).await.unwrap();
    browser.show(1_100, 820, false).await.unwrap();
    let begun = Instant::now();
    let dashboard = Dashboard::start(bed, "dashboard", viewer.kubeconfig()).await;
    let listens = begun.elapsed();
    browser.open(&dashboard.entrance).await.unwrap();
    // The installation has quotas too.
    let all = format!("/ of ([0-9]+)/.exec(document.getElementById('summary').innerText)?.[1] >= {QUOTAS}");
    browser.until(&all, "all quotas").await.unwrap();
    eprintln!(
        "{QUOTAS} quotas: listens after {listens:?}, complete after {:?}, {} MiB",
        begun.elapsed(),
        dashboard.memory()
    );
    assert!(dashboard.memory() <= MEMORY, "{} MiB", dashboard.memory());
    // The one for which pods wait comes first, whatever its name, and of the others as many as can be looked at.
    let first = format!("document.querySelector('#quotas tbody a').innerText === '{name}'");
    browser.until(&first, "the quota for which pods wait comes first").await.unwrap();
    assert_eq!(
        browser.run("return document.querySelectorAll('#quotas tbody tr').length").await.unwrap(),
        200
    );
    browser.until_text("more are not shown").await.unwrap();
    let begun = Instant::now();
    browser.open(&dashboard.url("/?sort=name&filter=quota-04321")).await.unwrap();
    browser.until_text("quota-04321").await.unwrap();
    eprintln!("a page that is opened once all is read: {:?}", begun.elapsed());
    assert_eq!(browser.run("return document.querySelectorAll('#quotas tbody tr').length").await.unwrap(), 1);
    browser.open(&dashboard.url("/")).await.unwrap();
    browser.until(&first, "the quota for which pods wait comes first").await.unwrap();
    let sent = "return performance.getEntriesByType('navigation')[0].decodedBodySize";
    let sent = browser.run(sent).await.unwrap().as_u64().unwrap();
    eprintln!("a page with as many rows as are shown: {} KiB", sent / 1024);
    assert!((1..=PAGE).contains(&sent), "{sent} bytes");

    // The API server goes: what is known stays, grey, and a banner says since when. It comes back, and so does the page.
    bed.stop_api_server();
    let gone = Instant::now();
    browser.until_text("Not live since ").await.unwrap();
    eprintln!("the banner comes {:?} after the API server has gone", gone.elapsed());
    let grey = "getComputedStyle(document.getElementById('main')).filter";
    assert_eq!(browser.run(&format!("return {grey}")).await.unwrap(), "grayscale(1)");
    assert!(browser.text().await.unwrap().contains(&name));
    browser.show(320, 820, true).await.unwrap();
    assert_fits(&browser).await;
    screenshot(&browser, "stale-dark-narrow").await;
    browser.show(1_100, 820, false).await.unwrap();
    bed.start_api_server().await.unwrap();
    browser.until("!document.body.innerText.includes('Not live since ')", "the banner to go").await.unwrap();
    set_status(bed, namespace, &name, full(4)).await;
    browser
        .until("document.querySelector('#quotas .held').innerText.startsWith('4')", "a fourth pod")
        .await
        .unwrap();

    // The account goes: no watch that begins anew is accepted.
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
        Api::namespaced(client.clone(), names::INSTALL_NAMESPACE);
    accounts.delete("viewer", &DeleteParams::default()).await.unwrap();
    bed.restart_api_server().await.unwrap();
    browser.until_text("does not accept the credentials of the kubeconfig (401)").await.unwrap();
    assert_clean(&browser).await;
    let memory = dashboard.memory();
    eprintln!("at most {memory} MiB");
    assert!(memory <= MEMORY, "{memory} MiB");
    browser.close().await.unwrap();
}
