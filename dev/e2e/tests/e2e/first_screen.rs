//! The first screen of README, by its own commands: from Helm to a pod that waits and is told why.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use sluice_api::names;
use sluice_e2e::build;

use sluice_testbed::{Bed, BedOptions, Program, artifacts, ports, wait};

use crate::context::{SOON, kubectl};
use crate::install;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Longer than the longest wait of the commands.
const PATIENCE: Duration = Duration::from_secs(360);
/// They need a registry that nodes pull from.
const NOT_RUN: [&str; 2] = ["make image", "skopeo copy"];

/// How the block begins that shows what is printed.
const SHOWN: &str = "\n$ kubectl -n team-a get pod train";

/// The first block of README that begins like this, up to its end.
fn block<'r>(readme: &'r str, begin: &str) -> &'r str {
    let begin = format!("```{begin}\n");
    readme.split_once(&begin).and_then(|(_, rest)| rest.split_once("\n```")).unwrap().0
}

/// The commands of a shell script, one each.
fn commands(script: &str) -> Vec<String> {
    script.replace("\\\n", " ").lines().map(str::to_owned).collect()
}

/// A folder with kubectl and Helm, which have a cache of their own.
fn programs(bed: &Bed) -> String {
    let folder = bed.dir().canonicalize().unwrap().join("bin");
    std::fs::create_dir(&folder).unwrap();
    let own = |path: &Path| path.display().to_string();
    let (kubernetes, helm) = (own(&artifacts::kubernetes().unwrap()), own(&artifacts::helm().unwrap()));
    let of_helm =
        ["CACHE", "CONFIG", "DATA"].map(|kind| format!("HELM_{kind}_HOME={}/helm-{kind}", own(&folder)));
    let scripts = [
        ("kubectl", format!("KUBECACHEDIR={}/cache exec {kubernetes} kubectl \"$@\"", own(&folder))),
        ("helm", format!("{} exec {helm} \"$@\"", of_helm.join(" "))),
    ];
    for (name, line) in scripts {
        let path = folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{line}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    format!("{}:{}", own(&folder), std::env::var("PATH").unwrap())
}

async fn shell(bed: &Bed, path: &str, command: &str) -> Output {
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-c", command]).current_dir(ROOT).kill_on_drop(true);
    shell.env("PATH", path).env("KUBECONFIG", bed.admin_kubeconfig());
    tokio::time::timeout(PATIENCE, shell.output()).await.expect(command).unwrap()
}

/// What it prints; it has to succeed.
async fn prints(bed: &Bed, path: &str, command: &str) -> String {
    let output = shell(bed, path, command).await;
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The process that the pods of a Deployment would run; the webhook serves at `port`.
async fn operand(bed: &Bed, name: &str, port: Option<u16>) -> Program {
    let identity = bed.service_account(names::INSTALL_NAMESPACE, name).await.unwrap();
    let listens = |flag: &str, port: u16| format!("--{flag}=127.0.0.1:{port}");
    let own = match port {
        Some(port) => listens("listen", port),
        None => listens("growth-listen", ports::free().unwrap()),
    };
    let args = vec![
        name.trim_start_matches("sluice-").to_owned(),
        format!("--kubeconfig={}", identity.kubeconfig().display()),
        format!("--namespace={}", names::INSTALL_NAMESPACE),
        listens("admin-listen", ports::free().unwrap()),
        listens("metrics-listen", ports::free().unwrap()),
        own,
    ];
    bed.program(name, build::sluice().unwrap(), args, Vec::<(String, String)>::new()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_screen_of_readme_runs_to_its_held_pod() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    bed.add_nodes(2, &[("cpu", "8"), ("memory", "32Gi")]).await.unwrap();
    let path = programs(&bed);
    let readme = std::fs::read_to_string(Path::new(ROOT).join("README.md")).unwrap();
    let mut programs = Vec::new();
    let mut count = 0;
    for command in commands(block(&readme, "sh")) {
        if NOT_RUN.iter().any(|start| command.starts_with(start)) {
            continue;
        }
        prints(&bed, &path, &command).await;
        count += 1;
        if command.starts_with("helm install") {
            // Images run nowhere here: the processes run beside the cluster, as the accounts that Helm has made.
            let port = ports::free().unwrap();
            let at_bed =
                ["--webhook-san=127.0.0.1".to_owned(), format!("--webhook-url=https://127.0.0.1:{port}")];
            programs.push(install::operator_in(&bed, names::INSTALL_NAMESPACE, &at_bed).await);
            let home = format!("--namespace={}", names::INSTALL_NAMESPACE);
            for (name, further) in [(names::CONTROLLER, None), (names::WEBHOOK, Some(port))] {
                let deployment = format!("deployment/{name}");
                kubectl(&bed, &["wait", "--for=create", "--timeout=2m", &deployment, &home]).await;
                programs.push(operand(&bed, name, further).await);
            }
        }
    }
    assert!(count >= 6, "{count} commands");

    // The second block has commands with what they print.
    let shown: Vec<&str> = block(&readme, SHOWN).lines().collect();
    let pod = prints(&bed, &path, "kubectl -n team-a get pod train").await;
    assert!(
        shown.iter().any(|line| line.contains("SchedulingGated")) && pod.contains("SchedulingGated"),
        "{pod}"
    );
    let events = shown.iter().find_map(|line| line.strip_prefix("$ ")).unwrap();
    let sentence = shown.iter().find_map(|line| line.split_once("exceeded quota")).unwrap().1;
    let told = || async {
        let printed = prints(&bed, &path, events).await;
        printed.contains(&format!("exceeded quota{sentence}")).then_some(())
    };
    wait::eventually(SOON, told, "the event that README shows").await.unwrap();
    assert!(programs.iter().all(Program::is_running));
}
