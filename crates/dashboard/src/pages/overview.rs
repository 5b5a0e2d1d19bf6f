//! All quotas, and who waits.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use maud::{Markup, html};
use sluice_gate::duration;

use super::View;
use super::parts::{Part, age, bar, level, level_word, part_of, table};
use crate::answer::SubjectKind;
use crate::page::{self, Sort};
use crate::seen::{Kind, Quota};

/// So many quotas are shown: more cannot be looked through, and the filter finds the others.
const SHOWN: usize = 200;

type Row<'v> = (Kind, &'v str, &'v str, &'v Quota);

pub(super) fn heading(sort: Sort, filter: &str) -> Markup {
    html! {
        h1 .hidden { "Overview" }
        div.forms {
            form method="get" action="./" role="search" {
                label { "Filter " input type="search" name="filter" value=(filter) placeholder="namespace or quota"; }
                label {
                    "Order "
                    select name="sort" {
                        @for (known, word, shown) in Sort::ALL {
                            option value=(word) selected[known == sort] { (shown) }
                        }
                    }
                }
                button { "Show" }
            }
            details {
                summary { "Why does it wait?" }
                form method="get" action="why" {
                    label {
                        "What "
                        select name="kind" {
                            @for kind in SubjectKind::ALL { option value=(kind.word()) { (kind.word()) } }
                        }
                    }
                    label { "Namespace " input name="namespace" required autocapitalize="none" spellcheck="false"; }
                    label { "Name " input name="name" required autocapitalize="none" spellcheck="false"; }
                    button { "Explain" }
                }
            }
        }
    }
}

pub(super) fn sections(view: &View<'_>, sort: Sort, filter: &str) -> Vec<(&'static str, Markup)> {
    vec![("summary", summary(view)), ("quotas", quotas(view, sort, filter))]
}

/// How many pods wait at least: a pod may wait for several quotas, and their numbers are all that is read here.
fn waiting(view: &View<'_>) -> i64 {
    let (mut by_namespace, mut of_cluster) = (BTreeMap::<&str, i64>::new(), 0);
    for (kind, namespace, _, quota) in view.model.quotas() {
        if kind == Kind::Cluster {
            of_cluster = quota.held.max(of_cluster);
        } else {
            let most = by_namespace.entry(namespace).or_default();
            *most = quota.held.max(*most);
        }
    }
    by_namespace.values().sum::<i64>().max(of_cluster)
}

fn summary(view: &View<'_>) -> Markup {
    let oldest = view.model.quotas().filter_map(|(kind, namespace, name, quota)| {
        Some((quota.since.filter(|_| quota.held > 0)?, kind, namespace, name))
    });
    let oldest = oldest.min_by_key(|(since, ..)| *since);
    let (all, full) = view
        .model
        .quotas()
        .fold((0_usize, 0_usize), |(all, full), (.., quota)| (all + 1, full + usize::from(quota.is_full())));
    let under_way = || view.model.migrations().iter().filter(|(_, migration)| !migration.is_final());
    let refused = under_way().filter(|(_, migration)| migration.is_refused).count();
    let held = waiting(view);
    html! {
        dl.cards {
            div.card .alarm[held > 0] {
                dt { "Pods that wait" }
                dd { span aria-live="polite" { (held) } @if held > 0 { small { " at least" } } }
                @if let Some((since, kind, namespace, name)) = oldest {
                    dd.more {
                        "the oldest for " (duration(view.now - since)) ": "
                        a href=(page::quota(kind, namespace, name)) { (for_people(kind, namespace, name)) }
                    }
                }
            }
            div.card .alarm[full > 0] {
                dt { "Full quotas" }
                dd { span aria-live="polite" { (full) } small { " of " (all) } }
            }
            div.card .alarm[refused > 0] {
                dt { "Migrations without room" }
                dd { span aria-live="polite" { (refused) } small { " of " (under_way().count()) " under way" } }
            }
        }
    }
}

fn for_people(kind: Kind, namespace: &str, name: &str) -> String {
    match kind {
        Kind::Cluster => format!("cluster {name}"),
        Kind::Namespaced | Kind::Native => format!("{namespace}/{name}"),
    }
}

fn quotas(view: &View<'_>, sort: Sort, filter: &str) -> Markup {
    let mut rows: Vec<Row<'_>> = view
        .model
        .quotas()
        .filter(|(_, namespace, name, _)| {
            filter.is_empty() || namespace.contains(filter) || name.contains(filter)
        })
        .collect();
    let percent = |quota: &Quota| quota.fullest().map_or(0, |line| line.percent());
    match sort {
        Sort::Name => rows.sort_by_key(|(kind, namespace, name, _)| (*namespace, *name, *kind)),
        Sort::Percent => {
            rows.sort_by_cached_key(|(kind, namespace, name, it)| {
                (Reverse(percent(it)), *namespace, *name, *kind)
            });
        }
        Sort::Wait => rows.sort_by_cached_key(|(kind, namespace, name, it)| {
            let since = it.since.filter(|_| it.held > 0).unwrap_or(i64::MAX);
            (since, Reverse(percent(it)), *namespace, *name, *kind)
        }),
    }
    let hidden = rows.len().saturating_sub(SHOWN);
    let body = html! { @for row in rows.iter().take(SHOWN) { (quota(row, view.now)) } };
    html! {
        h2 { "Quotas" }
        @if rows.is_empty() {
            p { @if !view.model.is_read() { "They are being read…" } @else { "There is none." } }
        } @else {
            (table("Quotas with their fullest key", &["Quota", "Fullest key", "Waiting"], &body))
        }
        @if hidden > 0 { p.note { (hidden) " more are not shown: filter by a part of the namespace or of the name." } }
    }
}

fn quota((kind, namespace, name, quota): &Row<'_>, now: i64) -> Markup {
    let line = quota.fullest();
    let percent = line.map_or(0, |line| line.percent());
    let word = level_word(percent);
    html! {
        tr {
            th scope="row" {
                a href=(page::quota(*kind, namespace, name)) { (name) }
                small {
                    @match kind {
                        Kind::Namespaced => (namespace),
                        Kind::Cluster => "of the cluster",
                        Kind::Native => { (namespace) " · ResourceQuota" },
                    }
                }
            }
            td.use {
                @if let Some(line) = line {
                    (bar(&[Part { percent: line.used.zip(line.limit).map_or(0, |(used, limit)| part_of(used, limit)),
                        class: level(percent) }]))
                    span.amounts {
                        span { (line.key) }
                        " "
                        @if let Some(used) = line.used { (used) } @else { "?" }
                        " of "
                        @if let Some(limit) = line.limit { (limit) } @else { "?" }
                        ", " (percent) "%"
                        @if !word.is_empty() { " " strong class={ "word " (level(percent)) } { (word) } }
                    }
                } @else { "no key" }
                @for told in &quota.told { small.told { (told) } }
            }
            td.held {
                @if quota.held > 0 { strong { (quota.held) } " " small { (age(quota.since, now)) } }
                @else { span aria-label="none" { "–" } }
            }
        }
    }
}
