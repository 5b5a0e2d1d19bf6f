//! Pages as pure functions of what is known and of the time.
//!
//! A page has a frame, which stays, and sections, each with an id: a section that changes is sent again to the pages that
//! are open. What tenants write is escaped by maud, and [`finished`] replaces characters that would mislead a reader.

mod banner;
mod drain;
mod layout;
mod migrations;
mod overview;
mod parts;
mod quota;
#[cfg(test)]
mod tests;
mod why;

use maud::Markup;
use sluice_gate::plain;

use crate::answer::{Answer, Drain};
use crate::model::Model;
use crate::page::Page;

pub(crate) use layout::{Address, document, refusal};

/// What a page is made of.
#[derive(Clone, Copy)]
pub(crate) struct View<'v> {
    pub model: &'v Model,
    /// About the subject that is open.
    pub answer: Option<&'v Answer>,
    /// About the node that is asked for.
    pub drain: Option<&'v Result<Drain, String>>,
    /// Seconds since the epoch.
    pub now: i64,
}

/// A part of a page that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    /// Of its element.
    pub id: &'static str,
    /// What is in it.
    pub html: String,
}

/// HTML without characters that turn text round or cannot be seen.
fn finished(html: Markup) -> String {
    plain(&html.into_string())
}

/// The sections of a page, from top to bottom.
pub(crate) fn sections(page: &Page, view: &View<'_>) -> Vec<Section> {
    let mut sections = vec![("clock", banner::clock(view)), ("banner", banner::banner(view))];
    match page {
        Page::Overview { sort, filter } => sections.extend(overview::sections(view, *sort, filter)),
        Page::Quota { kind, namespace, name } => {
            sections.extend(quota::sections(view, *kind, namespace, name));
        }
        Page::Why { kind, namespace, name } => sections.extend(why::sections(view, *kind, namespace, name)),
        Page::Migrations => sections.push(("migrations", migrations::list(view))),
        Page::Drain { node } => sections.push(("drain", drain::table(view, node.as_deref()))),
    }
    sections.into_iter().map(|(id, html)| Section { id, html: finished(html) }).collect()
}
