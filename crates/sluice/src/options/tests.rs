#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

use clap::Parser;
use sluice_manifests::Gating;

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    options: OptionsArgs,
}

fn args(path: &Path, further: &[&str]) -> OptionsArgs {
    let options = format!("--options={}", path.display());
    Line::try_parse_from(["sluice", &options].into_iter().chain(further.iter().copied())).unwrap().options
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).unwrap();
}

#[test]
fn of_a_folder_the_file_of_the_user_wins_and_a_flag_over_that() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "prometheus.yaml", "replicas: 3\nbalancerProofs: 3\ngating: webhook\n");
    write(folder.path(), "openshift.yaml", "replicas: 4\nbalancerProofs: 4\nplatform: openshift\n");
    write(folder.path(), "options.yaml", "replicas: 5\n");
    write(folder.path(), "..data", "no options: at all");
    let options = args(folder.path(), &["--exempt-namespaces=a,b"]).over(InstallOptions::default()).unwrap();
    assert_eq!((options.replicas, options.balancer_proofs), (5, 3));
    assert_eq!((options.gating, options.exempt_namespaces.len()), (Gating::Webhook, 2));
    let by_flag = args(folder.path(), &["--gating=policy"]).over(InstallOptions::default()).unwrap();
    assert_eq!(by_flag.gating, Gating::Policy);
}

#[test]
fn a_file_that_cannot_be_is_named() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "options.yaml", "replica: 3\n");
    let said = args(folder.path(), &[]).over(InstallOptions::default()).unwrap_err().to_string();
    for part in ["options: ", "options.yaml: ", "replica", "correct the file"] {
        assert!(said.contains(part), "{said}");
    }
    let missing = folder.path().join("missing");
    let said = args(&missing, &[]).over(InstallOptions::default()).unwrap_err().to_string();
    assert!(said.contains("missing: ") && said.contains("that can be read"), "{said}");
}

/// The clock is of the test: each look is at once.
#[tokio::test(start_paused = true)]
async fn only_other_options_that_can_be_end_the_process() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "options.yaml", "replicas: 3\n");
    let options = args(folder.path(), &[]);
    let known = options.read().unwrap();
    let cancel = CancellationToken::new();
    let looking = tokio::spawn({
        let (options, cancel) = (options.clone(), cancel.clone());
        async move { options.until_changed(known, cancel).await }
    });
    for same in ["replicas: 0\n", "replica: 3\n", "replicas: 3\n"] {
        write(folder.path(), "options.yaml", same);
        tokio::time::sleep(3 * LOOK).await;
        assert!(!cancel.is_cancelled(), "{same}");
    }
    write(folder.path(), "options.yaml", "replicas: 4\n");
    tokio::time::timeout(3 * LOOK, cancel.cancelled()).await.unwrap();
    looking.await.unwrap();
}
