//! Errors about fields, and how they repeat what was written.

use std::fmt::Write;

use super::{FieldError, FieldErrorKind};

/// Longest text that an error repeats.
const MAX_SHOWN: usize = 320;

/// Refuses a list of more than `max` items; its items are then not looked at.
pub(super) fn check_len(field: &str, len: usize, max: usize, errors: &mut Vec<FieldError>) -> bool {
    if len > max {
        errors.push(FieldError {
            field: field.to_owned(),
            kind: FieldErrorKind::TooMany,
            value: len.to_string(),
            detail: format!("must have at most {max} items"),
        });
    }
    len <= max
}

pub(super) fn invalid(field: &str, value: String, detail: &str) -> FieldError {
    FieldError { field: field.to_owned(), kind: FieldErrorKind::Invalid, value, detail: detail.to_owned() }
}

/// The text as a JSON string, cut if long.
pub(super) fn json(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in shown(text).chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if c.is_control() => drop(write!(quoted, "\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    if shown(text).len() < text.len() {
        quoted.push('…');
    }
    quoted.push('"');
    quoted
}

/// A list of texts as JSON, cut if long.
pub(super) fn json_list(texts: &[String]) -> String {
    let some: Vec<String> = texts.iter().take(8).map(|text| json(text)).collect();
    let more = if texts.len() > some.len() { ",…" } else { "" };
    format!("[{}{more}]", some.join(","))
}

/// The beginning of a text that is too long to be repeated.
pub(super) fn shown(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_SHOWN)).unwrap_or(text)
}
