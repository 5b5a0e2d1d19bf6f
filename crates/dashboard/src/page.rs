//! Which page an address is.

use crate::answer::{Asked, SubjectKind};
use crate::seen::Kind;

/// The order of quotas on the overview.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Those for which pods wait first, the oldest wait before all.
    #[default]
    Wait,
    /// The fullest first.
    Percent,
    /// By namespace and name.
    Name,
}

impl Sort {
    pub const ALL: [(Self, &'static str, &'static str); 3] = [
        (Self::Wait, "wait", "longest wait"),
        (Self::Percent, "percent", "fullest"),
        (Self::Name, "name", "A to Z"),
    ];
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    Overview { sort: Sort, filter: String },
    Quota { kind: Kind, namespace: String, name: String },
    Why { kind: SubjectKind, namespace: String, name: String },
    Migrations,
    Drain { node: Option<String> },
}

/// What an address leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Page(Page),
    /// The same page has another address, below the root.
    Moved(String),
}

/// Before the path of a page: its changes.
pub(crate) const CHANGES: &str = "/changes";
/// The longest name of an object.
const LONGEST: usize = 253;

/// Whether a part of an address can be a name in a cluster: what else it may be leads nowhere.
fn is_name(text: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    begins && text.len() <= LONGEST && text.bytes().all(is_of_name)
}

impl Page {
    /// The page of a path and its query; `None`: there is none.
    pub fn of(path: &str, query: &str) -> Option<Place> {
        let value = |key: &str| {
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            pairs.find(|(known, _)| known == key).map(|(_, value)| value.trim().to_owned())
        };
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let names = |namespace: &str, name: &str| {
            (is_name(namespace) && is_name(name)).then(|| (namespace.to_owned(), name.to_owned()))
        };
        let page = match *parts.as_slice() {
            [""] => {
                let sort = value("sort").unwrap_or_default();
                let sort = Sort::ALL.into_iter().find(|(_, word, _)| *word == sort).map(|(sort, ..)| sort);
                let filter = value("filter").unwrap_or_default().chars().take(LONGEST).collect();
                Self::Overview { sort: sort.unwrap_or_default(), filter }
            }
            ["q", namespace, name] => {
                let (namespace, name) = names(namespace, name)?;
                Self::Quota { kind: Kind::Namespaced, namespace, name }
            }
            ["native", namespace, name] => {
                let (namespace, name) = names(namespace, name)?;
                Self::Quota { kind: Kind::Native, namespace, name }
            }
            ["cluster", name] if is_name(name) => {
                Self::Quota { kind: Kind::Cluster, namespace: String::new(), name: name.to_owned() }
            }
            ["why"] => {
                let (namespace, name) = (value("namespace")?, value("name")?);
                let kind = kind(&value("kind")?)?;
                let (namespace, name) = names(&namespace, &name)?;
                return Some(Place::Moved(why(kind, &namespace, &name)));
            }
            ["why", word, namespace, name] => {
                let (namespace, name) = names(namespace, name)?;
                Self::Why { kind: kind(word)?, namespace, name }
            }
            ["migrations"] => Self::Migrations,
            ["drain"] => Self::Drain { node: value("node").filter(|node| is_name(node)) },
            _ => return None,
        };
        Some(Place::Page(page))
    }

    /// What is asked for it beside the model.
    pub fn asked(&self) -> Option<Asked> {
        match self {
            Self::Quota { kind: Kind::Namespaced, namespace, name } => {
                Some(Asked::Quota { namespace: namespace.clone(), name: name.clone() })
            }
            Self::Why { kind, namespace, name } => {
                Some(Asked::Why { kind: *kind, namespace: namespace.clone(), name: name.clone() })
            }
            _ => None,
        }
    }
}

fn kind(word: &str) -> Option<SubjectKind> {
    SubjectKind::ALL.into_iter().find(|kind| kind.word() == word)
}

/// The address of the page about a quota, below the root.
pub(crate) fn quota(kind: Kind, namespace: &str, name: &str) -> String {
    match kind {
        Kind::Namespaced => format!("q/{namespace}/{name}"),
        Kind::Native => format!("native/{namespace}/{name}"),
        Kind::Cluster => format!("cluster/{name}"),
    }
}

/// The address of the page that says why something waits, below the root.
pub(crate) fn why(kind: SubjectKind, namespace: &str, name: &str) -> String {
    format!("why/{}/{namespace}/{name}", kind.word())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_to_pages_and_others_nowhere() {
        let page = |path: &str, query: &str| match Page::of(path, query) {
            Some(Place::Page(page)) => Some(page),
            _ => None,
        };
        let overview = |sort, filter: &str| Some(Page::Overview { sort, filter: filter.to_owned() });
        assert_eq!(page("/", ""), overview(Sort::Wait, ""));
        assert_eq!(page("/", "sort=percent&filter=team%20a"), overview(Sort::Percent, "team a"));
        assert_eq!(page("/", "sort=../x"), overview(Sort::Wait, ""));
        let quota = Page::Quota { kind: Kind::Cluster, namespace: String::new(), name: "tenants".to_owned() };
        assert_eq!(page("/cluster/tenants", ""), Some(quota));
        assert_eq!(page("/drain", "node=n%22"), Some(Page::Drain { node: None }));
        let moved = Place::Moved("why/vm/team-a/db".to_owned());
        assert_eq!(Page::of("/why", "kind=vm&namespace=team-a&name=db"), Some(moved));
        for wrong in [
            "",
            "/x",
            "/q/a",
            "/q/a/b/c",
            "/q/../b",
            "/q/a/b%2f",
            "/why/node/a/b",
            "//evil.example/q",
            "/cluster/",
        ] {
            assert_eq!(Page::of(wrong, ""), None, "{wrong}");
        }
    }
}
