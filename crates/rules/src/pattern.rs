//! Patterns of `matches`: compiled once, with a known size, so that a match has a known cost.

use regex::{Regex, RegexBuilder};

use crate::refusal::Refusal;

/// Longest pattern, in bytes.
const MAX_PATTERN: usize = 256;
/// The smallest and the largest size of a compiled pattern, in KiB.
const SMALLEST: usize = 1;
const LARGEST: usize = 256;
/// Bytes of text that are matched in one step by a pattern of 1 KiB: such a step then takes no longer than others.
const BYTES_A_STEP: usize = 2;

/// A compiled pattern.
#[derive(Debug)]
pub(crate) struct Pattern {
    regex: Regex,
    /// A power of two, in KiB, that it fits into. A match takes time in proportion to it.
    size: usize,
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Result<Self, Refusal> {
        if text.len() > MAX_PATTERN {
            let message =
                format!("it has {} bytes, at most {MAX_PATTERN} are allowed: use several", text.len());
            return Err(Refusal::Pattern { message });
        }
        let sizes =
            std::iter::successors(Some(SMALLEST), |size| Some(size * 2)).take_while(|it| *it <= LARGEST);
        for size in sizes {
            match RegexBuilder::new(text).size_limit(size * 1024).dfa_size_limit(LARGEST * 1024).build() {
                Ok(regex) => return Ok(Self { regex, size }),
                Err(regex::Error::CompiledTooBig(_)) => {}
                Err(error) => return Err(Refusal::Pattern { message: last_line(&error) }),
            }
        }
        let message = format!("compiled it takes more than {LARGEST} KiB: use smaller repetitions");
        Err(Refusal::Pattern { message })
    }

    /// Its size, in KiB.
    pub(crate) const fn kib(&self) -> usize {
        self.size
    }

    /// The steps that matching so many bytes takes.
    pub(crate) const fn steps(&self, bytes: usize) -> usize {
        bytes * self.size / BYTES_A_STEP
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

/// The library draws the place in several lines; what is wrong is in the last one.
fn last_line(error: &regex::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next_back().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}
