//! Completion in a real shell, with names that exist in the cluster; and kubectl's flags.

use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::Kubeconfig;
use serde_json::Value;
use sluice_e2e::build;
use sluice_testbed::{Bed, artifacts};

use crate::context::shared;
use crate::team::Team;
use crate::why::said;

/// What bash offers at the end of this command line, whose last word is being written.
async fn offered(bed: &Bed, words: &[&str]) -> Vec<String> {
    let program = build::sluice().unwrap();
    let folder = program.parent().unwrap().display().to_string();
    // As bash calls a completion: the words, which of them is written, and it as second argument.
    let script = r#"
        source <(sluice completion bash)
        COMP_WORDS=(sluice "$@"); COMP_CWORD=$#; COMP_TYPE=9
        _clap_complete_sluice sluice "${COMP_WORDS[COMP_CWORD]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let mut bash = tokio::process::Command::new("bash");
    bash.args(["-c", script, "bash"]).args(words).kill_on_drop(true).stderr(Stdio::inherit());
    bash.env("PATH", format!("{folder}:{}", std::env::var("PATH").unwrap()));
    bash.env("KUBECONFIG", bed.admin_kubeconfig());
    let output = tokio::time::timeout(Duration::from_secs(30), bash.output()).await.unwrap().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(|line| line.trim().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bash_completes_types_and_names_that_exist() {
    let bed = shared().await.bed;
    let team = Team::on(bed, "completed").await;
    let home = team.namespace.name.as_str();
    team.quota("compute", &[("pods", "0")]).await;
    team.pod("train", &[]).await;
    team.pod("web", &[]).await;
    assert_eq!(offered(bed, &["why", "vm"]).await, ["vm", "vmi"]);
    assert_eq!(offered(bed, &["why", "-n", home, "pod", "tr"]).await, ["train"]);
    assert_eq!(offered(bed, &["why", "pod", "-n", home, "tr"]).await, ["train"]);
    assert_eq!(offered(bed, &["why", "-n", home, "po/"]).await, ["po/train", "po/web"]);
    // Where nothing is written yet flags are offered too, after the names.
    assert_eq!(offered(bed, &["why", "-n", home, "quota", ""]).await[0], "compute");
    assert_eq!(offered(bed, &["list", "held", "-n", home, "--quota", ""]).await, ["compute"]);
    assert!(offered(bed, &["why", "-n", &home[..home.len() - 2]]).await.contains(&home.to_owned()));
    assert!(offered(bed, &["check", "--requ"]).await.contains(&"--request-timeout".to_owned()));
    // Where the cluster does not answer there is nothing to offer, and no error in the line.
    let nowhere = ["why", "--kubeconfig", "/nowhere", "-n", home, "pod", "tr"];
    assert_eq!(offered(bed, &nowhere).await, [""]);
}

/// By a link beside the plug-in, as kubectl looks for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_completes_what_follows_its_plugin() {
    let bed = shared().await.bed;
    let team = Team::on(bed, "plugged").await;
    let home = team.namespace.name.as_str();
    team.quota("compute", &[("pods", "0")]).await;
    team.pod("train", &[]).await;
    let folder = bed.dir().join("plug-ins");
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["kubectl-sluice", "kubectl_complete-sluice"] {
        std::os::unix::fs::symlink(build::sluice().unwrap(), folder.join(name)).unwrap();
    }
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let offered = async |words: &[&str]| {
        let mut kubectl = tokio::process::Command::new(artifacts::kubernetes().unwrap());
        kubectl.args(["kubectl", "__complete", "sluice"]).args(words).env("PATH", &path);
        kubectl.env("KUBECONFIG", bed.admin_kubeconfig()).kill_on_drop(true);
        let output = tokio::time::timeout(Duration::from_secs(30), kubectl.output()).await.unwrap().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(offered(&["why", "-n", home, "pod", "tr"]).await, ["train", ":4"]);
    assert_eq!(offered(&["why", "vm"]).await, ["vm", "vmi", ":4"]);
    let commands = offered(&["drain"]).await;
    assert!(commands[0].starts_with("drain-check\tSay which VMs"), "{commands:?}");
    assert_eq!(offered(&["why", "--kubeconfig", "/nowhere", "pod", "tr"]).await, [":4"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flags_of_kubectl_say_which_cluster_and_who() {
    let bed = shared().await.bed;
    let team = Team::on(bed, "flags").await;
    let home = team.namespace.name.as_str();
    let list = ["list", "held", "-n", home];
    let server = &bed.server_url();
    said(bed, 0, &[&list[..], &["--server", server]].concat()).await;
    let (_, told) = said(bed, 1, &[&list[..], &["--server", "https://127.0.0.1:1"]].concat()).await;
    assert!(told.contains("could not list"), "{told}");
    let (_, told) = said(bed, 4, &[&list[..], &["--as", "nobody", "--as-uid", "7"]].concat()).await;
    assert!(told.contains("missing right: list"), "{told}");
    let (_, told) = said(bed, 1, &[&list[..], &["--cluster", "other"]].concat()).await;
    assert!(told.contains("other"), "{told}");
    let (_, told) = said(bed, 1, &[&list[..], &["--user", "other"]].concat()).await;
    assert!(told.contains("other"), "{told}");
    // A token alone says who asks, whatever the kubeconfig has.
    let (_, told) = said(bed, 1, &[&list[..], &["--token", "wrong"]].concat()).await;
    assert!(told.contains("Unauthorized"), "{told}");
    let token = sluice_e2e::scrape::token(&team.client, home, "default").await.unwrap();
    let (_, told) = said(bed, 4, &[&list[..], &["--token", &token]].concat()).await;
    assert!(told.contains("missing right: list"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flags_of_kubectl_say_how_tls_is_done_and_hold_for_commands_that_write_too() {
    let bed = shared().await.bed;
    let team = Team::on(bed, "tls-flags").await;
    let home = team.namespace.name.as_str();
    let file = |name: &str, text: &[u8]| {
        let path = bed.dir().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let decoded = |data: &str| STANDARD.decode(data).unwrap();
    let admin = Kubeconfig::read_from(bed.admin_kubeconfig()).unwrap();
    let cluster = admin.clusters[0].cluster.clone().unwrap();
    let authority = file("flags-ca.crt", &decoded(&cluster.certificate_authority_data.unwrap()));
    let somebody = bed.client_as_user("somebody-of-flags", &["tenants"]).unwrap();
    let somebody = Kubeconfig::read_from(somebody.kubeconfig()).unwrap();
    let somebody: Value = serde_json::to_value(&somebody.auth_infos[0].auth_info).unwrap();
    let of_somebody = |name: &str, field: &str| file(name, &decoded(somebody[field].as_str().unwrap()));
    let certificate = of_somebody("flags.crt", "client-certificate-data");
    let key = of_somebody("flags.key", "client-key-data");

    let list = ["list", "held", "-n", home];
    // Another name than that of the certificate is refused, unless nothing is checked.
    let (_, told) = said(bed, 1, &[&list[..], &["--tls-server-name", "other.example"]].concat()).await;
    assert!(told.contains("certificate"), "{told}");
    let unchecked = ["--tls-server-name", "other.example", "--insecure-skip-tls-verify"];
    said(bed, 0, &[&list[..], &unchecked].concat()).await;
    said(bed, 0, &[&list[..], &["--certificate-authority", &authority]].concat()).await;
    // That certificate is signed by nobody of this file but by an authority that it does not have.
    let (_, told) = said(bed, 1, &[&list[..], &["--certificate-authority", &certificate]].concat()).await;
    assert!(told.contains("certificate"), "{told}");
    let by = ["--client-certificate", &certificate, "--client-key", &key];
    let (_, told) = said(bed, 4, &[&list[..], &by].concat()).await;
    assert!(told.contains("missing right: list pods in namespace"), "{told}");

    for command in [
        &["pause", "-n", home, "--for", "1m"][..],
        &["resume", "-n", home],
        &["uninstall", "--dry-run"],
        &["mtq-leftovers"],
    ] {
        let (_, told) = said(bed, 1, &[command, &["--as", "nobody", "--as-group", "none"]].concat()).await;
        assert!(told.contains("nobody"), "{command:?}: {told}");
        let (_, told) = said(bed, 1, &[command, &["--token", "wrong"]].concat()).await;
        assert!(told.contains("Unauthorized"), "{command:?}: {told}");
        let (_, told) = said(bed, 1, &[command, &["--user", "other"]].concat()).await;
        assert!(told.contains("--user \"other\" is not in the kubeconfig"), "{command:?}: {told}");
    }
}
