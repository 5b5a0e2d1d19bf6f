//! Takes the secret path of the webhook out of every text of a bundle, whoever has written the text.

use std::borrow::Cow;

use super::reduce::REDACTED;

/// Digits of the segments that Sluice makes (`sluice_manifests::certificates`).
const DIGITS: usize = 32;
/// What is shorter is a word, and no secret.
const SHORTEST: usize = 8;

/// The segments to take out.
#[derive(Debug, Default)]
pub struct Redactor {
    segments: Vec<String>,
}

impl Redactor {
    /// Takes out these too from now on.
    pub fn learn(&mut self, segments: impl IntoIterator<Item = String>) {
        self.segments.extend(segments.into_iter().filter(|segment| segment.len() >= SHORTEST));
        self.segments.sort();
        self.segments.dedup();
    }

    /// The text without segments that are known, and without what looks like one of Sluice's in a path: one that was in
    /// force before is not in the webhook configurations any more.
    pub fn clean<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut text = Cow::Borrowed(text);
        for segment in self.segments.iter().filter(|segment| !segment.is_empty()) {
            if text.contains(segment.as_str()) {
                text = Cow::Owned(text.replace(segment.as_str(), REDACTED));
            }
        }
        match without_paths(&text) {
            Some(clean) => Cow::Owned(clean),
            None => text,
        }
    }
}

/// `None`: there is nothing to take out.
fn without_paths(text: &str) -> Option<String> {
    let mut clean = String::new();
    let mut rest = text;
    let mut is_found = false;
    while let Some((before, after)) = rest.split_once('/') {
        clean.push_str(before);
        clean.push('/');
        rest = after;
        let digits = after.bytes().take_while(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')).count();
        let behind = after.get(digits..).filter(|behind| digits == DIGITS && behind.starts_with('/'));
        if let Some(behind) = behind {
            clean.push_str(REDACTED);
            rest = behind;
            is_found = true;
        }
    }
    clean.push_str(rest);
    is_found.then_some(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_path_is_taken_out_of_any_text() {
        let mut redactor = Redactor::default();
        redactor.learn(["chosen-by-hand".to_owned(), "short".to_owned()]);
        let cases = [
            ("Post \"https://x/chosen-by-hand/serve-path\"", "Post \"https://x/REDACTED/serve-path\""),
            ("chosen-by-hand", "REDACTED"),
            ("short", "short"),
            (
                "x.svc:443/0123456789abcdef0123456789abcdef/serve-path?timeout=2s",
                "x.svc:443/REDACTED/serve-path?timeout=2s",
            ),
            ("sha256:/0123456789abcdef0123456789abcdef00/x", "sha256:/0123456789abcdef0123456789abcdef00/x"),
            ("a uid 0123456789abcdef0123456789abcdef/", "a uid 0123456789abcdef0123456789abcdef/"),
            ("/0123456789abcdef0123456789abcdef", "/0123456789abcdef0123456789abcdef"),
            ("ü//é/", "ü//é/"),
        ];
        for (text, expected) in cases {
            assert_eq!(redactor.clean(text), expected);
        }
    }
}
