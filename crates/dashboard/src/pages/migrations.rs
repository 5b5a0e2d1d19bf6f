//! Live migrations: what runs, what waits, and for how long KubeVirt still tries.

use maud::{Markup, html};
use sluice_gate::duration;
use sluice_index::Phase;

use super::View;
use super::parts::table;
use crate::answer::SubjectKind;
use crate::page;
use crate::seen::Migration;
use crate::table::Name;

/// So many are shown.
const SHOWN: usize = 200;
/// In these last seconds before KubeVirt gives up, that is said.
const NEAR: i64 = 300;

pub(super) fn list(view: &View<'_>) -> Markup {
    let mut rows: Vec<(&Name, &Migration)> =
        view.model.migrations().iter().filter(|(_, it)| it.phase != Phase::Succeeded).collect();
    // What waits first, then what moves, then what failed; the oldest first.
    rows.sort_by_key(|(name, it)| {
        (it.is_final(), !it.is_refused, it.phase == Phase::Underway, it.created, (*name).clone())
    });
    let body =
        html! { @for (name, migration) in rows.iter().take(SHOWN) { (row(name, migration, view.now)) } };
    let more = rows.len().saturating_sub(SHOWN);
    html! {
        @if rows.is_empty() {
            p { @if view.model.migrations().is_complete() { "There is none." } @else { "They are being read…" } }
        } @else {
            (table("Live migrations", &["Migration", "VM", "State", "For", "KubeVirt gives up"], &body))
        }
        @if more > 0 { p.note { (more) " more are not shown." } }
    }
}

fn row((namespace, name): &Name, migration: &Migration, now: i64) -> Markup {
    let left = migration.created + migration.limit - now;
    html! {
        tr {
            th scope="row" {
                a href=(page::why(SubjectKind::Migration, namespace, name)) { (name) }
                small { (namespace) }
            }
            td { a href=(page::why(SubjectKind::Vm, namespace, &migration.machine)) { (migration.machine) } }
            td {
                (migration.told)
                @if migration.is_refused { " " strong.word.full { "no room in a quota" } }
            }
            td { (duration(now - migration.created)) }
            td {
                @if migration.phase != Phase::Pending { "–" }
                @else if left > NEAR { "in " (duration(left)) " without a target that runs" }
                @else if left > 0 { strong.word.nearly { "in " (duration(left)) } }
                @else { strong.word.full { "about now" } }
            }
        }
    }
}
