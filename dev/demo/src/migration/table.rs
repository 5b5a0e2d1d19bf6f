//! The table of the act of the migration: the quota by key, its lock, the VM's pods.

use std::time::Duration;

use super::passage::{Amounts, Launcher, Passage, Quota};
use crate::stage::View;
use crate::table::{Ink, Style, cut};

impl View for Passage {
    fn table(&self, now: Duration, style: Style) -> Vec<String> {
        table(self, now, style)
    }

    fn summary(&self) -> Option<String> {
        self.verdict.clone()
    }
}

/// Quota, lock, VM, migration and pods, no line longer than the terminal is wide.
pub fn table(passage: &Passage, now: Duration, style: Style) -> Vec<String> {
    let mut lines = Vec::new();
    match &passage.quota {
        Some(quota) => quota_lines(quota, passage.raised.as_ref(), style, &mut lines),
        None => lines.push(style.paint(Ink::Bold, &cut("quota: not there yet", style.width))),
    }
    let (ink, lock) = match (passage.quota.as_ref().and_then(Quota::locked_until), passage.locked_for) {
        (Some(end), _) => (Ink::Yellow, format!("until {end}")),
        (None, Some(time)) => (Ink::Green, format!("gone; was seen for {} ms", time.as_millis())),
        (None, None) => (Ink::Dim, "none".to_owned()),
    };
    lines.push(style.paint(ink, &cut(&format!("{:<14} {lock}", "lock"), style.width)));
    let [phase, node] = passage.vm.clone().unwrap_or_default();
    lines.push(cut(&format!("{:<14} {phase} {node}", "VM"), style.width));
    let [_, phase] = passage.migration.clone().unwrap_or_default();
    let note = passage.told.as_ref().map(|[_, note]| format!("; {note}")).unwrap_or_default();
    lines.push(cut(&format!("{:<14} {phase}{note}", "migration"), style.width));
    let header = format!("{:<28} {:<7} {:<10} {:>7}  {}", "POD", "ROLE", "STATE", "SINCE", "NODE");
    lines.push(style.paint(Ink::Dim, &cut(&header, style.width)));
    lines.extend(passage.launchers().into_iter().map(|launcher| pod(launcher, now, style)));
    lines
}

/// The keys, and a line each for what is wanted, enforced and used; what was enforced meanwhile stays to be read.
fn quota_lines(quota: &Quota, raised: Option<&Quota>, style: Style, lines: &mut Vec<String>) {
    let rows: [(&str, Option<&Amounts>); 4] = [
        ("spec.hard", Some(&quota.spec)),
        ("status.hard", Some(&quota.hard)),
        ("used", Some(&quota.used)),
        ("was raised to", raised.filter(|_| quota.is_plain()).map(|raised| &raised.hard)),
    ];
    let row = |name: &str, cell: &dyn Fn(&str) -> String| {
        let mut line = format!("{name:<14}");
        for key in quota.spec.keys() {
            line.push_str(&format!(" {:>16}", cell(key)));
        }
        cut(&line, style.width)
    };
    lines.push(style.paint(Ink::Bold, &row(&format!("quota {}", quota.name), &str::to_owned)));
    for (name, amounts) in rows {
        let Some(amounts) = amounts else { continue };
        let line = row(name, &|key| amounts.get(key).cloned().unwrap_or_default());
        let is_raised = name == "status.hard" && !quota.is_plain();
        lines.push(if is_raised { style.paint(Ink::Yellow, &line) } else { line });
    }
}

fn pod(launcher: &Launcher, now: Duration, style: Style) -> String {
    let ink = match launcher.phase.as_str() {
        "Running" => Ink::Green,
        "Pending" => Ink::Cyan,
        "Failed" => Ink::Red,
        _ => Ink::Dim,
    };
    let since = format!("{:.1} s", now.saturating_sub(launcher.since).as_secs_f32());
    let node = launcher.node.as_deref().unwrap_or_default();
    let line = format!(
        "{:<28} {:<7} {:<10} {since:>7}  {node}",
        cut(&launcher.name, 28),
        launcher.role(),
        launcher.phase
    );
    style.paint(ink, cut(&line, style.width).trim_end())
}
