//! The frame of all pages.

use http::StatusCode;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{Section, View, drain, finished, overview, quota, sections, why};
use crate::page::{CHANGES, Page};

/// The patterns that pictures refer to.
const PATTERNS: &str = r##"<svg class="patterns" width="0" height="0" aria-hidden="true" focusable="false"><defs>
<pattern id="hatch" width="3" height="3" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<rect class="hatching" width="1.2" height="3"/></pattern></defs></svg>"##;

/// Where a page is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address<'a> {
    /// Below it everything is served: `/` and what nobody can guess.
    pub root: &'a str,
    /// Of this page, below the root, with its query.
    pub own: &'a str,
}

/// A whole page. All addresses in it are relative to the root.
pub(crate) fn document(page: &Page, view: &View<'_>, address: Address<'_>) -> String {
    let Address { root, own } = address;
    let stream = format!("{}/{own}", CHANGES.trim_start_matches('/'));
    let made = sections(page, view);
    let fixed =
        |ids: &[&str]| made.iter().filter(|section| ids.contains(&section.id)).cloned().collect::<Vec<_>>();
    let top = fixed(&["clock", "banner"]);
    let (title, head) = heading(page);
    let current = |of: &str| (page.tab() == of).then_some("page");
    let body = html! {
        (PreEscaped(PATTERNS))
        a.skip href=(format!("{own}#main")) { "Skip to the content" }
        header.top {
            strong.brand { "Sluice" }
            nav aria-label="Pages" {
                a href="./" aria-current=[current("overview")] { "Overview" }
                a href="migrations" aria-current=[current("migrations")] { "Migrations" }
                a href="drain" aria-current=[current("drain")] { "Drain" }
            }
            span.cluster title="Context of the kubeconfig" { (view.model.cluster()) }
            @for section in top.iter().filter(|it| it.id == "clock") { (place(section)) }
        }
        div #lost .warning role="alert" hidden {}
        @for section in top.iter().filter(|it| it.id == "banner") { (place(section)) }
        main #main data-stream=(stream) {
            (head)
            @for section in made.iter().filter(|it| !top.contains(it)) { (place(section)) }
        }
        footer {
            "Read with the rights of the kubeconfig. Nothing can be changed here. "
            a href="https://github.com/sluice-dev/sluice/blob/main/docs/dashboard.md" rel="noreferrer" { "About this page" }
        }
        script src="page.js" {}
    };
    let links = html! {
        base href=(format!("{root}/"));
        link rel="stylesheet" href="style.css";
        link rel="icon" href="icon.svg" type="image/svg+xml";
    };
    whole(&title, &links, &body)
}

/// What is answered to a request that is refused. It does not say the root: a stranger may have sent it.
pub(crate) fn refusal(code: StatusCode, why: &str) -> String {
    whole(code.as_str(), &html! {}, &html! { main { h1 { (code) } p { (why) } } })
}

fn whole(title: &str, links: &Markup, body: &Markup) -> String {
    finished(html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " – Sluice" }
                (links)
            }
            body { (body) }
        }
    })
}

fn place(section: &Section) -> Markup {
    html! { div id=(section.id) .section { (PreEscaped(&section.html)) } }
}

impl Page {
    const fn tab(&self) -> &'static str {
        match self {
            Self::Overview { .. } => "overview",
            Self::Migrations => "migrations",
            Self::Drain { .. } => "drain",
            Self::Quota { .. } | Self::Why { .. } => "",
        }
    }
}

/// The title of a page, and what stands above its sections.
fn heading(page: &Page) -> (String, Markup) {
    match page {
        Page::Overview { sort, filter } => ("Overview".to_owned(), overview::heading(*sort, filter)),
        Page::Quota { kind, namespace, name } => (name.clone(), quota::heading(*kind, namespace, name)),
        Page::Why { kind, namespace, name } => (format!("Why {name}"), why::heading(*kind, namespace, name)),
        Page::Migrations => {
            let head = html! {
                h1 { "Live migrations" }
                p { "Those that have not ended, and those that failed and are still there." }
            };
            ("Migrations".to_owned(), head)
        }
        Page::Drain { node } => ("Drain".to_owned(), drain::heading(node.as_deref())),
    }
}
