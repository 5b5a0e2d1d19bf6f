//! Writing: a table that changes in place on a terminal, plain lines anywhere else.

use std::io::{self, IsTerminal as _, Write as _};

use crate::table::{Ink, Style};

/// The least height of a terminal on which the table can change in place.
const LEAST_ROWS: usize = 16;
/// The width of lines when there is no terminal.
const PLAIN_WIDTH: usize = 160;

/// Columns and rows of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub columns: usize,
    pub rows: usize,
}

impl Size {
    /// The terminal of standard output, if there is one on which the cursor can be moved.
    pub fn of_stdout() -> Option<Self> {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if dumb || !io::stdout().is_terminal() {
            return None;
        }
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        Some(Self { columns: size.ws_col.into(), rows: size.ws_row.into() })
    }
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = |text: &str| text.parse().ok();
        let size = text
            .split_once('x')
            .and_then(|(columns, rows)| Some(Self { columns: parse(columns)?, rows: parse(rows)? }));
        size.ok_or_else(|| format!("{text:?} is not <columns>x<rows>"))
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.columns, self.rows)
    }
}

/// Standard output.
#[derive(Debug)]
pub struct Screen {
    style: Style,
    live: bool,
    /// Lines of the table that stand at the bottom of the terminal.
    drawn: usize,
}

impl Screen {
    /// For a terminal of this size, or for none.
    pub fn new(size: Option<Size>) -> Self {
        let live = size.filter(|size| size.rows >= LEAST_ROWS && size.columns >= 40);
        // https://no-color.org: any value but an empty one counts.
        let colourless = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            style: Style {
                width: live.map_or(PLAIN_WIDTH, |size| size.columns),
                colour: size.is_some() && !colourless,
            },
            live: live.is_some(),
            drawn: 0,
        }
    }

    /// Whether the table changes in place.
    pub const fn is_live(&self) -> bool {
        self.live
    }

    /// How to write here.
    pub const fn style(&self) -> Style {
        self.style
    }

    /// Writes lines that stay, above the table.
    ///
    /// # Errors
    /// When the output is closed.
    pub fn say(&mut self, text: &str) -> io::Result<()> {
        let mut frame = self.erase();
        frame.push_str(text);
        frame.push('\n');
        write(&frame)
    }

    /// As [`Self::say`], in an ink.
    ///
    /// # Errors
    /// When the output is closed.
    pub fn say_in(&mut self, ink: Ink, text: &str) -> io::Result<()> {
        let text = self.style.paint(ink, text);
        self.say(&text)
    }

    /// Replaces the table; without a terminal nothing happens.
    ///
    /// # Errors
    /// When the output is closed.
    pub fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        if !self.live {
            return Ok(());
        }
        let mut frame = self.erase();
        for line in lines {
            frame.push_str(line);
            frame.push('\n');
        }
        self.drawn = lines.len();
        write(&frame)
    }

    /// Lets the table stand; what comes is written below it.
    pub const fn leave(&mut self) {
        self.drawn = 0;
    }

    fn erase(&mut self) -> String {
        match std::mem::take(&mut self.drawn) {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\x1b[J"),
        }
    }
}

/// One write per frame, so that no half of one is seen.
fn write(frame: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(frame.as_bytes())?;
    out.flush()
}
