//! Texts of others, made fit to be shown.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The text in one line of at most `most` bytes: characters that a terminal or a log would act on are escaped, and what is
/// cut off is replaced by `…`.
#[must_use]
pub fn one_line(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most && !text.chars().any(is_escaped) {
        return Cow::Borrowed(text);
    }
    let room = most.saturating_sub('…'.len_utf8());
    let mut line = String::with_capacity(most);
    for c in text.chars() {
        let before = line.len();
        if is_escaped(c) {
            let _ = write!(line, "\\u{:04x}", u32::from(c));
        } else {
            line.push(c);
        }
        if line.len() > room {
            line.truncate(before);
            line.push('…');
            break;
        }
    }
    Cow::Owned(line)
}

/// Control characters, and those that change the direction or the lines of a text.
fn is_escaped(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn plain_text_stays_as_it_is() {
        assert_eq!(one_line("größer als 1", 20), "größer als 1");
        assert_eq!(one_line("", 20), "");
    }

    #[test]
    fn what_a_terminal_would_act_on_is_escaped() {
        assert_eq!(one_line("a\nb\u{1b}[2J\u{202e}c", 50), "a\\u000ab\\u001b[2J\\u202ec");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        for most in 3..40 {
            let line = one_line("äöü\u{7}äöüäöüäöüäöü 0123456789", most);
            assert!(line.len() <= most && line.ends_with('…'), "{most}: {line}");
        }
    }
}
