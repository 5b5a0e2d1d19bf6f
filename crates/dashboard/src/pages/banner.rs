//! Whether what a page shows is still so.

use maud::{Markup, html};

use super::View;
use super::parts::hour;

/// The API server's time: it goes on while the page is live.
pub(super) fn clock(view: &View<'_>) -> Markup {
    let is_live = view.model.interrupted().is_empty();
    html! { @if is_live { "live" } @else { "not live" } " · " time { (hour(view.now)) " UTC" } }
}

pub(super) fn banner(view: &View<'_>) -> Markup {
    let interrupted = view.model.interrupted();
    let since = interrupted.values().map(|it| it.since).min();
    let mut reasons: Vec<&str> = interrupted.values().map(|it| it.why.as_str()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    html! {
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
