//! Which VMs of a node can leave it, by their quotas.

use maud::{Markup, html};

use super::View;
use super::parts::{remarks, table as shown};
use crate::answer::Drain;

pub(super) fn heading(node: Option<&str>) -> Markup {
    html! {
        h1 { "Which VMs can leave a node?" }
        form.forms method="get" action="drain" {
            label { "Node " input name="node" value=[node] required autocapitalize="none" spellcheck="false"; }
            button { "Look" }
        }
    }
}

pub(super) fn table(view: &View<'_>, node: Option<&str>) -> Markup {
    match (node, view.drain) {
        (Some(node), Some(Ok(drain))) => rows(node, drain),
        (_, Some(Err(why))) => html! { p.warning { "It cannot be told: " (why) } },
        _ => html! { p { "Quotas only: whether another node has room is the scheduler's matter." } },
    }
}

const HEAD: [&str; 6] = ["VM", "ResourceQuotas", "Sluice's quotas", "Head-room", "Result", "Why"];

fn rows(node: &str, drain: &Drain) -> Markup {
    let good = drain.rows.iter().filter(|row| row.is_good).count();
    let body = html! {
        @for row in &drain.rows {
            tr {
                th scope="row" { (row.vm) small { (row.namespace) } }
                @for room in &row.room { td { (room) } }
                td { strong class={ "word " (if row.is_good { "room" } else { "full" }) } { (row.result) } }
                td { (row.message) }
            }
        }
    };
    html! {
        p {
            strong { (good) " of " (drain.rows.len()) }
            " VMs of " strong { (node) } " can leave it by their quotas."
        }
        @if !drain.rows.is_empty() { (shown("VMs of the node", &HEAD, &body)) }
        (remarks(&drain.missing, &[]))
        p.note {
            "It is looked at again while this page is open. Whether another node has room is the scheduler's matter."
        }
    }
}
