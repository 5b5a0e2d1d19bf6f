//! Names of namespaces, whole or by their beginning.

use std::fmt;
use std::str::FromStr;

/// Which namespaces are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespacePattern {
    Named(Box<str>),
    /// All whose names start so; written with `*` at the end.
    Starting(Box<str>),
}

/// Why a text is no [`NamespacePattern`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "\"{0}\" is neither the name of a namespace nor the beginning of one with * at its end: lower case letters, digits and \
     - are allowed, up to 63"
)]
pub struct NotANamespace(String);

impl NamespacePattern {
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self::Named(name.into())
    }

    /// Whether the namespace `name` is meant.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Named(named) => name == &**named,
            Self::Starting(start) => name.starts_with(&**start),
        }
    }
}

impl FromStr for NamespacePattern {
    type Err = NotANamespace;

    fn from_str(text: &str) -> Result<Self, NotANamespace> {
        let (name, is_start) = text.strip_suffix('*').map_or((text, false), |start| (start, true));
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || name.len() > 63 || name.starts_with('-') || !name.bytes().all(allowed) {
            return Err(NotANamespace(text.to_owned()));
        }
        Ok(if is_start { Self::Starting(name.into()) } else { Self::Named(name.into()) })
    }
}

impl fmt::Display for NamespacePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Starting(start) => write!(f, "{start}*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_itself_and_a_star_what_begins_so() {
        let pattern = |text: &str| text.parse::<NamespacePattern>().unwrap();
        assert!(pattern("kubevirt").matches("kubevirt") && !pattern("kubevirt").matches("kubevirt-x"));
        assert!(pattern("kube-*").matches("kube-system") && !pattern("kube-*").matches("kubevirt"));
        for text in ["kube-*", "a", "0-1"] {
            assert_eq!(pattern(text).to_string(), text);
        }
    }

    #[test]
    fn what_no_namespace_is_called_is_refused() {
        for text in ["", "*", "a*b", "-a", "A", "a.b", "a'] || true || ['", "a b", &"a".repeat(64)] {
            assert_eq!(text.parse::<NamespacePattern>(), Err(NotANamespace(text.to_owned())), "{text}");
        }
    }
}
