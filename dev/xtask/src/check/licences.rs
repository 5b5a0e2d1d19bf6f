//! Which licences a dependency may have.

use super::metadata::Metadata;

/// Licences that ask for nothing that a distributed binary under Apache-2.0 cannot give.
const ALLOWED: [&str; 12] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

pub(crate) fn violations(metadata: &Metadata) -> Vec<String> {
    metadata
        .packages
        .iter()
        .filter_map(|package| {
            let name = format!("{} {}", package.name, package.version);
            match package.license.as_deref() {
                None => Some(format!("{name} has no licence expression")),
                Some(licence) if !allowed(licence) => {
                    Some(format!("{name} has the licence {licence}, which is not allowed"))
                }
                Some(_) => None,
            }
        })
        .collect()
}

/// Whether one can choose a licence of the SPDX expression so that all of it is allowed. A `/` is an old way to
/// write `OR`.
fn allowed(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = Words { words: expression.split_whitespace().collect(), at: 0 };
    words.any() == Some(true) && words.peek().is_none()
}

/// A cursor over the words of an expression; `None` means that it is malformed.
struct Words<'a> {
    words: Vec<&'a str>,
    at: usize,
}

impl<'a> Words<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    fn next(&mut self) -> Option<&'a str> {
        let word = self.peek();
        self.at += 1;
        word
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        self.at += usize::from(found);
        found
    }

    fn any(&mut self) -> Option<bool> {
        let mut any = self.all()?;
        while self.take("OR") {
            any |= self.all()?;
        }
        Some(any)
    }

    fn all(&mut self) -> Option<bool> {
        let mut all = self.one()?;
        while self.take("AND") {
            all &= self.one()?;
        }
        Some(all)
    }

    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let inner = self.any()?;
            return self.take(")").then_some(inner);
        }
        let mut name = self.next()?.to_owned();
        if self.take("WITH") {
            name = format!("{name} WITH {}", self.next()?);
        }
        Some(ALLOWED.contains(&name.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::allowed;

    #[test]
    fn expressions_mean_what_they_say() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "Apache-2.0 WITH LLVM-exception",
            "GPL-3.0 OR MIT",
            "MIT OR Apache-2.0 OR LGPL-2.1-or-later",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "ISC AND (Apache-2.0 OR ISC)",
        ] {
            assert!(allowed(good), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "GPL-3.0 OR MIT AND AGPL-3.0",
            "(MIT OR GPL-3.0) AND AGPL-3.0",
            "MIT WITH Some-exception",
            "(MIT",
            "MIT)",
            "MIT Apache-2.0",
        ] {
            assert!(!allowed(bad), "{bad}");
        }
    }
}
