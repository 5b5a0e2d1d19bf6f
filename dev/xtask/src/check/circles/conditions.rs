//! Conditions under which something is compiled.

use proc_macro2::{Delimiter, TokenTree};

use super::cursor::Cursor;

/// Whether this attribute leaves out of every program what it is of: `cfg(test)`, or one that never holds without it.
pub(super) fn is_of_tests(attribute: &[TokenTree]) -> bool {
    let mut cursor = Cursor::new(attribute);
    let is_condition = cursor.take_word().is_some_and(|word| word == "cfg");
    let condition = cursor.take_group(Delimiter::Parenthesis);
    is_condition && condition.is_some_and(|condition| needs_test(&condition))
}

fn needs_test(condition: &[TokenTree]) -> bool {
    let mut cursor = Cursor::new(condition);
    let word = cursor.take_word();
    let parts = cursor.take_group(Delimiter::Parenthesis).unwrap_or_default();
    let mut parts = parts.split(|token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ','));
    match word.as_deref() {
        Some("test") => true,
        Some("all") => parts.any(needs_test),
        // After a comma at the end there is nothing.
        Some("any") => parts.all(|part| part.is_empty() || needs_test(part)),
        _ => false,
    }
}
