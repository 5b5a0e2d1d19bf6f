//! Whether what a page shows is still so.

use maud::{Markup, html};

use super::View;
use super::parts::{hour, moment};

/// The API server's time: it goes on while the page is live.
pub(super) fn clock(view: &View<'_>) -> Markup {
    let state = match (view.model.record(), view.model.interrupted().is_empty()) {
        (Some(_), _) => "a record",
        (None, true) => "live",
        (None, false) => "not live",
    };
    html! { (state) " · " time { (hour(view.now)) " UTC" } }
}

pub(super) fn banner(view: &View<'_>) -> Markup {
    let interrupted = view.model.interrupted();
    let since = interrupted.values().map(|it| it.since).min();
    let mut reasons: Vec<&str> = interrupted.values().map(|it| it.why.as_str()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    html! {
        @if let Some(taken) = view.model.record() {
            div.warning {
                strong { "This is a record of " (moment(taken)) " UTC." }
                " What is shown is what a bundle has, as it was then; no cluster is followed. "
                "Ages and waits are those of that moment."
            }
        }
        @if let Some(since) = since {
            div.warning.stale {
                strong { "Not live since " (hour(since)) " UTC." }
                " What is grey is as it was then. It is tried again and again: " (reasons.join("; ")) "."
            }
        }
        @for condition in view.model.installation() {
            div.warning {
                strong { (condition.kind) " is " (condition.status) "." } " " (condition.message)
            }
        }
        @let missing: Vec<&str> = view.model.missing().collect();
        @if !missing.is_empty() {
            div.note { "Not shown, for want of rights: " (missing.join(", ")) "." }
        }
        @for note in view.model.notes() { div.note { (note) "." } }
    }
}
