//! Completion in a real shell, with names that exist in the cluster; and kubectl's flags.

use std::process::Stdio;
use std::time::Duration;

use sluice_e2e::build;
use sluice_testbed::Bed;

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
