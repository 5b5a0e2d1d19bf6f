//! Why something waits: the text of `sluice why`, and the way from the VM to the quotas.

use maud::{Markup, html};

use super::View;
use super::parts::remarks;
use crate::answer::{Answer, SubjectKind, Told};

pub(super) fn heading(kind: SubjectKind, namespace: &str, name: &str) -> Markup {
    html! {
        h1 { (name) }
        p.where { "Why does " (kind.word()) " " strong { (name) } " of namespace " strong { (namespace) } " wait?" }
    }
}

pub(super) fn sections(
    view: &View<'_>,
    kind: SubjectKind,
    namespace: &str,
    name: &str,
) -> Vec<(&'static str, Markup)> {
    let text = match view.answer {
        Some(Answer::Why(told)) => {
            return vec![("chain", chain(told)), ("why", why(told, view.now, (kind, namespace, name)))];
        }
        Some(Answer::Failed(why)) => html! { p.warning { "It cannot be told: " (why) } },
        _ => html! { p { "The namespace is being read…" } },
    };
    vec![("chain", Markup::default()), ("why", text)]
}

fn chain(told: &Told) -> Markup {
    html! {
        @if !told.chain.is_empty() {
            ol.chain aria-label="From the subject to the quotas" {
                @for link in &told.chain {
                    li .waits[link.is_held] {
                        small { (link.what) }
                        strong { (link.name) }
                        span { (link.state) }
                    }
                }
            }
        }
    }
}

fn why(told: &Told, now: i64, (kind, namespace, name): (SubjectKind, &str, &str)) -> Markup {
    html! {
        @if let Some(unknown) = &told.unknown { p.warning { (unknown) } }
        @for line in &told.lines { p.line { (line) } }
        @for explanation in &told.explanations {
            div.scroll tabindex="0" role="region" aria-label="Explanation" { pre { (explanation.at(now)) } }
        }
        (remarks(&told.missing, &told.assumed))
        p.note { "The same in a terminal: " code { "kubectl sluice why " (kind.word()) " " (name) " -n " (namespace) } }
    }
}
