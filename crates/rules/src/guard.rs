//! What is refused before the parser sees it, counted by characters.
//!
//! The parser's memory and stack grow with nesting: 124 brackets and exclamation marks once took a gigabyte. So the size
//! is bounded, the levels are, and so is the length of chains such as `1 + 1 + 1`, which are as deep as they are long.

use crate::bounds::{MAX_CHAIN, MAX_LEN, MAX_LEVELS};
use crate::refusal::Refusal;

/// A refusal and the number of the character.
pub(crate) type Refused = (u32, Refusal);

/// Checks a text.
pub(crate) fn check(source: &str) -> Result<(), Refused> {
    if source.len() > MAX_LEN {
        return Err((0, Refusal::TooLong { bytes: source.len() }));
    }
    if source.trim().is_empty() {
        return Err((0, Refusal::Empty));
    }
    let mut scan = Scan::new(source);
    while let Some(character) = scan.next() {
        scan.take(character)?;
    }
    match scan.frames.pop() {
        Some(Frame { opened: Some((at, bracket)), .. }) => Err((at, Refusal::Unclosed { what: bracket })),
        _ => Ok(()),
    }
}

/// What is between two brackets.
#[derive(Clone, Copy, Default)]
struct Frame {
    opened: Option<(u32, char)>,
    /// Unary operators that stand before the next operand.
    unary: u32,
    conditionals: u32,
    chain: u32,
}

struct Scan {
    characters: Vec<char>,
    /// Number of the next character.
    next: usize,
    frames: Vec<Frame>,
    /// The last character that was no blank.
    last: char,
}

impl Scan {
    fn new(source: &str) -> Self {
        Self { characters: source.chars().collect(), next: 0, frames: vec![Frame::default()], last: '(' }
    }

    fn next(&mut self) -> Option<char> {
        let character = self.peek(0)?;
        self.next += 1;
        Some(character)
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.characters.get(self.next + ahead).copied()
    }

    /// Number of the character that was taken last.
    fn at(&self) -> u32 {
        u32::try_from(self.next.saturating_sub(1)).unwrap_or(u32::MAX)
    }

    fn refuse<T>(&self, refusal: Refusal) -> Result<T, Refused> {
        Err((self.at(), refusal))
    }

    fn take(&mut self, character: char) -> Result<(), Refused> {
        match character {
            ' ' | '\t' | '\r' | '\n' => return Ok(()),
            '\'' | '"' => self.text(character)?,
            '(' | '[' => self.open(character)?,
            ')' | ']' => self.close(character)?,
            '/' if self.peek(0) == Some('/') => {
                while self.peek(0).is_some_and(|next| next != '\n') {
                    self.next += 1;
                }
                return Ok(());
            }
            '!' if self.peek(0) != Some('=') => self.unary()?,
            '-' if !ends_operand(self.last) => self.unary()?,
            '.' => self.link()?,
            '?' => {
                self.operand_follows(true);
                self.frame(|frame| frame.conditionals += 1);
                self.levels()?;
            }
            ',' => {
                self.operand_follows(true);
                self.frame(|frame| frame.conditionals = 0);
            }
            ':' => self.operand_follows(true),
            '&' | '|' => self.operand_follows(true),
            '=' | '<' | '>' | '+' | '-' | '*' | '/' | '%' | '!' => {
                self.operand_follows(false);
                self.link()?;
            }
            'i' if self.is_operator_in() => {
                self.operand_follows(false);
                self.link()?;
            }
            _ if is_of_word(character) => {}
            '{' | '}' => return self.refuse(Refusal::Braces),
            _ => return self.refuse(Refusal::Character { character }),
        }
        self.last = character;
        Ok(())
    }

    /// Whether the `i` that was taken begins the operator `in`.
    fn is_operator_in(&self) -> bool {
        let before = self.next.checked_sub(2).and_then(|before| self.characters.get(before));
        let ends = |next: Option<char>| !next.is_some_and(is_of_word);
        !before.is_some_and(|it| is_of_word(*it)) && self.peek(0) == Some('n') && ends(self.peek(1))
    }

    fn frame(&mut self, change: impl FnOnce(&mut Frame)) {
        if let Some(frame) = self.frames.last_mut() {
            change(frame);
        }
    }

    /// An operator is behind: unary ones before it do not contain what follows.
    fn operand_follows(&mut self, ends_chain: bool) {
        self.frame(|frame| {
            frame.unary = 0;
            if ends_chain {
                frame.chain = 0;
            }
        });
    }

    fn unary(&mut self) -> Result<(), Refused> {
        self.frame(|frame| frame.unary += 1);
        self.levels()
    }

    fn link(&mut self) -> Result<(), Refused> {
        self.frame(|frame| frame.chain += 1);
        let chain: u32 = self.frames.iter().map(|frame| frame.chain).sum();
        if chain > MAX_CHAIN { self.refuse(Refusal::LongChain) } else { Ok(()) }
    }

    fn levels(&self) -> Result<(), Refused> {
        let inside = |frame: &Frame| u32::from(frame.opened.is_some()) + frame.unary + frame.conditionals;
        let levels: u32 = self.frames.iter().map(inside).sum();
        if levels > MAX_LEVELS { self.refuse(Refusal::TooDeep) } else { Ok(()) }
    }

    fn open(&mut self, bracket: char) -> Result<(), Refused> {
        if ends_operand(self.last) {
            self.link()?;
        }
        self.frames.push(Frame { opened: Some((self.at(), bracket)), ..Frame::default() });
        self.levels()
    }

    fn close(&mut self, bracket: char) -> Result<(), Refused> {
        let opening = if bracket == ')' { '(' } else { '[' };
        match self.frames.last() {
            Some(Frame { opened: Some((_, open)), .. }) if *open == opening => {
                self.frames.pop();
                Ok(())
            }
            _ => self.refuse(Refusal::Unopened { what: bracket }),
        }
    }

    /// Passes over a text; its quote has been taken.
    fn text(&mut self, quote: char) -> Result<(), Refused> {
        let opened = self.at();
        let raw = self.prefix(opened)?;
        let triple = self.peek(0) == Some(quote) && self.peek(1) == Some(quote);
        if triple {
            self.next += 2;
        }
        while let Some(character) = self.next() {
            match character {
                '\\' if !raw => self.escape()?,
                '\n' | '\r' if !triple => break,
                _ if character != quote => {}
                _ if !triple => return Ok(()),
                _ if self.peek(0) == Some(quote) && self.peek(1) == Some(quote) => {
                    self.next += 2;
                    return Ok(());
                }
                _ => {}
            }
        }
        Err((opened, Refusal::Unclosed { what: quote }))
    }

    /// Passes over what a backslash begins. What the parser would not read as an escape ends the text for it, and the guard
    /// would take code for text.
    fn escape(&mut self) -> Result<(), Refused> {
        let digits = match self.next() {
            Some('\\' | '\'' | '"' | 'n' | 'r' | 't') => return Ok(()),
            Some('x') => 2,
            Some('u') => 4,
            _ => return self.refuse(Refusal::Escape),
        };
        for _ in 0..digits {
            if !self.next().is_some_and(|digit| digit.is_ascii_hexdigit()) {
                return self.refuse(Refusal::Escape);
            }
        }
        Ok(())
    }

    /// Whether what stands right before the quote makes the text a raw one. What else stands there could be read in two
    /// ways, of which the guard would know one.
    fn prefix(&self, opened: u32) -> Result<bool, Refused> {
        let opened = usize::try_from(opened).unwrap_or(usize::MAX);
        let before = self.characters.get(..opened).unwrap_or_default();
        let word = before.iter().rev().take_while(|it| is_of_word(**it));
        let word: Vec<char> = word.take(2).copied().collect();
        match word.as_slice() {
            [] => Ok(false),
            ['r' | 'R'] => Ok(true),
            _ => self.refuse(Refusal::Prefix),
        }
    }
}

fn is_of_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

/// Whether an operand may end with this character, so that a `-` behind it is no sign, and a bracket behind it is a call.
fn ends_operand(character: char) -> bool {
    is_of_word(character) || ")]'\"".contains(character)
}
