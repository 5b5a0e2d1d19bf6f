//! The tables and the file.

use serde_json::{Value, json};

use super::drain::{Drain, VMS};
use super::figures::Figures;
use super::journey::STEPS;
use super::stopped::Stopped;
use super::tenants::Met;
use crate::report::{Table, round, verdict};

/// From a migration to its target, at most so much longer than under a quota with room.
const GOAL_MORE_MS: f64 = 8.0;
const GOAL_OPEN_P50_MS: f64 = 12.0;
const GOAL_WRITES: f64 = 2.3;
/// A drain, at most so many times as long as under quotas with room.
const GOAL_DRAIN_RATIO: f64 = 1.1;
/// A lock that helps no migration must not reach a tenant.
const GOAL_SHARE_NO_GRANT: f64 = 0.0;
const GOAL_SHARE_ATTACK: f64 = 0.1;
/// While one of two API servers stands still, p99 at most so much longer than with both.
const GOAL_STOPPED_MORE_MS: f64 = 100.0;

/// A row of the table: full, with room, ratio.
type Cells = [String; 3];

fn beside(full: f64, roomy: f64) -> Cells {
    [format!("{full:.1}"), format!("{roomy:.1}"), format!("{:.2}", full / roomy)]
}

fn alone(value: String) -> Cells {
    [value, "-".to_owned(), "-".to_owned()]
}

/// Adds a row; the goal is what it says and whether it is met.
fn row(table: &mut Table, figure: &str, [full, roomy, ratio]: Cells, goal: Option<(String, bool)>) {
    let (goal, met) =
        goal.map_or_else(|| ("-".to_owned(), "-".to_owned()), |(goal, met)| (goal, verdict(met)));
    table.row([figure.to_owned(), full, roomy, ratio, goal, met]);
}

/// Writes the tables.
pub(super) fn print(figures: &Figures) {
    let mut table = Table::new(
        &format!(
            "headroom: {} migrations under a full quota and as many under one with room",
            figures.migrations
        ),
        &["figure", "full", "with room", "ratio", "goal", ""],
    );
    times(figures, &mut table);
    counts(figures, &mut table);
    table.print();
    let mut table = Table::new(
        "headroom: where the time goes, medians of each step",
        &["step", "ms", "of it in the API server", "requests"],
    );
    for (at, name) in STEPS.iter().enumerate() {
        let [took, server, requests] = figures.step(at);
        table.row([
            (*name).to_owned(),
            format!("{took:.2}"),
            format!("{server:.2}"),
            format!("{requests:.2}"),
        ]);
    }
    table.print();
    println!("  times are from the audit log: from the end of the step before to the end of this one");
    print_tenants(figures);
    print_stopped(&figures.stopped);
}

fn times(figures: &Figures, table: &mut Table) {
    let [full, roomy] = figures.target_both_ms(0.5);
    let more = (format!("≤ +{GOAL_MORE_MS} ms"), full - roomy <= GOAL_MORE_MS);
    row(table, "migration to target, p50 ms", beside(full, roomy), Some(more));
    let [full, roomy] = figures.target_both_ms(0.99);
    row(table, "migration to target, p99 ms", beside(full, roomy), None);
    let open = figures.open_ms(0.5);
    let goal = (format!("≤ {GOAL_OPEN_P50_MS}"), open <= GOAL_OPEN_P50_MS);
    row(table, "window open, p50 ms", alone(format!("{open:.1}")), Some(goal));
    row(table, "window open, longest ms", alone(format!("{:.1}", figures.open_ms(1.0))), None);
    let [full, roomy] = drained_s(figures);
    let goal = (format!("≤ {GOAL_DRAIN_RATIO} ×"), full <= roomy * GOAL_DRAIN_RATIO);
    row(table, &format!("drain of {VMS} VMs, s"), beside(full, roomy), Some(goal));
}

fn counts(figures: &Figures, table: &mut Table) {
    for (name, rejected) in [
        ("rejected attempts", figures.rejected()),
        ("rejected attempts in drains", figures.rejected_in_drains()),
    ] {
        row(table, name, alone(rejected.to_string()), Some(("0".to_owned(), rejected == 0)));
    }
    let writes = figures.per_migration(&figures.writes);
    let goal = (format!("≤ {GOAL_WRITES}"), writes <= GOAL_WRITES);
    row(table, "API writes per migration", alone(format!("{writes:.2}")), Some(goal));
    for (name, counts) in
        [("dry runs per migration", &figures.dry_runs), ("events per migration", &figures.events)]
    {
        row(table, name, alone(format!("{:.2}", figures.per_migration(counts))), None);
    }
}

/// Medians: full quotas, quotas with room.
fn drained_s(figures: &Figures) -> [f64; 2] {
    [&figures.drains, &figures.drains_roomy].map(|side| Figures::drain_s(side, |it| it.s))
}

fn print_tenants(figures: &Figures) {
    let mut table = Table::new(
        "headroom: what a tenant feels of locks while pods come and go without end",
        &[
            "beside",
            "s",
            "targets sent",
            "raises",
            "locked",
            "goal",
            "",
            "longest ms",
            "pods",
            "refused by the lock",
            "by a quota",
        ],
    );
    for (beside, met, goal) in [
        ("a blocked migration, no grant", &figures.no_grant, GOAL_SHARE_NO_GRANT),
        ("an attack, unlimited grant", &figures.attack, GOAL_SHARE_ATTACK),
    ] {
        table.row([
            beside.to_owned(),
            format!("{:.1}", met.s),
            met.targets.to_string(),
            met.locked.raises.to_string(),
            format!("{:.4}", met.locked.share),
            format!("≤ {goal}"),
            verdict(met.locked.share <= goal && met.targets > 0),
            format!("{:.1}", met.locked.longest_ms),
            met.pods.to_string(),
            met.refused_by_lock.to_string(),
            met.refused_by_quota.to_string(),
        ]);
    }
    table.print();
    println!(
        "  locked: share of the time from the answers to raises to the answers to their restores; nothing without targets"
    );
}

fn print_stopped(stopped: &Stopped) {
    let title = format!(
        "headroom: {} targets in a namespace with room beside {} full ones, while one of two API servers stands still",
        stopped.one_ms.len(),
        stopped.namespaces
    );
    let mut table =
        Table::new(&title, &["migration to target", "one stands still", "both run", "ratio", "goal", ""]);
    for (name, q) in [("p50 ms", 0.5), ("p99 ms", 0.99), ("longest ms", 1.0)] {
        let [one, both] = stopped.ms(q);
        let goal = (q == 0.99).then(|| (format!("≤ +{GOAL_STOPPED_MORE_MS} ms"), is_near(stopped)));
        row(&mut table, name, beside(one, both), goal);
    }
    table.print();
}

fn is_near(stopped: &Stopped) -> bool {
    let [one, both] = stopped.ms(0.99);
    one - both <= GOAL_STOPPED_MORE_MS
}

fn stopped(stopped: &Stopped) -> Value {
    let [[p50, both_p50], [p99, both_p99], [longest, both_longest]] = [0.5, 0.99, 1.0].map(|q| stopped.ms(q));
    json!({
        "full_namespaces": stopped.namespaces,
        "targets": stopped.one_ms.len(),
        "target_p50_ms": ms(p50),
        "target_p99_ms": ms(p99),
        "target_max_ms": ms(longest),
        "undisturbed_p50_ms": ms(both_p50),
        "undisturbed_p99_ms": ms(both_p99),
        "undisturbed_max_ms": ms(both_longest),
    })
}

fn ms(value: f64) -> Value {
    json!(round(value, 2))
}

/// The file.
pub(super) fn json(figures: &Figures, kubernetes: &str, quick: bool, machine: &Value) -> Value {
    let ([full, roomy], [full_p99, roomy_p99]) = (figures.target_both_ms(0.5), figures.target_both_ms(0.99));
    let mut file = json!({
        "migrations": figures.migrations,
        "windows": figures.windows().count(),
        "unlimited_windows": figures.roomy.iter().filter(|journey| journey.window.is_some()).count(),
        "vmim_to_target_p50_ms": ms(full),
        "vmim_to_target_p99_ms": ms(full_p99),
        "unlimited_p50_ms": ms(roomy),
        "unlimited_p99_ms": ms(roomy_p99),
        "ratio_p50": round(full / roomy, 3),
        "rejected_attempts": figures.rejected(),
        "window_open_p50_ms": ms(figures.open_ms(0.5)),
        "window_open_max_ms": ms(figures.open_ms(1.0)),
        "api_writes_per_migration": ms(figures.per_migration(&figures.writes)),
        "dry_runs_per_migration": ms(figures.per_migration(&figures.dry_runs)),
        "events_per_migration": ms(figures.per_migration(&figures.events)),
        "writes": figures.writes,
        "dry_runs": figures.dry_runs,
        "events": figures.events,
        "locked_share_no_grant": round(figures.no_grant.locked.share, 5),
        "locked_share_attack": round(figures.attack.locked.share, 5),
        "tenants": {"no_grant": tenant(&figures.no_grant), "attack": tenant(&figures.attack)},
        "stopped_server": stopped(&figures.stopped),
        "steps": steps(figures),
        "goals": goals(figures),
        "measured": "by the API server's clock, from its audit log: from the answer that the migration exists to the answer \
                     that its target pod does; a window from the answer to the first raise, which sets the mark that locks \
                     the namespace, to the answer to the last restore, which removes it; a locked share is that of such \
                     times in a run; a drain from the answer that the node is cordoned to the end of \
                     the last source pod, medians",
        "server": {"kubernetes": kubernetes, "etcd_fsync": false, "audit_log": true, "parallel_migrations": 100},
        "quick": quick,
        "machine": machine,
    });
    if let (Some(file), Value::Object(drains)) = (file.as_object_mut(), drains(figures)) {
        file.extend(drains);
    }
    file
}

fn steps(figures: &Figures) -> Vec<Value> {
    let step = |(at, name): (usize, &&str)| {
        let [took, server, requests] = figures.step(at);
        json!({"step": name, "p50_ms": ms(took), "server_p50_ms": ms(server), "requests": ms(requests)})
    };
    STEPS.iter().enumerate().map(step).collect()
}

fn tenant(met: &Met) -> Value {
    json!({
        "s": round(met.s, 2),
        "locked_share": round(met.locked.share, 5),
        "longest_lock_ms": ms(met.locked.longest_ms),
        "raises": met.locked.raises,
        "migrations": met.migrations,
        "target_attempts": met.targets,
        "pods_created": met.pods,
        "pods_refused_by_lock": met.refused_by_lock,
        "pods_refused_by_quota": met.refused_by_quota,
    })
}

fn goals(figures: &Figures) -> Value {
    let [full, roomy] = figures.target_both_ms(0.5);
    let [drained, drained_roomy] = drained_s(figures);
    json!({
        "p50_within_ms_of_unlimited": GOAL_MORE_MS,
        "p50_met": full - roomy <= GOAL_MORE_MS,
        "rejected_attempts": 0,
        "rejected_met": figures.rejected() + figures.rejected_in_drains() == 0,
        "window_open_p50_ms": GOAL_OPEN_P50_MS,
        "window_open_met": figures.open_ms(0.5) <= GOAL_OPEN_P50_MS,
        "api_writes_per_migration": GOAL_WRITES,
        "api_writes_met": figures.per_migration(&figures.writes) <= GOAL_WRITES,
        "drain_ratio": GOAL_DRAIN_RATIO,
        "drain_met": drained <= drained_roomy * GOAL_DRAIN_RATIO,
        "locked_share_no_grant": GOAL_SHARE_NO_GRANT,
        "locked_share_no_grant_met": figures.no_grant.locked.share <= GOAL_SHARE_NO_GRANT,
        "locked_share_attack": GOAL_SHARE_ATTACK,
        "stopped_p99_within_ms_of_both": GOAL_STOPPED_MORE_MS,
        "stopped_p99_met": is_near(&figures.stopped),
        "locked_share_attack_met": figures.attack.locked.share <= GOAL_SHARE_ATTACK && figures.attack.targets > 0,
    })
}

fn drains(figures: &Figures) -> Value {
    let seconds = |drains: &[Drain], of: fn(&Drain) -> f64| json!(round(Figures::drain_s(drains, of), 3));
    let each = |drains: &[Drain]| -> Vec<Value> {
        drains.iter().map(|it| json!({"s": round(it.s, 3), "targets_s": round(it.targets_s, 3)})).collect()
    };
    json!({
        "drained_vms": VMS,
        "drain_s": seconds(&figures.drains, |it| it.s),
        "drain_unlimited_s": seconds(&figures.drains_roomy, |it| it.s),
        "drain_targets_s": seconds(&figures.drains, |it| it.targets_s),
        "drain_targets_unlimited_s": seconds(&figures.drains_roomy, |it| it.targets_s),
        "rejected_attempts_drain": figures.rejected_in_drains(),
        "drains": {"full": each(&figures.drains), "unlimited": each(&figures.drains_roomy)},
    })
}
