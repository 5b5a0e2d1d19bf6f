//! application-aware-quota's own suite against Sluice: `docs/conformance.md` says how it is built,
//! and which specs are left out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use std::collections::BTreeMap;
use std::process::Stdio;

use serde_json::Value;
use sluice_api::names;
use sluice_e2e::upstream;
use sluice_testbed::Bed;

/// The program that `go test -c` makes of upstream's `tests`.
const SUITE: &str = "SLUICE_UPSTREAM_SUITE";
/// A regular expression of names of specs, to run only some.
const FOCUS: &str = "SLUICE_UPSTREAM_FOCUS";
/// Specs of upstream's operator and its certificates, and of what needs a kubelet.
const LEFT_OUT: [&str; 3] = [
    r"\[Destructive\]",
    "ALL Operator tests (Tests|Operator|aaq|Strict|Priority)",
    "Cert rotation|plugable policies",
];

#[tokio::test(flavor = "multi_thread")]
async fn upstreams_own_suite_passes() {
    let suite =
        std::env::var_os(SUITE).unwrap_or_else(|| panic!("{SUITE} has to be the path of upstream's suite"));
    let bed = Bed::start(upstream::bed_options()).await.unwrap();
    let _running = upstream::running(&bed).await.unwrap();
    bed.apply_objects([upstream::stand_in_of_the_controller()]).await.unwrap();
    let report = bed.dir().join("upstream.json");
    let status = tokio::process::Command::new(suite)
        .arg(format!("--kubeconfig-aaq={}", bed.admin_kubeconfig().display()))
        .arg(format!("--aaq-namespace={}", names::INSTALL_NAMESPACE))
        .arg(format!("--ginkgo.skip={}", LEFT_OUT.join("|")))
        .arg(format!("--ginkgo.focus={}", std::env::var(FOCUS).unwrap_or_default()))
        .arg(format!("--ginkgo.json-report={}", report.display()))
        .args(["--ginkgo.no-color", "--ginkgo.timeout=2h", "--test.timeout=0"])
        .current_dir(bed.dir())
        // It would empty that folder.
        .env_remove("ARTIFACTS")
        .stdin(Stdio::null())
        .status()
        .await
        .unwrap();
    let report: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    let results = results(&report);
    for (state, specs) in &results {
        for spec in specs {
            println!("{state}: {spec}");
        }
    }
    let counts: Vec<_> = results.iter().map(|(state, specs)| format!("{} {state}", specs.len())).collect();
    println!("specs: {}", counts.join(", "));
    assert!(status.success(), "{status}");
}

/// Names of specs by how they ended.
fn results(report: &Value) -> BTreeMap<String, Vec<String>> {
    let mut results = BTreeMap::<String, Vec<String>>::new();
    for spec in report[0]["SpecReports"].as_array().unwrap() {
        if spec["LeafNodeType"] == "It" {
            let within = spec["ContainerHierarchyTexts"].as_array().into_iter().flatten();
            let words = within.chain([&spec["LeafNodeText"]]).filter_map(Value::as_str);
            let name = words.collect::<Vec<_>>().join(" / ");
            results.entry(spec["State"].as_str().unwrap().to_owned()).or_default().push(name);
        }
    }
    results
}
