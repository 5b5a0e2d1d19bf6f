//! What evaluators cost, sidecars and rules, each beside the same without in the same run: answers, events and a large
//! cluster without a control plane, then releases on a real one.

mod answers;
mod changed;
mod dead;
mod event;
mod kept;
mod large;
mod releases;
mod sidecar;
mod world;

use serde_json::{Value, json};

use crate::gate::Site;
use crate::report::Goal::{AtLeast, AtMost};
use crate::report::{Judged, Run, extend, judge, places, rows, say};

/// Measures, prints, writes `evaluators.json`.
///
/// # Errors
/// When the control plane, the controller or a sidecar does not do its part.
pub async fn run(run: &Run) -> anyhow::Result<()> {
    let mut file = json!({});
    part(&mut file, "answers", answers::measure(run).await?);
    part(&mut file, "events", event::measure(run)?);
    part(&mut file, "kept", kept::measure(run)?);
    part(&mut file, "large", large::measure(run).await?);
    part(&mut file, "changed", changed::measure(run).await?);
    say("evaluators: starting a control plane");
    let mut site = Site::start().await?;
    part(&mut file, "server", site.server_constants().await?);
    part(&mut file, "waiting", releases::waiting(run, &mut site).await?.into());
    part(&mut file, "idle", releases::idle(run, &mut site).await?);
    part(&mut file, "dead", dead::measure(run, &mut site).await?);
    print(&file)?;
    judge("evaluators: in all", &LINES, &mut file);
    run.write("evaluators", file)
}

/// Adds figures, and shows them: what follows takes minutes and may fail.
fn part(file: &mut Value, name: &str, figures: Value) {
    say(&format!("evaluators: {name}: {figures}"));
    extend(file, json!({ name: figures }));
}

fn print(file: &Value) -> anyhow::Result<()> {
    let list = |place: &str| file.pointer(place).and_then(Value::as_array).cloned().unwrap_or_default();
    let columns = [
        ("evaluator", "by"),
        ("namespaces", "namespaces"),
        ("pods", "pods"),
        ("releases/s", "releases_per_s"),
        ("without", "without_per_s"),
        ("ratio", "ratio"),
    ];
    rows("evaluators: releases of pods that wait, medians", &columns, &list("/waiting"))?;
    let columns = [
        ("pods of the namespace", "pods"),
        ("µs per event, p50", "us_per_event"),
        ("p99", "p99_us_per_event"),
    ];
    rows(
        "evaluators: a pod's event with a sidecar that gets no other pods",
        &columns,
        &list("/events/pod_events"),
    )
}

const LINES: [Judged; 29] = [
    (
        "sidecar, other pods not sent, one namespace: releases beside without",
        "waiting/0/ratio",
        Some(AtLeast(0.9)),
    ),
    ("the same, many namespaces", "waiting/3/ratio", Some(AtLeast(0.9))),
    ("other pods sent, one namespace", "waiting/1/ratio", None),
    ("the same, many namespaces", "waiting/4/ratio", None),
    ("rule, one namespace", "waiting/2/ratio", Some(AtLeast(0.95))),
    ("the same, many namespaces", "waiting/5/ratio", Some(AtLeast(0.95))),
    ("from creation to release, sidecar of 1 ms: added p50 ms", "idle/added_p50_ms", Some(AtMost(2.0))),
    ("added p99 ms", "idle/added_p99_ms", Some(AtMost(5.0))),
    ("without, p50 ms", "idle/without_p50_ms", None),
    ("without, p99 ms", "idle/without_p99_ms", None),
    ("answers per second, SDK without work", "answers/sdk_per_s", Some(AtLeast(5_000.0))),
    ("in Go", "answers/go_per_s", Some(AtLeast(3_000.0))),
    ("1 ms of work", "answers/worked_1_ms_per_s", Some(AtLeast(3_200.0))),
    ("an event in the largest namespace, as times of the smallest", "events/growth", Some(AtMost(1.2))),
    ("a rule about a pod, p50 µs", "events/rule_evaluation_us", Some(AtMost(20.0))),
    ("a rule adds to an event, p50 µs", "events/rule_added_us", Some(AtMost(40.0))),
    ("an event without, p50 µs", "events/without_us", None),
    ("a large cluster: memory above without, MiB", "large/added_mib", Some(AtMost(12.0))),
    ("from the start until all have an answer, s", "large/answered_s", Some(AtMost(60.0))),
    ("after the lists, s", "large/answered_after_lists_s", None),
    ("first waiting pod released after the lists, s", "large/first_release_s", Some(AtMost(1.0))),
    ("state locked, the longest p99, ms", "large/lock_p99_ms", Some(AtMost(2.0))),
    ("a changed rule: until it is enforced everywhere, s", "changed/enforced_s", Some(AtMost(30.0))),
    ("until it is in force, s", "changed/read_s", None),
    ("a quota stands still until then at most, s", "changed/while_read_s", Some(AtMost(1.0))),
    ("from then on at most, s", "changed/paused_s", Some(AtMost(1.0))),
    ("sidecar that is not there: added CPU seconds per second", "dead/added_cpu_share", Some(AtMost(0.01))),
    ("with it", "dead/cpu_share", None),
    ("a held pod is told after, s", "dead/told_after_s", Some(AtMost(3.0))),
];

/// Places of the figures in the file.
pub const FIGURES: &[&str] = &places(&LINES);
