//! Whether a bench wrote all that it should have: every figure is there and is a number.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::{Bench, evaluators, why};

const ENGINE: &[&str] = &[
    "ledger_event_ns",
    "quantity_parse_ns/500m",
    "pod_charge_ns/typical",
    "pod_charge_ns/VM launcher",
    "release_decision/0/ns",
    "release_decision_growth_10_to_100k",
];
const MEMORY: &[&str] = &[
    "pods",
    "rss_mib",
    "rss_mib_after_list",
    "rss_mib_after_relist",
    "peak_rss_mib",
    "decode_us_per_pod",
    "first_plan_ms",
];
const SCALE: &[&str] = &[
    "namespaces",
    "pods",
    "waiting_pods",
    "events_per_s",
    "releases",
    "quota_writes",
    "cpu_share",
    "lock_hold_p50_ms",
    "lock_hold_p99_ms",
    "rss_mib",
    "rss_mib_started",
    "started_s",
    "buckets/0/count",
];
const WEBHOOK: &[&str] = &[
    "rate_per_s",
    "achieved_per_s",
    "requests",
    "p50_ms",
    "p99_ms",
    "client_p50_ms",
    "client_p99_ms",
    "cpu_us_per_request",
    "under_attack_p99_ms",
    "rss_mib",
    "buckets/0/count",
];
/// Pods that wait, pods that arrive, pods that come now and then: in one namespace, and in many.
const GATE: &[&str] = &[
    "0/releases_per_s",
    "0/raw_patch_per_s",
    "0/ratio",
    "0/p99_ms",
    "1/p50_ms",
    "1/p99_ms",
    "2/p99_ms",
    "3/ratio",
    "4/p99_ms",
    "5/p99_ms",
];
const CLUSTER_QUOTA: &[&str] = &[
    "releases_per_s",
    "raw_patch_per_s",
    "ratio",
    "idle/p50_ms",
    "idle/p99_ms",
    "ns_per_event_growth",
    "many/0/ns_per_event",
    "many/1/ns_per_event",
    "many/2/ns_per_event",
    "many/2/writes_per_s/status",
    "many/2/writes_per_s/mirrors",
    "many/2/bytes/quota",
    "many/2/bytes/mirror",
    "shown/namespaces",
    "shown/writes_per_s/status",
    "shown/writes_per_s/mirrors",
    "shown/bytes/quota",
    "shown/bytes/charge",
    "shown/bytes/mirror",
];
const ADMISSION: &[&str] = &[
    "creations",
    "policy/untargeted_p50_ms",
    "policy/targeted_p50_ms",
    "policy/added_p50_ms",
    "policy/targeted_p99_ms",
    "webhook/untargeted_p50_ms",
    "webhook/targeted_p50_ms",
    "webhook/added_p50_ms",
    "webhook/targeted_p99_ms",
    "resize/untargeted_p50_ms",
    "resize/untargeted_p99_ms",
    "resize/targeted_p50_ms",
    "resize/targeted_p99_ms",
];
const HEADROOM: &[&str] = &[
    "migrations",
    "vmim_to_target_p50_ms",
    "vmim_to_target_p99_ms",
    "unlimited_p50_ms",
    "unlimited_p99_ms",
    "rejected_attempts",
    "api_writes_per_migration",
    "window_open_p50_ms",
    "window_open_max_ms",
    "drain_s",
    "drain_unlimited_s",
    "drain_targets_s",
    "drain_targets_unlimited_s",
    "rejected_attempts_drain",
    "locked_share_no_grant",
    "locked_share_attack",
    "stopped_server/target_p50_ms",
    "stopped_server/target_p99_ms",
    "stopped_server/undisturbed_p50_ms",
    "stopped_server/undisturbed_p99_ms",
];
const VMS: &[&str] = &[
    "machines",
    "bytes_per_machine",
    "event_ns",
    "growth_event_ns",
    "recount/0/lock_hold_max_ms",
    "recount/0/ms",
    "drain/targets",
    "drain/held_p50_ms",
    "drain/held_max_ms",
    "drain_busy/held_p50_ms",
    "drain_busy/held_max_ms",
    "drain_busy_s",
    "drain_unlimited_busy_s",
];

/// What a gate's run at a given rate of arrival has nothing to be compared with.
const MAY_BE_NULL: &[&str] = &["raw_patch_per_s", "ratio"];

impl Bench {
    /// Places of its figures in its file.
    const fn figures(self) -> &'static [&'static str] {
        match self {
            Self::Engine => ENGINE,
            Self::Memory => MEMORY,
            Self::Scale => SCALE,
            Self::Webhook => WEBHOOK,
            Self::Gate => GATE,
            Self::ClusterQuota => CLUSTER_QUOTA,
            Self::Admission => ADMISSION,
            Self::Headroom => HEADROOM,
            Self::Vms => VMS,
            Self::Evaluators => evaluators::FIGURES,
            Self::Why => why::FIGURES,
            Self::All => &[],
        }
    }

    fn file(self, out: &Path) -> PathBuf {
        out.join(format!("{}.json", self.name()))
    }

    /// Removes the file of an earlier run.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn forget(self, out: &Path) -> anyhow::Result<()> {
        let path = self.file(out);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.with_context(|| format!("removing {}", path.display())),
        }
    }

    /// Reads its file.
    ///
    /// # Errors
    /// When there is none, or a figure is missing in it or no number.
    pub fn check(self, out: &Path) -> anyhow::Result<()> {
        let path = self.file(out);
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let file = serde_json::from_str(&text).with_context(|| format!("parsing {}", path.display()))?;
        let faults = faults(self, &file);
        ensure!(faults.is_empty(), "{} is not whole: {}", path.display(), faults.join(", "));
        Ok(())
    }
}

/// What is wrong with a bench's file. What is infinite or no number was written as null.
fn faults(bench: Bench, file: &Value) -> Vec<String> {
    let absent = |place: &&&str| !file.pointer(&format!("/{place}")).is_some_and(Value::is_number);
    let mut faults: Vec<String> =
        bench.figures().iter().filter(absent).map(|place| format!("{place} is no number")).collect();
    nulls(file, "", &mut faults);
    faults
}

fn nulls(value: &Value, place: &str, found: &mut Vec<String>) {
    match value {
        Value::Null => found.push(format!("{place} is null")),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                nulls(item, &format!("{place}/{at}"), found);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                if !(field.is_null() && MAY_BE_NULL.contains(&name.as_str())) {
                    nulls(field, &format!("{place}/{name}"), found);
                }
            }
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::faults;
    use crate::Bench;

    #[test]
    fn figures_that_are_missing_or_no_numbers_are_named() {
        let figures = super::MEMORY.iter().map(|&name| (name.to_owned(), json!(1.5)));
        let whole: Value = figures.collect::<serde_json::Map<_, _>>().into();
        assert_eq!(faults(Bench::Memory, &whole), [""; 0]);
        let mut file = whole;
        file["pods"] = json!("many");
        file["stages"] = json!([{"rss_mib": 1}, {"rss_mib": f64::NAN}]);
        assert_eq!(faults(Bench::Memory, &file), ["pods is no number", "/stages/1/rss_mib is null"]);
    }

    #[test]
    fn a_run_with_nothing_to_compare_is_whole() {
        let row = json!({"releases_per_s": 1, "raw_patch_per_s": 1, "ratio": 1, "p50_ms": 1, "p99_ms": 1});
        let arriving = json!({"p50_ms": 1, "p99_ms": 1, "ratio": null, "raw_patch_per_s": null});
        let (waiting, comes) = (|| row.clone(), || arriving.clone());
        let mut rows = vec![waiting(), comes(), comes(), waiting(), comes(), comes()];
        assert_eq!(faults(Bench::Gate, &json!(rows)), [""; 0]);
        rows.remove(0);
        assert_eq!(
            faults(Bench::Gate, &json!(rows)),
            [
                "0/releases_per_s is no number",
                "0/raw_patch_per_s is no number",
                "0/ratio is no number",
                "3/ratio is no number",
                "5/p99_ms is no number"
            ]
        );
    }
}
