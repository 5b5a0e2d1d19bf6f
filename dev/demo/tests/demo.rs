//! The demo as people start it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests are not seen as tests"
)]

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::Api;
use kube::api::ListParams;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use sluice_api::ApplicationAwareClusterResourceQuota;
use sluice_e2e::objects::apply_aaq;
use sluice_e2e::{Running, Setup};
use sluice_testbed::{Bed, BedOptions, wait};
use tokio::sync::Semaphore;

const SOON: Duration = Duration::from_secs(60);

/// Each story has a control plane of its own, with everything KubeVirt needs: more than two at a time only slow each
/// other down.
static STAGES: Semaphore = Semaphore::const_new(2);

fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice-demo"));
    command.args(arguments).args(["--pace", "0"]).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

async fn output(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn told(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The lines that the story must have, in this order.
fn assert_story(text: &str) {
    let lines = [
        "A namespace whose pods together may ask for 4 CPUs.",
        "web (2 × 1 CPU) and report (2 CPUs) fit",
        "Five more pods come.",
        "report ends",
        "urgent               Released",
        "The quota is raised to 8 CPUs",
        "train                Released",
        "8 pods, 5 were held, longest wait ",
    ];
    let rest = assert_in_order(text, &lines);
    assert!(
        rest.contains(", never more than 4 of 4 CPUs in use, after the raise 8 of 8; huge still waits"),
        "{text}"
    );
    let reason = "huge                 Held       exceeded quota: compute, requested: requests.cpu=10, used: requests.cpu=";
    assert!(text.contains(reason), "{text}");
    assert!(!text.contains('\x1b'), "escape sequences without a terminal:\n{text}");
}

/// The lines of the act of a cluster quota, in this order.
fn assert_cluster(text: &str) {
    let lines = [
        "Two namespaces whose pods may ask for 2 CPUs together",
        "batch/import         Held       exceeded quota: ",
        ", requested: requests.cpu=1, used: requests.cpu=",
        "requests.cpu 2/2 (batch 500m, web 1500m), pods 2/10 (batch 1, web 1), held 1",
        "front is deleted in ",
        "batch/import         Released   after ",
        "requests.cpu 1500m/2 (batch 1500m, web 0), pods 2/10 (batch 2, web 0), held 0",
        "3 pods, 1 was held, longest wait ",
    ];
    let rest = assert_in_order(text, &lines);
    let last = rest.lines().next().unwrap();
    assert!(last.ends_with(", never more than 2 of 2 CPUs in use"), "{last}");
}

/// What follows, from the last of these texts on.
fn assert_in_order<'t>(text: &'t str, lines: &[&str]) -> &'t str {
    lines.iter().fold(text, |rest, line| {
        let found = rest.find(line).unwrap_or_else(|| panic!("{line:?} is missing or too early in:\n{text}"));
        &rest[found..]
    })
}

/// The lines of the act of a migration, in this order. What the watches show in between depends on the machine's pace: only
/// what the story waits for is expected.
fn assert_migration(text: &str) {
    let lines = [
        "native ResourceQuota has room for one VM",
        "what runs on nodes is simulated",
        "VM web                   Running on node-",
        "The quota is full",
        "the VM migrates",
        "migration move-web       Succeeded",
        "The VM moved from node-",
    ];
    let rest = assert_in_order(text, &lines);
    let last = rest.lines().next().unwrap();
    let (_, locked) = last.split_once("the quota was locked for ").unwrap_or_else(|| panic!("{last}"));
    let locked = locked.strip_suffix(" ms, no attempt was rejected").unwrap_or_else(|| panic!("{last}"));
    assert!(locked.parse::<f64>().is_ok_and(|ms| ms > 0.0), "{last}");
    assert!(last.contains("The quota's spec never changed ("), "{last}");
    assert!(
        text.contains(" target Running on node-") && text.contains(" source Succeeded on node-"),
        "{text}"
    );
    let told =
        "migration move-web       HeadroomGranted: let in beside quota one-vm: pods +1, requests.cpu +1, ";
    assert!(text.contains(told), "{text}");
    assert!(text.contains("quota one-vm             pods 1/1, requests.cpu 1/1, requests.memory "), "{text}");
}

fn output_of(child: &mut Child) -> BufReader<ChildStdout> {
    BufReader::new(child.stdout.take().unwrap())
}

/// Reads lines until one contains `text`; returns that.
fn read_until(reader: &mut impl BufRead, text: &str) -> String {
    let (mut line, mut all) = (String::new(), String::new());
    while !line.contains(text) {
        line.clear();
        assert_ne!(reader.read_line(&mut line).unwrap(), 0, "{text:?} did not come:\n{all}");
        all.push_str(&line);
    }
    line
}

/// Where the page listens, and its path.
fn split(entrance: &str) -> (&str, &str) {
    entrance.trim().strip_prefix("http://").unwrap().split_once('/').unwrap()
}

fn listens(entrance: &str) -> bool {
    TcpStream::connect(split(entrance).0).is_ok()
}

/// What the page shows to the browser that comes first.
fn visit(entrance: &str) -> String {
    let (host, path) = split(entrance);
    let get = |path: &str, cookie: &str| {
        let mut stream = TcpStream::connect(host).unwrap();
        let request =
            format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let welcome = get(path, "");
    let cookie = welcome.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect(&welcome);
    let (root, _) = path.split_once("/enter/").unwrap();
    get(&format!("{root}/"), cookie.split(';').next().unwrap())
}

fn interrupt(pid: u32) {
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::INT).unwrap();
}

async fn until_empty(dir: &Path) {
    let empty = || async { std::fs::read_dir(dir).unwrap().next().is_none().then_some(()) };
    wait::eventually(SOON, empty, "the bed's directory to disappear").await.unwrap();
}

#[tokio::test]
async fn the_story_comes_true_on_a_cluster_of_its_own() {
    let _stage = STAGES.acquire().await.unwrap();
    let beds = tempfile::tempdir().unwrap();
    let mut command = demo(&[]);
    command.env("SLUICE_BED_DIR", beds.path());
    let output = output(command).await;
    let text = told(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_story(&text);
    assert_cluster(&text);
    assert_migration(&text);
    assert!(text.contains("make demo KEEP=1"), "{text}");
    until_empty(beds.path()).await;
}

#[tokio::test]
async fn ctrl_c_leaves_nothing() {
    let _stage = STAGES.acquire().await.unwrap();
    let beds = tempfile::tempdir().unwrap();
    let mut child = demo(&["--page"]).env("SLUICE_BED_DIR", beds.path()).spawn().unwrap();
    let mut reader = output_of(&mut child);
    let entrance = read_until(&mut reader, "  http://127.0.0.1:");
    read_until(&mut reader, "Five more pods come.");
    let page = visit(&entrance);
    assert!(page.starts_with("HTTP/1.1 200 ") && page.contains("compute"), "{page}");
    interrupt(child.id());
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("were held"), "a summary of half a story: {rest}");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!listens(&entrance), "the page outlives the demo");
    until_empty(beds.path()).await;
}

#[tokio::test]
async fn a_kept_cluster_stays_until_it_is_stopped() {
    let _stage = STAGES.acquire().await.unwrap();
    let beds = tempfile::tempdir().unwrap();
    let mut command = demo(&["--keep", "--page"]);
    command.env("SLUICE_BED_DIR", beds.path());
    let output = output(command).await;
    let text = told(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_story(&text);
    assert_cluster(&text);
    assert_migration(&text);
    let said = |before: &str| text.lines().find_map(|line| line.trim().strip_prefix(before)).unwrap();
    let kubeconfig = said("export KUBECONFIG=");
    let kubectl = said("alias kubectl='").split('\'').next().unwrap();
    let (program, word) = kubectl.rsplit_once(' ').unwrap();
    let get = |namespace: &str, kinds: &str| {
        let mut get = Command::new(program);
        get.args([word, "-n", namespace, "get", kinds]).env("KUBECONFIG", kubeconfig);
        told(&get.env("KUBECACHEDIR", beds.path().join("cache")).output().unwrap())
    };
    let pods = get("team-a", "arq,pods");
    assert!(pods.contains("requests.cpu: 8/8") && pods.contains("SchedulingGated"), "{pods}");
    let mirror = get("shop-web", "aacrq");
    assert!(mirror.contains("requests.cpu: 1500m/2"), "{mirror}");
    let kinds = "vmi,vmim,resourcequota,headroompolicies";
    assert!(text.contains(&format!("kubectl -n team-b get {kinds}")), "{text}");
    let migrated = get("team-b", kinds);
    for part in ["Running", "move-web", "pods: 1/1", "Unlimited"] {
        assert!(migrated.contains(part), "{part:?} is missing in:\n{migrated}");
    }
    let _ = std::fs::remove_dir_all(beds.path().join("cache"));
    let entrance = text.lines().find(|line| line.starts_with("  http://127.0.0.1:")).unwrap();
    let page = visit(entrance);
    assert!(page.contains("team-a"), "the page goes on without the command: {page}");
    let pid = said("kill ").split_whitespace().next().unwrap().parse().unwrap();
    interrupt(pid);
    until_empty(beds.path()).await;
    let gone = || async { (!listens(entrance)).then_some(()) };
    wait::eventually(SOON, gone, "the page to end with the cluster").await.unwrap();
}

/// Names of what the demo makes outside of its namespaces.
async fn leftovers(bed: &Bed) -> Vec<String> {
    let (namespaces, classes): (Api<Namespace>, Api<PriorityClass>) =
        (Api::all(bed.admin().unwrap()), Api::all(bed.admin().unwrap()));
    let quotas: Api<ApplicationAwareClusterResourceQuota> = Api::all(bed.admin().unwrap());
    let any = ListParams::default();
    let namespaces = namespaces.list(&any).await.unwrap().items.into_iter().map(|item| item.metadata);
    let classes = classes.list(&any).await.unwrap().items.into_iter().map(|item| item.metadata);
    let quotas = quotas.list(&any).await.unwrap().items.into_iter().map(|item| item.metadata);
    let names = namespaces.chain(classes).chain(quotas).filter_map(|metadata| metadata.name);
    names.filter(|name| name.starts_with("sluice-demo-")).collect()
}

async fn allow_cluster_quotas(bed: &Bed) {
    let spec = json!({ "configuration": { "allowApplicationAwareClusterResourceQuota": true } });
    apply_aaq(&bed.admin().unwrap(), spec).await.unwrap();
}

/// Without nodes nothing runs: as on a real cluster, only releases can be relied on, and a pod ends by deletion.
#[tokio::test]
async fn the_story_comes_true_on_an_existing_cluster() {
    let _stage = STAGES.acquire().await.unwrap();
    let bed = Bed::start(BedOptions { kwok: false, ..BedOptions::default() }).await.unwrap();
    let kubeconfig = bed.admin_kubeconfig().to_str().unwrap();

    let refused = output(demo(&["--kubeconfig", kubeconfig, "--yes"])).await;
    assert_eq!(refused.status.code(), Some(1));
    let text = told(&refused);
    assert!(text.contains("Sluice is not installed on https://127.0.0.1:"), "{text}");
    assert!(text.contains("-f deploy/crds.yaml -f deploy/install.yaml"), "{text}");

    let _sluice = Running::on(&bed, Setup::default()).await.unwrap();
    let unasked = output(demo(&["--kubeconfig", kubeconfig])).await;
    assert_eq!(unasked.status.code(), Some(1));
    assert!(told(&unasked).contains("--yes"), "{}", told(&unasked));

    let mut child = demo(&["--kubeconfig", kubeconfig, "--yes", "--page"]).spawn().unwrap();
    let mut reader = output_of(&mut child);
    let entrance = read_until(&mut reader, "  http://127.0.0.1:");
    read_until(&mut reader, "Five more pods come.");
    assert!(visit(&entrance).contains("sluice-demo-"));
    interrupt(child.id());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!listens(&entrance), "the page outlives the demo");
    assert_eq!(leftovers(&bed).await, Vec::<String>::new());

    for is_allowed in [false, true] {
        if is_allowed {
            allow_cluster_quotas(&bed).await;
        }
        let whole = output(demo(&["--kubeconfig", kubeconfig, "--yes"])).await;
        let text = told(&whole);
        assert_eq!(whole.status.code(), Some(0), "{text}");
        assert_story(&text);
        assert!(text.contains("report               Deleted"), "{text}");
        assert!(text.contains("needs KubeVirt and nodes that run VMs: it is left out here"), "{text}");
        if is_allowed {
            assert_cluster(&text);
        } else {
            assert!(text.contains("no AAQ says allowApplicationAwareClusterResourceQuota"), "{text}");
            assert!(!text.contains("Two namespaces"), "{text}");
        }
        assert!(text.contains("-urgent are removed.") || text.contains(", acrq/sluice-demo-"), "{text}");
        assert_eq!(leftovers(&bed).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_cluster_that_is_not_there_is_named() {
    let missing = output(demo(&["--kubeconfig", "/nowhere/kubeconfig", "--yes"])).await;
    assert_eq!(missing.status.code(), Some(1));
    assert!(told(&missing).contains("reading kubeconfig /nowhere/kubeconfig"), "{}", told(&missing));
}
