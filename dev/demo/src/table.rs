//! The table as lines of text.

use std::time::Duration;

use sluice_engine::Quantity;

use crate::board::{Board, Row, State};
use crate::examples::QUOTA;
use crate::reason;

/// How to write on this terminal.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Columns.
    pub width: usize,
    /// Whether colours are wanted.
    pub colour: bool,
}

/// A colour or weight, as the parameter of an SGR sequence.
#[derive(Clone, Copy, Debug)]
pub enum Ink {
    /// Stands out.
    Bold,
    /// Steps back.
    Dim,
    /// Waits.
    Yellow,
    /// Moves.
    Cyan,
    /// Well.
    Green,
    /// Wrong.
    Red,
}

impl Style {
    /// The text in this ink, if colours are wanted.
    pub fn paint(self, ink: Ink, text: &str) -> String {
        let code = match ink {
            Ink::Bold => "1",
            Ink::Dim => "2",
            Ink::Yellow => "33",
            Ink::Cyan => "36",
            Ink::Green => "32",
            Ink::Red => "31",
        };
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// The quota's line, a header and one line per pod, none longer than the terminal is wide.
pub fn table(board: &Board, now: Duration, style: Style) -> Vec<String> {
    let name = board.cluster.as_deref().unwrap_or(QUOTA);
    let quota = board.quota.as_deref().unwrap_or("not there yet");
    let mut lines = vec![style.paint(Ink::Bold, &cut(&format!("quota {name}: {quota}"), style.width))];
    let header =
        format!("{:<16} {:>8} {:<12} {:<9} {:>7}  {}", "POD", "PRIORITY", "ASKS", "STATE", "SINCE", "WHY");
    lines.push(style.paint(Ink::Dim, &cut(&header, style.width)));
    lines.extend(board.rows().into_iter().map(|row| line(row, now, style)));
    lines
}

fn line(row: &Row, now: Duration, style: Style) -> String {
    let amount = |key: &str| row.asks.get(key).copied().unwrap_or(Quantity::ZERO);
    let asks = format!("{} cpu {}", amount("requests.cpu"), amount("requests.memory"));
    let since = format!("{:.1} s", now.saturating_sub(row.since).as_secs_f32());
    let why = match row.state {
        State::Held => row.told.as_deref().map(reason::brief).unwrap_or_default(),
        State::Deleted => String::new(),
        _ if row.told.is_some() => {
            row.waited().map(|waited| format!("waited {:.1} s", waited.as_secs_f32())).unwrap_or_default()
        }
        _ => String::new(),
    };
    let before = format!("{:<16} {:>8} {:<12} ", cut(&row.name, 16), row.priority, asks);
    let state = format!("{:<9}", row.state.word());
    let after = format!(" {since:>7}  {why}");
    let room = style.width.saturating_sub(before.chars().count() + state.chars().count());
    let ink = match row.state {
        State::Held => Ink::Yellow,
        State::Released => Ink::Cyan,
        State::Running => Ink::Green,
        State::Completed | State::Deleted => Ink::Dim,
    };
    format!("{before}{}{}", style.paint(ink, &state), cut(&after, room))
}

/// At most `width` characters; an ellipsis stands for what is missing.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::{Style, table};
    use crate::board::Board;

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let mut board = Board::default();
        let pod = serde_json::from_value(json!({
            "metadata": {"name": "a-pod-with-a-very-long-name", "uid": "u"},
            "spec": {"priority": 7, "schedulingGates": [{"name": "ApplicationAwareQuotaGate"}], "containers": [
                {"name": "main", "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}}]},
        }));
        board.pod(Duration::from_secs(1), &pod.unwrap());
        board.told(
            "u",
            "exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=3, limited: requests.cpu=4",
        );
        let printed =
            |width, colour| table(&board, Duration::from_secs(3), Style { width, colour }).join("\n");
        insta::assert_snapshot!(printed(200, false), @"
        quota compute: not there yet
        POD              PRIORITY ASKS         STATE       SINCE  WHY
        a-pod-with-a-ve…        7 2 cpu 4Gi    Held        2.0 s  requests.cpu: asks for 2, 3 of 4 in use
        ");
        let narrow = printed(70, false);
        assert!(narrow.lines().all(|line| line.chars().count() <= 70), "{narrow}");
        insta::assert_snapshot!(narrow, @"
        quota compute: not there yet
        POD              PRIORITY ASKS         STATE       SINCE  WHY
        a-pod-with-a-ve…        7 2 cpu 4Gi    Held        2.0 s  requests.cp…
        ");
        // What follows the state is cut by what is seen, not by the sequences.
        insta::assert_debug_snapshot!(printed(70, true), @r#""\u{1b}[1mquota compute: not there yet\u{1b}[0m\n\u{1b}[2mPOD              PRIORITY ASKS         STATE       SINCE  WHY\u{1b}[0m\na-pod-with-a-ve…        7 2 cpu 4Gi    \u{1b}[33mHeld     \u{1b}[0m   2.0 s  requests.cp…""#);
    }
}
