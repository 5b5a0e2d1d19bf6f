//! One quota: how full it is, who takes it, who waits for it, and the last ten minutes.

use maud::{Markup, html};
use sluice_engine::Quantity;
use sluice_gate::{Explanation, Lack, PodExplanation, QuotaExplanation, QuotaName, Verdict, duration};

use super::View;
use super::parts::{Part, age, bar, hour, level, level_word, part_of, remarks, table};
use crate::answer::{Answer, QuotaTold, Recorded, SubjectKind};
use crate::history::{KEPT, Sample};
use crate::page;
use crate::seen::{Kind, Line, Quota, sum};
use crate::treemap::{Area, treemap};

/// The sides of the picture of shares.
const MAP: Area = Area { x: 0.0, y: 0.0, width: 1_000.0, height: 180.0 };
/// Smaller areas have no text: it would not fit.
const LEGIBLE: (f64, f64) = (70.0, 18.0);

pub(super) fn heading(kind: Kind, namespace: &str, name: &str) -> Markup {
    html! {
        h1 { (name) }
        p.where {
            @match kind {
                Kind::Namespaced => { "ApplicationAwareResourceQuota in namespace " strong { (namespace) } },
                Kind::Cluster => "ApplicationAwareClusterResourceQuota: several namespaces take it together",
                Kind::Native => {
                    "ResourceQuota in namespace " strong { (namespace) }
                    ": the API server refuses pods for which it has no room"
                },
            }
        }
    }
}

pub(super) fn sections(
    view: &View<'_>,
    kind: Kind,
    namespace: &str,
    name: &str,
) -> Vec<(&'static str, Markup)> {
    let Some(quota) = view.model.quota(kind, namespace, name) else {
        let text = if view.model.is_read() {
            "There is no such quota, or it may not be read."
        } else {
            "It is being read…"
        };
        return vec![("use", html! { p { (text) } })];
    };
    let told = match view.answer {
        Some(Answer::Quota(told)) => Some(&**told),
        _ => None,
    };
    let mut sections = vec![("use", usage(quota, told))];
    match kind {
        Kind::Namespaced => {
            sections.push(("takers", told.map_or_else(|| pending(view), takers)));
            sections.push(("queue", told.map(|told| queue(told, view.now)).unwrap_or_default()));
        }
        Kind::Cluster => {
            sections.push(("takers", shares(quota)));
            sections.push(("queue", waiting(quota, view.now)));
        }
        Kind::Native => {}
    }
    // Of a record there is one moment.
    let lately = if view.model.record().is_none() { lately(quota, view.now) } else { Markup::default() };
    sections.push(("lately", lately));
    sections.push(("words", told.map(|told| words(told, view.now)).unwrap_or_default()));
    sections
}

fn pending(view: &View<'_>) -> Markup {
    match view.answer {
        Some(Answer::Failed(why)) => html! { p.warning { "Who takes it cannot be told: " (why) } },
        _ => html! { p { "Pods of the namespace are being read…" } },
    }
}

const fn explained(told: &QuotaTold) -> Option<&QuotaExplanation> {
    match &told.explanation {
        Some(Explanation::Quota(quota)) => Some(quota),
        _ => None,
    }
}

/// What the pods that wait, as far as they are shown, need of a key.
fn wanted(told: &QuotaTold, quota: &QuotaName, key: &str) -> Option<Quantity> {
    let obstacles = told.queue.iter().filter_map(|pod| match &pod.verdict {
        Verdict::NoRoom(obstacles) => Some(obstacles),
        _ => None,
    });
    let of_quota = obstacles.flatten().filter(|obstacle| obstacle.quota == *quota);
    let keys = of_quota.flat_map(|obstacle| obstacle.keys.iter().filter(|short| *short.key == *key));
    sum(keys.map(|short| short.needs))
}

fn usage(quota: &Quota, told: Option<&QuotaTold>) -> Markup {
    let explanation = told.and_then(explained);
    let rows = html! { @for line in &quota.lines { (key(line, told, explanation)) } };
    html! {
        h2 { "How full it is" }
        @for told in &quota.told { p.warning { (told) } }
        (table("Keys", &["Key", "Use", "Counted", "Released, not yet seen", "Limit"], &rows))
        @if explanation.is_some() {
            p.legend aria-hidden="true" {
                span { i.swatch.room {} "counted" }
                span { i.swatch.assumed {} "released, not yet seen" }
                span { i.swatch.wanted {} "needed by pods that wait" }
                span { i.swatch.free {} "free" }
            }
        }
    }
}

fn key(line: &Line, told: Option<&QuotaTold>, explanation: Option<&QuotaExplanation>) -> Markup {
    let known = explanation.and_then(|it| it.lines.iter().find(|known| *known.key == *line.key));
    let (used, limit) = known.map_or((line.used, line.limit), |known| (Some(known.used), Some(known.limit)));
    let percent = used.zip(limit).map_or(0, |(used, limit)| sluice_gate::percent(used, limit));
    let wanted = told.zip(explanation).and_then(|(told, it)| wanted(told, &it.quota, &line.key));
    let of = |amount: Option<Quantity>| amount.zip(limit).map_or(0, |(amount, limit)| part_of(amount, limit));
    let assumed = of(known.map(|known| known.assumed));
    let parts = [
        Part { percent: (of(used) - assumed).max(0), class: level(percent) },
        Part { percent: assumed, class: "assumed" },
        Part { percent: of(wanted), class: "wanted" },
    ];
    let word = level_word(percent);
    let text = |amount: Option<Quantity>| amount.map_or_else(|| "?".to_owned(), |amount| amount.to_string());
    html! {
        tr {
            th scope="row" { (line.key) }
            td.use {
                (bar(&parts))
                span.amounts {
                    (text(used)) " of " (text(limit)) ", " (percent) "%"
                    @if !word.is_empty() { " " strong class={ "word " (level(percent)) } { (word) } }
                    @if let Some(wanted) = wanted { ", pods that wait need " (wanted) }
                }
            }
            td { @if let Some(known) = known { (known.counted) } @else { "–" } }
            td { @if let Some(known) = known { (known.assumed) } @else { "–" } }
            td { (text(limit)) }
        }
    }
}

/// Who takes how much, as a picture and as a table.
fn picture(of: &str, what: &str, shares: &[(String, Quantity)]) -> Markup {
    // An area need not be exact.
    #[allow(clippy::cast_precision_loss)]
    let sizes: Vec<f64> = shares.iter().map(|(_, amount)| amount.nanos().max(0) as f64).collect();
    let areas = treemap(&sizes, MAP);
    let sentence = match shares.first() {
        Some((name, amount)) => format!("Shares of {of}: the largest is {name} with {amount}"),
        None => format!("Nothing takes {of}"),
    };
    let rows = html! {
        @for (name, amount) in shares { tr { th scope="row" { (name) } td { (amount) } } }
    };
    html! {
        h2 { "Who takes " (of) }
        @if shares.is_empty() { p { "Nobody." } } @else {
            svg.map viewBox={ "0 0 " (MAP.width) " " (MAP.height) } role="img" aria-label=(sentence) {
                @for ((name, amount), area) in shares.iter().zip(&areas) {
                    g {
                        title { (name) " " (amount) }
                        rect x=(area.x) y=(area.y) width=(area.width) height=(area.height) {}
                        @if area.width >= LEGIBLE.0 && area.height >= LEGIBLE.1 {
                            text x=(area.x + 6.0) y=(area.y + 14.0) { (fitting(name, area.width)) }
                            @if area.height >= 2.0 * LEGIBLE.1 {
                                text.amount x=(area.x + 6.0) y=(area.y + 30.0) { (amount) }
                            }
                        }
                    }
                }
            }
            (table(&format!("Who takes {of}"), &[what, "Takes"], &rows))
        }
    }
}

/// As much of a name as fits.
fn fitting(name: &str, width: f64) -> String {
    const LETTER: f64 = 7.2;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let most = ((width - 12.0) / LETTER).max(0.0) as usize;
    if name.chars().count() <= most {
        return name.to_owned();
    }
    name.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

fn takers(told: &QuotaTold) -> Markup {
    if let Some(why) = &told.unknown {
        return html! { p.warning { "Who takes it cannot be told: " (why) } };
    }
    let of = explained(told)
        .and_then(QuotaExplanation::fullest)
        .map(|line| line.key.to_string())
        .unwrap_or_default();
    let mut shares = told.takers.clone();
    shares.extend(told.others.as_ref().map(|(many, amount)| (format!("{many} more"), *amount)));
    html! {
        (picture(&of, "Pod or VM", &shares))
        (remarks(&told.missing, &told.assumed))
    }
}

fn shares(quota: &Quota) -> Markup {
    let key = quota.fullest().map(|line| line.key.clone()).unwrap_or_default();
    let of_key =
        quota.shares.iter().filter_map(|share| Some((share.namespace.clone(), *share.used.get(&key)?)));
    let mut all: Vec<(String, Quantity)> = of_key.filter(|(_, amount)| amount.nanos() > 0).collect();
    all.sort_by(|(one, less), (other, more)| (more.nanos(), one).cmp(&(less.nanos(), other)));
    picture(&key, "Namespace", &all)
}

fn waiting(quota: &Quota, now: i64) -> Markup {
    html! {
        h2 { "Who waits" }
        @if quota.held == 0 { p { "No pod." } } @else {
            p {
                (quota.held) " pods, the oldest for " (quota.since.map(|since| duration(now - since)).unwrap_or_default())
                ". Which they are is told on the pages of the quotas of their namespaces, and by "
                code { "sluice list held -A" } "."
            }
        }
    }
}

fn queue(told: &QuotaTold, now: i64) -> Markup {
    if told.unknown.is_some() {
        return recorded(&told.recorded, now);
    }
    let rows = html! { @for pod in &told.queue { (queued(pod, now)) } };
    html! {
        h2 { "Who waits" }
        @if told.waiting == 0 { p { "No pod." } } @else {
            @let head = ["Place", "Pod", "For", "Short by", "Reason"];
            (table("Pods that wait, in the order in which they go", &head, &rows))
            @let more = told.waiting.saturating_sub(told.queue.len());
            @if more > 0 { p.note { (more) " more wait." } }
        }
    }
}

/// Pods that wait in the namespace, with what the controller has said of each.
fn recorded(pods: &[Recorded], now: i64) -> Markup {
    let rows = html! {
        @for pod in pods {
            tr {
                th scope="row" { a href=(page::why(SubjectKind::Pod, &pod.namespace, &pod.name)) { (pod.name) } }
                td { (age(pod.since, now)) }
                td { (pod.said) }
            }
        }
    };
    html! {
        h2 { "Who waits in the namespace" }
        @if pods.is_empty() { p { "No pod." } } @else {
            (table("Pods that wait, the oldest first", &["Pod", "For", "As the controller said"], &rows))
        }
    }
}

fn queued(pod: &PodExplanation, now: i64) -> Markup {
    let short = match &pod.verdict {
        Verdict::NoRoom(obstacles) => obstacles
            .iter()
            .filter(|obstacle| obstacle.lack == Lack::Exceeded)
            .flat_map(|obstacle| &obstacle.keys)
            .map(|key| format!("{} {}", key.key, key.short_by))
            .collect::<Vec<_>>()
            .join(", "),
        _ => String::new(),
    };
    html! {
        tr {
            td { @if let Some(wait) = &pod.wait { (wait.place) } @else { "–" } }
            th scope="row" {
                a href=(page::why(SubjectKind::Pod, &pod.namespace, &pod.name)) { (pod.name) }
            }
            td { (duration(now - pod.since)) }
            td { (short) }
            td { (pod.verdict.reason()) }
        }
    }
}

/// The last ten minutes as two step lines and as a table.
fn lately(quota: &Quota, now: i64) -> Markup {
    let samples = quota.history.since(now);
    let Some(last) = samples.last() else { return Markup::default() };
    let most =
        |of: fn(&Sample) -> u32, least: u32| samples.iter().map(of).max().unwrap_or_default().max(least);
    let (percent, held) = (most(|it| it.percent, 100), most(|it| it.held, 1));
    let sentence = format!(
        "The last ten minutes: now {}% of the fullest key are used and {} pods wait; at most {} waited",
        last.percent,
        last.held,
        most(|it| it.held, 0)
    );
    let rows = html! {
        @for sample in samples.iter().rev() {
            tr { th scope="row" { (hour(sample.at)) } td { (sample.percent) "%" } td { (sample.held) } }
        }
    };
    html! {
        h2 { "The last ten minutes" }
        svg.steps viewBox="0 0 600 100" preserveAspectRatio="none" role="img" aria-label=(sentence) {
            line.grid x1="0" x2="600" y1="50" y2="50" {}
            path.used d=(steps(&samples, now, |it| f64::from(it.percent) / f64::from(percent))) {}
            path.waiting d=(steps(&samples, now, |it| f64::from(it.held) / f64::from(held))) {}
        }
        p.legend aria-hidden="true" {
            span { i.stroke.used {} "used, of " (percent) "% of the fullest key" }
            span { i.stroke.waiting {} "pods that wait, of " (held) }
        }
        details #lately-table {
            summary { "As a table" }
            (table("The last ten minutes", &["From (UTC)", "Used", "Waiting"], &rows))
        }
        p.note { "From what this page has seen since the command was started, in steps of five seconds." }
    }
}

fn steps(samples: &[Sample], now: i64, part: impl Fn(&Sample) -> f64) -> String {
    use std::fmt::Write as _;
    let x = |at: i64| (KEPT - (now - at)).clamp(0, KEPT);
    let y = |sample: &Sample| 97.0 - 94.0 * part(sample);
    let mut path = String::new();
    for sample in samples {
        let begin = if path.is_empty() { "M" } else { "H" };
        // Writing to a text cannot fail.
        let _ = match begin {
            "M" => write!(path, "M{} {:.1}", x(sample.at), y(sample)),
            _ => write!(path, "H{}V{:.1}", x(sample.at), y(sample)),
        };
    }
    let _ = write!(path, "H{KEPT}");
    path
}

fn words(told: &QuotaTold, now: i64) -> Markup {
    let Some(explanation) = &told.explanation else { return Markup::default() };
    html! {
        details #in-words {
            summary { "As `sluice why quota` says it" }
            div.scroll tabindex="0" role="region" aria-label="Explanation" { pre { (explanation.at(now)) } }
        }
    }
}
