//! Kubeconfigs whose user is a program that prints a token, as those of managed clusters are.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use kube::config::{AuthInfo, Kubeconfig};
use serde_json::{Value, json};
use sluice_e2e::{build, scrape};
use sluice_testbed::{Bed, wait};

use crate::context::{SOON, shared};
use crate::team::Team;

/// What a plug-in has that nobody else is to see.
const SECRET: &str = "s3cret-of-the-plug-in";

/// A kubeconfig whose user is this shell script, with a secret in its arguments and its environment.
fn kubeconfig(bed: &Bed, name: &str, script: &str) -> PathBuf {
    kubeconfig_that_is(bed, name, "Never", script)
}

fn kubeconfig_that_is(bed: &Bed, name: &str, interactive: &str, script: &str) -> PathBuf {
    let mut file = Kubeconfig::read_from(bed.admin_kubeconfig()).unwrap();
    let auth: AuthInfo = serde_json::from_value(json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": interactive,
        "command": "sh", "args": ["-c", script, "plug-in", SECRET], "env": [{ "name": "KEY", "value": SECRET }],
    } }))
    .unwrap();
    for user in &mut file.auth_infos {
        user.auth_info = Some(auth.clone());
    }
    let path = bed.dir().join(name);
    std::fs::write(&path, serde_json::to_vec(&file).unwrap()).unwrap();
    path
}

/// What a plug-in prints that knows a user who may view the namespace.
async fn credential(bed: &Bed, team: &Team) -> Value {
    let home = team.namespace.name.as_str();
    let bound = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": "of-plug-in", "namespace": home },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view" },
        "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": home }],
    });
    bed.apply_objects([bound]).await.unwrap();
    let token = scrape::token(&team.client, home, "default").await.unwrap();
    json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": { "token": token },
    })
}

async fn sluice(kubeconfig: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = tokio::process::Command::new(build::sluice().unwrap());
    command.args(arguments).arg("--kubeconfig").arg(kubeconfig).kill_on_drop(true);
    let done: Output =
        tokio::time::timeout(Duration::from_secs(60), command.output()).await.unwrap().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (done.status.code(), text(&done.stdout), text(&done.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plug_in_of_the_kubeconfig_says_who_asks_and_nothing_of_it_is_told() {
    let bed = shared().await.bed;
    let team = Team::on(bed, "plug-in").await;
    let home = team.namespace.name.as_str();
    team.quota("none", &[("pods", "0")]).await;
    team.pod("train", &[]).await;
    let good = kubeconfig(bed, "plug-in.good", &format!("echo '{}'", credential(bed, &team).await));
    let asked = async || {
        let (code, text, _) = sluice(&good, &["why", "pod", "train", "-n", home]).await;
        (code == Some(3)).then_some(text)
    };
    let text = wait::eventually(SOON, asked, "the answer to who the plug-in says").await.unwrap();
    assert!(text.contains("train can never go"), "{text}");
    let (code, text, told) = sluice(&good, &["top", "-n", home]).await;
    assert!(code == Some(0) && text.contains("none"), "{code:?} {text}{told}");
    // That is who asks, and no administrator.
    let (code, _, told) = sluice(&good, &["list", "held", "-n", "kube-system"]).await;
    assert!(code == Some(4) && told.contains("missing right: list pods in namespace kube-system"), "{told}");

    let fails = kubeconfig(bed, "plug-in.fails", &format!("echo token {SECRET}; echo {SECRET} >&2; exit 7"));
    let prints_nothing = kubeconfig(bed, "plug-in.nothing", &format!("echo '{SECRET}'"));
    for bad in [fails, prints_nothing] {
        for arguments in
            [&["why", "pod", "train"][..], &["top"], &["list", "held"], &["check"], &["resume", "--all"]]
        {
            let (code, text, told) = sluice(&bad, arguments).await;
            assert_eq!((code, text.as_str()), (Some(1), ""), "{arguments:?}: {told}");
            assert!(
                told.contains("the credentials of the kubeconfig could not be renewed: log in again"),
                "{told}"
            );
            assert!(!told.contains(SECRET), "{arguments:?}: {told}");
        }
    }
}

/// What bash offers for the name of a pod, and whatever else comes to the terminal meanwhile, where nobody types.
async fn offered(bed: &Bed, kubeconfig: &Path, namespace: &str) -> String {
    let program = build::sluice().unwrap();
    // As bash calls a completion: the words, which of them is written, and it as second argument.
    let script = format!(
        "source <(sluice completion bash)\n\
         COMP_WORDS=(sluice why --kubeconfig {} -n {namespace} pod tr); COMP_CWORD=7; COMP_TYPE=9\n\
         _clap_complete_sluice sluice tr\n\
         echo \"offered: ${{COMPREPLY[*]}}\"\n",
        kubeconfig.display(),
    );
    let file = kubeconfig.with_extension("sh");
    std::fs::write(&file, script).unwrap();
    let mut terminal = tokio::process::Command::new("script");
    terminal.args(["-qec", &format!("bash {}", file.display()), "/dev/null"]).kill_on_drop(true);
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    terminal.env("PATH", path).current_dir(bed.dir());
    terminal.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut terminal = terminal.spawn().unwrap();
    let nobody = terminal.stdin.take();
    let output = tokio::time::timeout(SOON, terminal.wait_with_output()).await.expect("an end").unwrap();
    drop(nobody);
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Whether a process runs.
fn runs(pid: &str) -> bool {
    std::fs::read(format!("/proc/{}/cmdline", pid.trim())).is_ok_and(|line| !line.is_empty())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completion_asks_nobody_for_a_password_and_waits_for_no_plug_in_that_does_not_end() {
    let bed = shared().await.bed;
    let team = Team::on(bed, "plug-in-asks").await;
    let home = team.namespace.name.as_str();
    team.quota("none", &[("pods", "0")]).await;
    team.pod("train", &[]).await;
    let asks = "echo Password: >&2; echo Password: >/dev/tty; read -r password";
    let credential = credential(bed, &team).await;
    for interactive in ["IfAvailable", "Always"] {
        let script = format!("{asks}; echo '{credential}'");
        let asking = kubeconfig_that_is(bed, "plug-in.asks", interactive, &script);
        let is_offered = async || (offered(bed, &asking, home).await == "offered: train").then_some(());
        wait::eventually(SOON, is_offered, "a name, and no question").await.unwrap();
    }
    let pid = bed.dir().canonicalize().unwrap().join("plug-in.pid");
    let script = format!("echo $$ > {}; {asks}; sleep 600; echo '{credential}'", pid.display());
    let waiting = kubeconfig_that_is(bed, "plug-in.waits", "IfAvailable", &script);
    assert_eq!(offered(bed, &waiting, home).await, "offered:");
    let pid = std::fs::read_to_string(pid).unwrap();
    let is_gone = async || (!runs(&pid)).then_some(());
    wait::eventually(SOON, is_gone, "the plug-in to end").await.unwrap();
}
