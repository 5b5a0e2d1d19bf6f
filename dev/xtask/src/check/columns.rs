//! Lines that we write by hand are not wider than a reader's window: rustfmt leaves comments, texts and macros as they are.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, anyhow, ensure};
use proc_macro2::{TokenStream, TokenTree};

use crate::shell::root;

/// The most columns of a line, in characters.
const WIDTH: usize = 125;
/// What is generated, and what others have written.
const NOT_OURS: [&str; 2] = ["deploy/", "dev/e2e/fixtures/"];

/// Reports every line that is too wide.
///
/// # Errors
/// When there is one, or a file cannot be read.
pub(super) fn check() -> anyhow::Result<()> {
    let mut count = 0;
    for file in files()? {
        let text =
            std::fs::read_to_string(root().join(&file)).with_context(|| format!("could not read {file}"))?;
        for line in wide_lines(&file, &text)? {
            eprintln!("{file}:{line}: more than {WIDTH} columns");
            count += 1;
        }
    }
    ensure!(count == 0, "{count} lines have more than {WIDTH} columns");
    Ok(())
}

/// What git keeps or would add, and people write.
fn files() -> anyhow::Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root());
    let output = git.output().context("could not start git")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git ls-files failed: {errors}");
    let listed = String::from_utf8(output.stdout).context("could not read the answer of git")?;
    let is_ours = |file: &&str| {
        let extension = Path::new(file).extension().and_then(|it| it.to_str()).unwrap_or_default();
        // What was deleted and not yet committed is listed as well.
        ["md", "rs", "toml", "yaml"].contains(&extension)
            && !NOT_OURS.iter().any(|folder| file.starts_with(folder))
            && root().join(file).is_file()
    };
    Ok(listed.split_terminator('\0').filter(is_ours).map(str::to_owned).collect())
}

/// The numbers of the lines that are too wide and need not be so.
fn wide_lines(file: &str, text: &str) -> anyhow::Result<Vec<usize>> {
    let wide =
        text.lines().zip(1..).filter(|(line, _)| line.chars().count() > WIDTH && !line.contains("://"));
    let wide: Vec<usize> = wide.map(|(_, number)| number).collect();
    if wide.is_empty() {
        return Ok(wide);
    }
    let verbatim = match Path::new(file).extension().and_then(|it| it.to_str()) {
        Some("md") => tables_and_examples(text),
        Some("rs") => shown_texts(text).with_context(|| format!("could not read {file}"))?,
        _ => BTreeSet::new(),
    };
    Ok(wide.into_iter().filter(|number| !verbatim.contains(number)).collect())
}

/// The lines of Markdown whose width is not chosen: rows of tables, and what is typed or printed.
fn tables_and_examples(text: &str) -> BTreeSet<usize> {
    let mut is_example = false;
    let verbatim = text.lines().zip(1..).filter(|(line, _)| {
        let line = line.trim_start();
        is_example ^= line.starts_with("```");
        is_example || line.starts_with('|')
    });
    verbatim.map(|(_, number)| number).collect()
}

/// The lines of a source whose width is not chosen: of a text that goes on as it is there, and of a snapshot (`@"…"`),
/// which is what a program printed.
fn shown_texts(source: &str) -> anyhow::Result<BTreeSet<usize>> {
    let tokens = source.parse().map_err(|error| anyhow!("no Rust: {error}"))?;
    let (mut inside, mut snapshots) = (BTreeSet::new(), BTreeSet::new());
    collect(tokens, &mut inside, &mut snapshots);
    // A line that ends so is joined with the next one, wherever it is broken.
    let joined = source.lines().zip(2..).filter(|(line, _)| line.ends_with('\\')).map(|(_, next)| next);
    for number in joined {
        inside.remove(&number);
    }
    Ok(&inside | &snapshots)
}

/// `inside`: the lines that begin inside a text.
fn collect(tokens: TokenStream, inside: &mut BTreeSet<usize>, snapshots: &mut BTreeSet<usize>) {
    let mut is_snapshot = false;
    for token in tokens {
        match &token {
            TokenTree::Group(group) => collect(group.stream(), inside, snapshots),
            TokenTree::Literal(text) => {
                let (first, last) = (text.span().start().line, text.span().end().line);
                inside.extend(first + 1..=last);
                if is_snapshot {
                    snapshots.extend(first..=last);
                }
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
        is_snapshot = matches!(token, TokenTree::Punct(punct) if punct.as_char() == '@');
    }
}

#[cfg(test)]
mod tests {
    use super::{WIDTH, wide_lines};

    /// The lines of this text that are too wide, where `~` stands for so many columns.
    fn wide(file: &str, text: &str) -> Vec<usize> {
        wide_lines(file, &text.replace('~', &"ä".repeat(WIDTH))).expect("a file")
    }

    #[test]
    fn columns_are_characters() {
        assert_eq!(wide("a.md", "~\n~.\n"), [2]);
        assert_eq!(wide("a.toml", "# ~\n\n~\n # ~"), [1, 4]);
    }

    #[test]
    fn addresses_tables_and_examples_may_be_wider() {
        assert_eq!(wide("a.md", "x ~ https://example.com\n| ~ |\n```\n$ ~\n```\nx ~\n"), [6]);
        assert_eq!(wide("a.yaml", "| ~ |\n"), [1]);
    }

    #[test]
    fn texts_that_are_shown_may_be_wider_and_those_that_can_be_broken_may_not() {
        assert_eq!(wide("a.rs", "const A: &str = r\"\nx ~\ny\";\n// ~\n"), [4]);
        assert_eq!(wide("a.rs", "fn a() { assert!(\"x ~\"); b(\"a\n  ~ \n\") }\n"), [1]);
        assert_eq!(wide("a.rs", "const A: &str = \"a \\\n  ~ \\\n  b\";\n"), [2]);
        assert_eq!(wide("a.rs", "fn a() { shown!(b, @\"~\"); }\n// ~\n"), [2]);
    }
}
