//! A place among the tokens of a source.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};

/// What is left of a sequence of tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'t>(&'t [TokenTree]);

impl<'t> Cursor<'t> {
    /// At the first of them.
    pub(super) const fn new(tokens: &'t [TokenTree]) -> Self {
        Self(tokens)
    }

    pub(super) const fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn peek(&self) -> Option<&'t TokenTree> {
        self.0.first()
    }

    pub(super) fn next(&mut self) -> Option<&'t TokenTree> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    pub(super) fn is_at_punct(&self, character: char) -> bool {
        matches!(self.peek(), Some(TokenTree::Punct(punct)) if punct.as_char() == character)
    }

    /// Takes this character, if it comes next.
    pub(super) fn take_punct(&mut self, character: char) -> bool {
        let is_next = self.is_at_punct(character);
        if is_next {
            self.next();
        }
        is_next
    }

    /// Takes two colons, if they come next.
    pub(super) fn take_colons(&mut self) -> bool {
        let mut ahead = *self;
        let are_next = ahead.take_punct(':') && ahead.take_punct(':');
        if are_next {
            *self = ahead;
        }
        are_next
    }

    /// Takes a word, if one comes next.
    pub(super) fn take_word(&mut self) -> Option<String> {
        let Some(TokenTree::Ident(word)) = self.peek() else { return None };
        self.next();
        Some(plain(word))
    }

    /// Takes what is between brackets of this kind, if they come next.
    pub(super) fn take_group(&mut self, delimiter: Delimiter) -> Option<Vec<TokenTree>> {
        let Some(TokenTree::Group(group)) = self.peek() else { return None };
        if group.delimiter() != delimiter {
            return None;
        }
        self.next();
        Some(listed(group.stream()))
    }
}

pub(super) fn listed(tokens: TokenStream) -> Vec<TokenTree> {
    tokens.into_iter().collect()
}

/// A word, whether it is written as `r#word` or not.
pub(super) fn plain(word: &Ident) -> String {
    let text = word.to_string();
    text.strip_prefix("r#").map_or_else(|| text.clone(), str::to_owned)
}
