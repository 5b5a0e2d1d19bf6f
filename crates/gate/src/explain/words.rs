//! How amounts, lists and times are put into words.

use std::fmt::{self, Write as _};

use sluice_engine::Quantity;

/// The limit of the API for the note of an event, in bytes.
pub const MOST_BYTES: usize = 1024;

/// As many parts, joined, as fit into so many bytes; then how many are left out. A part that is too long alone is cut.
pub fn fit(parts: &[String], most: usize, what: &str) -> String {
    const TAIL: usize = 64;
    let whole = parts.join("; ");
    if whole.len() <= most {
        return whole;
    }
    let room = most.saturating_sub(TAIL);
    let mut text = String::new();
    let mut taken = 0;
    for part in parts {
        let separator = if taken == 0 { "" } else { "; " };
        if text.len() + separator.len() + part.len() > room {
            break;
        }
        text.push_str(separator);
        text.push_str(part);
        taken += 1;
    }
    if taken == 0 {
        text = parts.first().map(|first| cut(first, room).to_owned()).unwrap_or_default();
        text.push_str("… (cut)");
        taken = 1;
    }
    match parts.len() - taken {
        0 => {}
        left => {
            // Writing to a text cannot fail.
            let _ = write!(text, "; and {left} more {what}");
        }
    }
    text
}

/// The longest beginning of so many bytes that ends with a whole character.
pub fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

/// How long something has lasted, by its two largest units: `2h04m`, `6m`, `12s`.
#[must_use]
pub fn duration(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m"),
        (0, ..) => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

/// Rows in columns as wide as their widest cell, as kubectl prints them.
///
/// # Errors
/// When it cannot be written.
pub fn table(f: &mut dyn fmt::Write, indent: &str, rows: &[Vec<String>]) -> fmt::Result {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = indent.to_owned();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}

/// The moment of a second, for people.
pub fn moment(second: i64) -> String {
    jiff::Timestamp::from_second(second).map(|moment| moment.to_string()).unwrap_or_default()
}

/// `used` in hundredths of the limit; 100 of a limit of 0.
#[must_use]
pub fn percent(used: Quantity, limit: Quantity) -> i64 {
    let percent = match limit.nanos() {
        0 => 100,
        limit => used.nanos().saturating_mul(100) / limit,
    };
    i64::try_from(percent).unwrap_or(i64::MAX)
}

/// The text without characters that a terminal would obey or that turn text round: what tenants and webhooks write may have
/// some.
#[must_use]
pub fn plain(text: &str) -> String {
    let turns = |c: char| {
        ['\u{61c}', '\u{200e}', '\u{200f}'].contains(&c)
            || ('\u{202a}'..='\u{202e}').contains(&c)
            || ('\u{2066}'..='\u{2069}').contains(&c)
    };
    let is_harmless = |c: char| c == '\n' || !(c.is_control() || turns(c));
    text.chars().map(|c| if is_harmless(c) { c } else { '\u{fffd}' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_nothing_is_full() {
        let amount = |text: &str| Quantity::parse(text).unwrap();
        assert_eq!(percent(amount("0"), amount("0")), 100);
        assert_eq!(percent(amount("1500m"), amount("2")), 75);
    }

    #[test]
    fn what_a_terminal_would_obey_is_replaced() {
        assert_eq!(
            plain("a\u{1b}[31mb\u{7}\u{9b}2J\u{202e}c\nü"),
            "a\u{fffd}[31mb\u{fffd}\u{fffd}2J\u{fffd}c\nü"
        );
    }

    #[test]
    fn durations_have_two_units() {
        let told = [0, 59, 60, 3_599, 3_600, 7_440, 86_400, 180_000].map(duration);
        assert_eq!(told, ["0s", "59s", "1m", "59m", "1h00m", "2h04m", "1d0h", "2d2h"]);
    }

    #[test]
    fn a_text_that_is_too_long_says_what_is_left_out() {
        let parts: Vec<String> = (0..40).map(|n| format!("{n}: {}", "n".repeat(253))).collect();
        let text = fit(&parts, MOST_BYTES, "quotas");
        assert!(text.len() <= MOST_BYTES, "{}", text.len());
        assert!(text.starts_with("0: n") && text.ends_with("; and 37 more quotas"), "{text}");
        let one = fit(&["ü".repeat(2_000)], MOST_BYTES, "quotas");
        assert!(one.len() <= MOST_BYTES && one.ends_with("ü… (cut)"), "{one}");
        assert_eq!(fit(&["a".to_owned(), "b".to_owned()], MOST_BYTES, "quotas"), "a; b");
    }
}
