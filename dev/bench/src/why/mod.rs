//! What it costs that people ask and look: QuotaReviews of a tenant beside releases, the command `sluice top` and a scrape
//! at many quotas.

mod many;
mod reviews;

use serde_json::json;

use crate::report::Goal::AtMost;
use crate::report::{Judged, Run, judge, places, say};

/// Measures, prints, writes `why.json`.
///
/// # Errors
/// When the control plane or Sluice does not do its part.
pub async fn run(run: &Run) -> anyhow::Result<()> {
    let many = many::measure(run).await?;
    say(&format!("why: {many}"));
    let mut file = json!({"many": many, "reviews": reviews::measure(run).await?});
    judge("why: questions beside releases, many quotas", &LINES, &mut file);
    println!(
        "  releases: ten a second on a real control plane; ratio: the median of pairs of runs\n\
         \x20 command, scrape: beside a simulated API server; state locked: what a scrape takes at a time"
    );
    run.write("why", file)
}

const LINES: [Judged; 17] = [
    ("questions sent per second", "reviews/sent_per_s", None),
    ("answered by the leader, per second", "reviews/answered_per_s", None),
    ("releases beside them, p99 as times of without", "reviews/p99_ratio", Some(AtMost(1.1))),
    ("p50 as times of without", "reviews/p50_ratio", None),
    ("beside as many dry runs of ConfigMaps, p99 as times of without", "reviews/others_p99_ratio", None),
    ("p50 as times of without", "reviews/others_p50_ratio", None),
    ("beside questions, p99 as times of beside dry runs", "reviews/beside_others_p99_ratio", None),
    ("p50 as times of beside dry runs", "reviews/beside_others_p50_ratio", None),
    ("p99 ms", "reviews/p99_ms", None),
    ("without, p99 ms", "reviews/without_p99_ms", None),
    ("quotas", "many/quotas", None),
    ("sluice top, s", "many/top_s", Some(AtMost(3.0))),
    ("its memory, peak MiB", "many/top_peak_mib", Some(AtMost(200.0))),
    ("bytes of a scrape, MiB", "many/scrape_mib", Some(AtMost(15.0))),
    ("a scrape, ms", "many/scrape_ms", None),
    ("the state locked by a scrape at a time, at most ms", "many/scrape_lock_max_ms", Some(AtMost(2.0))),
    ("the same, p99 ms", "many/scrape_lock_p99_ms", None),
];

/// Places of the figures in the file.
pub const FIGURES: &[&str] = &places(&LINES);
