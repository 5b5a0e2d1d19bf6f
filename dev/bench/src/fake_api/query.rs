//! What the query of a list or a watch asks for.

/// The query of a request, as far as anything here depends on it.
#[derive(Debug, Default)]
pub(super) struct Query {
    pub(super) watch: bool,
    /// Nothing here has the labels and names that Sluice selects by.
    pub(super) selects: bool,
    /// From which version on a watch tells of changes.
    pub(super) version: u64,
    /// Objects of a page, if pages are asked for.
    pub(super) limit: Option<u64>,
    pub(super) page: Option<Page>,
}

/// Stands for a page of a list that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// The version of the list.
    pub(super) version: u64,
    /// The number of the first object.
    pub(super) first: u64,
}

impl Query {
    pub(super) fn read(text: &str) -> Self {
        let mut query = Self::default();
        for (name, value) in text.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "watch" => query.watch = value == "true",
                "labelSelector" | "fieldSelector" => query.selects = true,
                "resourceVersion" => query.version = value.parse().unwrap_or(0),
                "limit" => query.limit = value.parse().ok(),
                "continue" => query.page = Page::read(value),
                _ => {}
            }
        }
        query
    }
}

impl Page {
    fn read(text: &str) -> Option<Self> {
        let (version, first) = text.split_once('.')?;
        Some(Self { version: version.parse().ok()?, first: first.parse().ok()? })
    }

    /// As clients send it back; it has no character that a query escapes.
    pub(super) fn token(self) -> String {
        format!("{}.{}", self.version, self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_as_kube_writes_it() {
        let query = Query::read("&limit=500&continue=42.1500");
        assert_eq!((query.limit, query.page), (Some(500), Some(Page { version: 42, first: 1_500 })));
        assert_eq!(query.page.map(Page::token).as_deref(), Some("42.1500"));
        let query = Query::read("&watch=true&timeoutSeconds=280&labelSelector=a%2Fb&resourceVersion=9");
        assert!(query.watch && query.selects && query.page.is_none());
        assert_eq!(query.version, 9);
        assert!(!Query::read("").watch);
    }
}
