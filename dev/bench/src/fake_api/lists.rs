//! Lists, page by page.

use super::Shared;
use super::kind::Kind;
use super::query::{Page, Query};
use super::world::{Part, namespace_version};
use crate::cluster_json;

/// About as long as objects are.
const POD_BYTES: usize = 9_500;
const OTHER_BYTES: usize = 1_000;

/// One page of all objects of a kind, or all of them if no pages are asked for.
pub(super) fn list(shared: &Shared, kind: Kind, query: &Query) -> String {
    let (first, limit) = (query.page.map_or(0, |page| page.first), query.limit.unwrap_or(u64::MAX));
    // Pods and namespaces are printed after the lock is given back: that takes milliseconds.
    match kind {
        Kind::Pods => {
            let part = shared.read(|world| world.pods_from(first, limit));
            print(kind, query, POD_BYTES, part, |pod, text| shared.template.write(pod, text))
        }
        Kind::Namespaces => {
            let part = shared.read(|world| world.namespaces_from(first, limit));
            print(kind, query, OTHER_BYTES, part, |number, text| {
                text.push_str(&cluster_json::namespace(number, namespace_version(number)));
            })
        }
        Kind::Quotas => {
            let part = shared.read(|world| world.quotas_from(first, limit));
            print(kind, query, OTHER_BYTES, part, |quota, text| text.push_str(&quota))
        }
        Kind::Other => {
            let part = shared.read(|world| world.none());
            print(kind, query, OTHER_BYTES, part, |(), _| {})
        }
    }
}

fn print<T>(kind: Kind, query: &Query, size: usize, part: Part<T>, write: impl Fn(T, &mut String)) -> String {
    // All pages have the version of the first one.
    let version = query.page.map_or(part.version, |page| page.version);
    let next = part.next.map(|first| Page { version, first }.token()).unwrap_or_default();
    cluster_json::page(kind.names(), (version, &next), size, part.items.into_iter(), write)
}
