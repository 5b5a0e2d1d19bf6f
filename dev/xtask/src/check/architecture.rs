//! What the documentation points to exists: files and folders of relative links, the headings that links name, and files
//! of `crates/` and `dev/` that are written as code. So the walks through the code in `ARCHITECTURE.md` stay walks through
//! files that are there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use crate::shell::root;

/// Pages in the root of the repository.
const PAGES: [&str; 4] = ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"];
/// The folder of all other pages, with those inside it.
const DOCS: &str = "docs";
/// What is written as code and begins like this is the path of a file or folder, from the root of the repository.
const CODE: [&str; 2] = ["crates/", "dev/"];

/// Reports everything that a page points to and that is not there.
///
/// # Errors
/// When there is something, or a page cannot be read.
pub(super) fn check() -> anyhow::Result<()> {
    let root = root();
    let mut missing = 0;
    for page in pages(&root)? {
        let shown = page.strip_prefix(&root).unwrap_or(&page).display().to_string();
        let text = std::fs::read_to_string(&page).with_context(|| format!("could not read {shown}"))?;
        for fault in faults(&root, &page, &text) {
            eprintln!("{shown}: {fault}");
            missing += 1;
        }
    }
    ensure!(missing == 0, "{missing} things that the documentation points to do not exist");
    Ok(())
}

fn pages(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut pages: Vec<PathBuf> = PAGES.iter().map(|page| root.join(page)).collect();
    let mut folders = vec![root.join(DOCS)];
    while let Some(folder) = folders.pop() {
        let entries =
            std::fs::read_dir(&folder).with_context(|| format!("could not read {}", folder.display()))?;
        for entry in entries {
            let path = entry.with_context(|| format!("could not read {}", folder.display()))?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

/// What is wrong with a page, one sentence each.
fn faults(root: &Path, page: &Path, text: &str) -> Vec<String> {
    let links = links(text).filter_map(|link| fault_of_link(page, link));
    let files = files(text).filter(|file| !root.join(file).exists());
    links.chain(files.map(|file| format!("there is no {file}"))).collect()
}

/// What is wrong with a link of the page; `None` if it leads somewhere.
fn fault_of_link(page: &Path, link: &str) -> Option<String> {
    let (path, anchor) = match link.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor)),
        None => (link, None),
    };
    let target = match (path, page.parent()) {
        ("", _) if anchor.is_none() => return Some("a link has no target".to_owned()),
        ("", _) => page.to_path_buf(),
        (path, Some(folder)) => folder.join(path),
        (path, None) => PathBuf::from(path),
    };
    if !target.exists() {
        return Some(format!("the link {link} leads to no file"));
    }
    let anchor = anchor?;
    let is_there = std::fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(anchor));
    (!is_there).then(|| format!("the link {link} leads to no heading"))
}

/// The targets of links that stay in the repository.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = prose(text).flat_map(|line| line.split("](").skip(1));
    let targets = targets.filter_map(|rest| rest.split([')', ' ']).next());
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

/// The files and folders that are written as code, but for patterns.
fn files(text: &str) -> impl Iterator<Item = &str> {
    let codes = prose(text).flat_map(|line| line.split('`').skip(1).step_by(2));
    let ours = codes.filter(|code| CODE.iter().any(|folder| code.starts_with(folder)));
    ours.filter(|code| !code.contains(['<', '*', '{', ' ', '…']))
}

/// What links call the headings of a page, as GitHub makes it of their text: one that comes again gets a number.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut times = BTreeMap::<String, u32>::new();
    for heading in prose(text).filter_map(heading) {
        let anchor = anchor_of(heading);
        let before = times.entry(anchor.clone()).or_default();
        anchors.insert(if *before == 0 { anchor } else { format!("{anchor}-{before}") });
        *before += 1;
    }
    anchors
}

/// The text of a heading; `None` of any other line.
fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    ((1..=6).contains(&level) && text.starts_with(' ')).then(|| text.trim())
}

/// Lower case, without punctuation, with hyphens for spaces.
fn anchor_of(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The lines outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

#[cfg(test)]
mod tests {
    use super::{anchors, faults, files, links, pages};

    const PAGE: &str = "# The gate\n\
        See [`a.rs`](src/a.rs), [a\nheading](other.md#how-it-works) and [it](https://example.com/x).\n\
        ```sh\n# no heading, [no link](nowhere) and `crates/no/code.rs`\n```\n\
        `crates/a/src/lib.rs`, `crates/a/src/<kind>.rs`, `pkg/other.go`\n\
        ## Parts, and `State`\n## Again\n## Again\n#hash\n";

    #[test]
    fn links_and_files_are_what_is_outside_of_blocks_of_code() {
        assert_eq!(links(PAGE).collect::<Vec<_>>(), ["src/a.rs", "other.md#how-it-works"]);
        assert_eq!(files(PAGE).collect::<Vec<_>>(), ["crates/a/src/lib.rs"]);
    }

    #[test]
    fn headings_are_called_as_github_calls_them() {
        let expected = ["again", "again-1", "parts-and-state", "the-gate"];
        assert_eq!(Vec::from_iter(anchors(PAGE)), expected);
    }

    #[test]
    fn what_is_not_there_is_reported() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
            std::fs::write(&path, text).expect("a file");
        };
        write("docs/gate.md", "# The gate\n");
        write("crates/a/src/lib.rs", "//! Nothing.\n");
        for page in super::PAGES {
            write(page, "");
        }
        assert_eq!(pages(root.path()).expect("pages").len(), super::PAGES.len() + 1);
        let found = |page: &str, text: &str| {
            write(page, text);
            faults(root.path(), &root.path().join(page), text)
        };
        for good in [
            "[gate](docs/gate.md), [heading](docs/gate.md#the-gate), [folder](crates/a)",
            "# Here\n[here](#here) and `crates/a/src/lib.rs`",
        ] {
            assert_eq!(found("README.md", good), [""; 0], "{good}");
        }
        assert_eq!(
            found("docs/other.md", "[up](../crates/a/src/lib.rs) [beside](gate.md#the-gate)"),
            [""; 0]
        );
        for bad in [
            "[gone](docs/gone.md)",
            "[gate](docs/gate.md#gone)",
            "[here](#here)",
            "[folder](crates/a#gone)",
            "[nothing]()",
            "`crates/a/src/gone.rs`",
        ] {
            assert_eq!(found("README.md", bad).len(), 1, "{bad}");
        }
        assert_eq!(found("docs/other.md", "[not from here](docs/gate.md)").len(), 1);
    }
}
