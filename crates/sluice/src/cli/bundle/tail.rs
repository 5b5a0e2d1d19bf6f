//! The end of a text of any length, in bounded memory.

/// The last bytes of a text, from the beginning of a line on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    most: usize,
    kept: Vec<u8>,
    /// Bytes that are not kept.
    cut: usize,
}

impl Tail {
    /// Keeps at most so many bytes.
    pub const fn new(most: usize) -> Self {
        Self { most, kept: Vec::new(), cut: 0 }
    }

    /// What comes next.
    pub fn push(&mut self, text: &[u8]) {
        self.kept.extend_from_slice(text);
        // Seldom, for the rest is moved each time.
        if self.kept.len() > self.most.saturating_mul(2) {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let over = self.kept.len().saturating_sub(self.most);
        self.kept.drain(..over);
        self.cut += over;
    }

    /// The text, and how many bytes before it were cut.
    pub fn finish(mut self) -> (String, usize) {
        self.cut();
        if self.cut > 0 {
            // The first line has lost its beginning.
            let line = self.kept.iter().position(|byte| *byte == b'\n').map_or(self.kept.len(), |at| at + 1);
            self.kept.drain(..line);
            self.cut += line;
        }
        (String::from_utf8_lossy(&self.kept).into_owned(), self.cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(most: usize, chunks: &[&str]) -> (String, usize) {
        let mut tail = Tail::new(most);
        chunks.iter().for_each(|chunk| tail.push(chunk.as_bytes()));
        tail.finish()
    }

    #[test]
    fn the_oldest_lines_are_cut() {
        assert_eq!(tail(100, &["one\n", "two\n"]), ("one\ntwo\n".to_owned(), 0));
        assert_eq!(tail(8, &["one\n", "two\n"]), ("one\ntwo\n".to_owned(), 0));
        assert_eq!(tail(7, &["one\n", "two\n"]), ("two\n".to_owned(), 4));
        assert_eq!(tail(5, &["one\n", "two\n", "three\nfour\n", "five\n"]), (String::new(), 24));
        assert_eq!(tail(6, &["one\n", "two\n", "three\nfour\n", "five\n"]), ("five\n".to_owned(), 19));
        assert_eq!(tail(0, &["one\n"]), (String::new(), 4));
        assert_eq!(tail(10, &["no end of a line at all"]), (String::new(), 23));
    }

    #[test]
    fn memory_is_bounded() {
        let mut tail = Tail::new(1_000);
        for _ in 0..10_000 {
            tail.push(&[b'x'; 100]);
            assert!(tail.kept.len() <= 2_100);
        }
    }
}
