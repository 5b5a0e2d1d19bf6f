//! Commands reach a cluster through the proxy that a kubeconfig or the environment names. The name in the kubeconfig is one
//! that nothing but the proxy knows, so no request goes around it.

use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use kube::config::Kubeconfig;
use sluice_e2e::build;
use sluice_e2e::simulated_proxy::{SimulatedProxy, Speaks};
use sluice_testbed::Bed;

use crate::context::shared;
use crate::team::Team;

/// A name that no resolver knows (RFC 2606).
const NAME: &str = "api.invalid:6443";

/// The administrator's kubeconfig, with another address of the API server.
fn kubeconfig(bed: &Bed, name: &str, proxy: Option<String>) -> PathBuf {
    let mut kubeconfig = Kubeconfig::read_from(bed.admin_kubeconfig()).unwrap();
    let cluster = kubeconfig.clusters[0].cluster.as_mut().unwrap();
    cluster.server = Some(format!("https://{NAME}"));
    cluster.tls_server_name = Some(bed.loopback().to_string());
    cluster.proxy_url = proxy;
    let path = bed.dir().join(format!("{name}.kubeconfig"));
    std::fs::write(&path, serde_json::to_string(&kubeconfig).unwrap()).unwrap();
    path
}

/// `sluice list held` in a namespace.
async fn held(kubeconfig: &std::path::Path, namespace: &str, environment: &[(&str, &str)]) -> Output {
    let mut command = tokio::process::Command::new(build::sluice().unwrap());
    command.args(["list", "held", "-o", "name", "-n", namespace, "--kubeconfig"]).arg(kubeconfig);
    for name in ["HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"] {
        command.env_remove(name);
    }
    command.envs(environment.iter().copied()).kill_on_drop(true);
    tokio::time::timeout(Duration::from_secs(60), command.output()).await.unwrap().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_go_through_the_proxy_of_the_kubeconfig() {
    let bed = shared().await.bed;
    let team = Team::on(bed, "proxy").await;
    team.quota("none", &[("pods", "0")]).await;
    team.pod("waits", &[]).await;
    let namespace = team.namespace.name.as_str();
    let server = bed.server_url().trim_start_matches("https://").to_owned();
    for (name, speaks, scheme, user) in [
        ("http", Speaks::Http(None), "http", ""),
        // "ann:p@ss", encoded.
        ("password", Speaks::Http(Some("Basic YW5uOnBAc3M=")), "http", "ann:p%40ss@"),
        ("socks", Speaks::Socks(None), "socks5", ""),
        ("user", Speaks::Socks(Some(("ann", "p@ss"))), "socks5", "ann:p%40ss@"),
    ] {
        let proxy = SimulatedProxy::start(speaks, server.clone()).await.unwrap();
        let url = format!("{scheme}://{user}{}", proxy.address());
        let output = held(&kubeconfig(bed, name, Some(url)), namespace, &[]).await;
        assert_eq!((output.status.code(), text(&output).as_str()), (Some(3), "pod/waits\n"), "{name}");
        let asked = proxy.asked();
        assert!(!asked.is_empty() && asked.iter().all(|address| address == NAME), "{name}: {asked:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_go_through_the_proxy_of_the_environment_unless_it_names_the_server() {
    let bed = shared().await.bed;
    let team = Team::on(bed, "proxy").await;
    let namespace = team.namespace.name.as_str();
    let server = bed.server_url().trim_start_matches("https://").to_owned();
    let proxy = SimulatedProxy::start(Speaks::Http(None), server).await.unwrap();
    let url = format!("http://{}", proxy.address());
    let through = kubeconfig(bed, "environment", None);
    let output = held(&through, namespace, &[("HTTPS_PROXY", &url)]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let asked = proxy.asked().len();
    assert!(asked > 0);
    // Here the name is not known.
    let output = held(&through, namespace, &[("HTTPS_PROXY", &url), ("NO_PROXY", "invalid")]).await;
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let output =
        held(bed.admin_kubeconfig(), namespace, &[("HTTPS_PROXY", &url), ("NO_PROXY", "127.0.0.1")]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(proxy.asked().len(), asked, "the proxy is asked no more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_refuses_or_is_not_known_is_told() {
    let bed = shared().await.bed;
    let server = bed.server_url().trim_start_matches("https://").to_owned();
    let proxy = SimulatedProxy::start(Speaks::Http(Some("Basic other")), server).await.unwrap();
    let refusing = kubeconfig(bed, "refusing", Some(format!("http://ann:secret@{}", proxy.address())));
    let said = text(&held(&refusing, "default", &[]).await);
    assert!(said.contains("proxy") && !said.contains("secret"), "{said}");
    assert!(proxy.asked().is_empty());
    let unknown = kubeconfig(bed, "unknown", Some("https://ann:secret@proxy.example:1".to_owned()));
    let output = held(&unknown, "default", &[]).await;
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot use proxy https://proxy.example: use one of http://"), "{said}");
    assert!(!said.contains("secret"), "{said}");
}
