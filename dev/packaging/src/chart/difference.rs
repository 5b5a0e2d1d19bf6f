//! Lines that differ between two texts, as blocks of a template.

use anyhow::bail;

/// Lines of a text that are others where `condition` holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edit {
    /// The first line.
    at: usize,
    /// How many.
    count: usize,
    /// What stands there then.
    lines: Vec<String>,
    /// In the language of templates.
    condition: &'static str,
}

/// What turns `from` into `to`, with as many lines kept as possible.
pub(super) fn edits(from: &[&str], to: &[&str], condition: &'static str) -> Vec<Edit> {
    let kept = longest_common(from, to);
    let mut edits = Vec::new();
    let (mut at, mut at_other) = (0, 0);
    for (line, other) in kept.into_iter().chain([(from.len(), to.len())]) {
        if line > at || other > at_other {
            let lines = to.get(at_other..other).unwrap_or_default();
            let lines = lines.iter().map(|line| (*line).to_owned()).collect();
            edits.push(Edit { at, count: line - at, lines, condition });
        }
        (at, at_other) = (line + 1, other + 1);
    }
    edits
}

/// Pairs of lines of a longest common subsequence.
fn longest_common(from: &[&str], to: &[&str]) -> Vec<(usize, usize)> {
    // `lengths[i][j]`: of the texts from line `i` and `j` on.
    let mut lengths = vec![vec![0_u32; to.len() + 1]; from.len() + 1];
    let at = |lengths: &[Vec<u32>], i: usize, j: usize| {
        lengths.get(i).and_then(|row| row.get(j)).copied().unwrap_or_default()
    };
    for (i, line) in from.iter().enumerate().rev() {
        for (j, other) in to.iter().enumerate().rev() {
            let length = if line == other {
                at(&lengths, i + 1, j + 1) + 1
            } else {
                at(&lengths, i + 1, j).max(at(&lengths, i, j + 1))
            };
            if let Some(cell) = lengths.get_mut(i).and_then(|row| row.get_mut(j)) {
                *cell = length;
            }
        }
    }
    let mut pairs = Vec::new();
    let (mut i, mut j) = (0, 0);
    while let (Some(line), Some(other)) = (from.get(i), to.get(j)) {
        if line == other {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if at(&lengths, i + 1, j) >= at(&lengths, i, j + 1) {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

/// The text with all edits as blocks. Several insertions at a place keep the order that they have in `edits`.
///
/// # Errors
/// When two edits are about the same line.
pub(super) fn apply(lines: &[&str], mut edits: Vec<Edit>) -> anyhow::Result<String> {
    // Stable: what is inserted before a line comes before what replaces it.
    edits.sort_by_key(|edit| (edit.at, edit.count > 0));
    let mut text = String::new();
    let mut next = 0;
    for edit in &edits {
        if edit.at < next {
            bail!(
                "{:?} changes line {} that another value changes: {:?}",
                edit.condition,
                edit.at,
                lines.get(edit.at)
            );
        }
        push(&mut text, lines.get(next..edit.at).unwrap_or_default());
        next = edit.at + edit.count;
        let replaced = lines.get(edit.at..next).unwrap_or_default();
        let condition = edit.condition;
        if edit.lines.is_empty() {
            open(&mut text, &format!("if not ({condition})"), replaced);
        } else {
            open(&mut text, &format!("if {condition}"), &edit.lines);
            if !replaced.is_empty() {
                open(&mut text, "else", replaced);
            }
        }
        text.push_str("{{- end }}\n");
    }
    push(&mut text, lines.get(next..).unwrap_or_default());
    Ok(text)
}

/// Lines under an action of the template.
fn open<S: AsRef<str>>(text: &mut String, action: &str, lines: &[S]) {
    text.push_str(&format!("{{{{- {action} }}}}\n"));
    push(text, lines);
}

fn push<S: AsRef<str>>(text: &mut String, lines: &[S]) {
    for line in lines {
        text.push_str(line.as_ref());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::{apply, edits};

    #[test]
    fn what_differs_becomes_blocks() {
        let base = ["a", "b", "c", "d"];
        let all = [
            edits(&base, &["a", "x", "b", "c", "d"], "first"),
            edits(&base, &["a", "y", "b", "c", "d"], "second"),
            edits(&base, &["a", "b", "d"], "third"),
            edits(&base, &["a", "b", "c", "e"], "fourth"),
        ];
        let text = apply(&base, all.concat()).expect("no overlap");
        let expected = "a\n{{- if first }}\nx\n{{- end }}\n{{- if second }}\ny\n{{- end }}\nb\n\
            {{- if not (third) }}\nc\n{{- end }}\n{{- if fourth }}\ne\n{{- else }}\nd\n{{- end }}\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn two_values_cannot_change_one_line() {
        let base = ["a", "b"];
        let all = [edits(&base, &["a", "c"], "one"), edits(&base, &["a"], "other")];
        let error = apply(&base, all.concat()).expect_err("an overlap").to_string();
        assert!(error.contains("\"b\""), "{error}");
    }
}
