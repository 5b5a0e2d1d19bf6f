//! application-aware-quota's own suite against Sluice: `docs/conformance.md` says how it is built,
//! and which specs are left out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::process::{ExitStatus, Stdio};

use serde_json::Value;
use sluice_e2e::upstream;
use sluice_testbed::Bed;

/// The program that `go test -c` makes of upstream's `tests`.
const SUITE: &str = "SLUICE_UPSTREAM_SUITE";
/// A regular expression of names of specs, to run only some.
const FOCUS: &str = "SLUICE_UPSTREAM_FOCUS";
/// Specs that cannot pass here.
const LEFT_OUT: [&str; 2] = [
    // 21 reaches the webhook by `kubectl port-forward`, which a kubelet serves.
    "Cert rotation tests with port forward",
    // 60 asks for sidecars.
    "plugable policies",
];
/// Spec 11 expects an `AAQ` that names no priority class. Spec 10 names one and leaves it, since its clean-up looks at a
/// variable that nothing sets; the end of a run takes it back.
const APART: &str = "should use openshift priority class if not set and available";

/// All others.
const PASS: usize = 58;

type Results = BTreeMap<String, Vec<String>>;

#[tokio::test(flavor = "multi_thread")]
async fn upstreams_own_suite_passes() {
    let suite =
        std::env::var_os(SUITE).unwrap_or_else(|| panic!("{SUITE} has to be the path of upstream's suite"));
    let bed = Bed::start(upstream::bed_options_of_suite()).await.unwrap();
    let mut kubelet = upstream::installed_by_its_names(&bed).await.unwrap();
    let left_out = LEFT_OUT.join("|");
    let is_whole = std::env::var_os(FOCUS).is_none();
    let runs = async {
        let run = |focus: String, skip: String| run(&suite, &bed, focus, skip);
        match std::env::var(FOCUS) {
            Ok(focus) => vec![run(focus, left_out).await],
            Err(_) => {
                let most = run(String::new(), format!("{left_out}|{APART}")).await;
                vec![most, run(APART.to_owned(), left_out).await]
            }
        }
    };
    let runs = tokio::select! {
        runs = runs => runs,
        () = kubelet.run() => unreachable!("it runs until it is dropped"),
    };
    let mut results = Results::new();
    for (_, of_run) in &runs {
        for (state, specs) in of_run {
            results.entry(state.clone()).or_default().extend(specs.iter().cloned());
        }
    }
    for (state, specs) in &results {
        for spec in specs {
            println!("{state}: {spec}");
        }
    }
    let counts: Vec<_> = results.iter().map(|(state, specs)| format!("{} {state}", specs.len())).collect();
    println!("specs: {}", counts.join(", "));
    for (status, _) in runs {
        assert!(status.success(), "{status}");
    }
    if is_whole {
        let passed = results.get("passed").map_or(0, Vec::len);
        assert_eq!((passed, results.len()), (PASS, 1), "a spec that leaves itself out has not passed");
    }
}

/// Runs the specs with names like `focus` and unlike `skip`. Those that the expressions leave out are not in the results;
/// those that leave themselves out are.
async fn run(suite: &OsStr, bed: &Bed, focus: String, skip: String) -> (ExitStatus, Results) {
    let report = bed.dir().join("upstream.json");
    let status = tokio::process::Command::new(suite)
        .arg(format!("--kubeconfig-aaq={}", bed.admin_kubeconfig().display()))
        .arg(format!("--aaq-namespace={}", upstream::NAMESPACE))
        .arg(format!("--ginkgo.skip={skip}"))
        .arg(format!("--ginkgo.focus={focus}"))
        .arg(format!("--ginkgo.json-report={}", report.display()))
        .args(["--ginkgo.no-color", "--ginkgo.timeout=2h", "--test.timeout=0"])
        .current_dir(bed.dir())
        // It would empty that folder.
        .env_remove("ARTIFACTS")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await
        .unwrap();
    let report: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    (status, results(&report))
}

/// Names of specs by how they ended.
fn results(report: &Value) -> Results {
    let mut results = Results::new();
    for spec in report[0]["SpecReports"].as_array().unwrap() {
        let was_left_out = spec["State"] == "skipped" && spec["Failure"].is_null();
        if spec["LeafNodeType"] == "It" && !was_left_out {
            let within = spec["ContainerHierarchyTexts"].as_array().into_iter().flatten();
            let words = within.chain([&spec["LeafNodeText"]]).filter_map(Value::as_str);
            let name = words.collect::<Vec<_>>().join(" / ");
            results.entry(spec["State"].as_str().unwrap().to_owned()).or_default().push(name);
        }
    }
    results
}
