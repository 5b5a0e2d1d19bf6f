//! What several pages have.

use jiff::Timestamp;
use maud::{Markup, html};
use sluice_engine::Quantity;
use sluice_gate::duration;

/// Percents from which on a quota is nearly full.
const NEARLY: i64 = 80;

/// The hour of a second, in UTC.
pub(crate) fn hour(second: i64) -> String {
    Timestamp::from_second(second).map(|it| it.strftime("%H:%M:%S").to_string()).unwrap_or_default()
}

/// The day and the hour of a second, in UTC.
pub(crate) fn moment(second: i64) -> String {
    Timestamp::from_second(second).map(|it| it.strftime("%Y-%m-%d %H:%M:%S").to_string()).unwrap_or_default()
}

/// How long it has lasted; nothing of what has not begun.
pub(crate) fn age(since: Option<i64>, now: i64) -> String {
    since.map(|since| duration(now - since)).unwrap_or_default()
}

/// How full something is, as a class for colours.
pub(crate) const fn level(percent: i64) -> &'static str {
    match percent {
        100.. => "full",
        NEARLY.. => "nearly",
        _ => "room",
    }
}

/// The same as a word: nothing is told by colour alone.
pub(crate) const fn level_word(percent: i64) -> &'static str {
    match percent {
        101.. => "over",
        100 => "full",
        NEARLY.. => "nearly full",
        _ => "",
    }
}

/// A part of a bar.
pub(crate) struct Part {
    /// In hundredths of the whole.
    pub percent: i64,
    pub class: &'static str,
}

/// A bar; its amounts are in the text beside it.
pub(crate) fn bar(parts: &[Part]) -> Markup {
    let sum: i64 = parts.iter().map(|part| part.percent.max(0)).sum();
    // What goes beyond the whole makes the whole smaller.
    let scale = sum.max(100);
    let mut at = 0;
    let placed = parts.iter().map(|part| {
        let begin = at;
        at += part.percent.max(0);
        (begin, part)
    });
    html! {
        svg.bar viewBox={ "0 0 " (scale) " 10" } preserveAspectRatio="none" aria-hidden="true" {
            rect.free x="0" y="0" width="100" height="10" {}
            @for (begin, part) in placed {
                @if part.percent > 0 {
                    rect class=(part.class) x=(begin) y="0" width=(part.percent) height="10" {}
                    @if matches!(part.class, "assumed" | "wanted") {
                        rect x=(begin) y="0" width=(part.percent) height="10" fill="url(#hatch)" {}
                    }
                }
            }
            @if sum > 100 { rect.end x="99.5" y="0" width="1" height="10" {} }
        }
    }
}

/// What an amount is of a limit, in hundredths; 100 of a limit of 0.
pub(crate) fn part_of(amount: Quantity, limit: Quantity) -> i64 {
    if amount.nanos() <= 0 { 0 } else { sluice_gate::percent(amount, limit).min(1_000) }
}

/// A table that can be scrolled to the side where it does not fit.
pub(crate) fn table(caption: &str, head: &[&str], rows: &Markup) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(caption) {
            table {
                caption.hidden { (caption) }
                thead { tr { @for column in head { th scope="col" { (column) } } } }
                tbody { (rows) }
            }
        }
    }
}

/// Rights that were missing, and what was taken to be so.
pub(crate) fn remarks(missing: &[String], assumed: &[String]) -> Markup {
    html! {
        @for note in assumed { p.note { "Note: " (note) "." } }
        @if !missing.is_empty() { p.note { "Missing rights: " (missing.join(", ")) "." } }
    }
}
