//! What is to be said at the end.

use crate::board::{Board, Peak, State};

/// `8 pods, 5 were held, longest wait 3.1 s, never more than 4 of 4 CPUs in use`, from what was observed.
pub fn summary(board: &Board) -> String {
    let rows = board.rows();
    let held = rows.iter().filter(|row| row.told.is_some());
    let waits = held.clone().filter_map(|row| row.waited());
    let mut text = format!("{} pods, {} were held", rows.len(), held.count());
    if let Some(longest) = waits.max() {
        text.push_str(&format!(", longest wait {:.1} s", longest.as_secs_f32()));
    }
    let peaks: Vec<String> = board.peaks.iter().filter_map(in_use).collect();
    if let Some((first, later)) = peaks.split_first() {
        text.push_str(&format!(", never more than {first} CPUs in use"));
        for peak in later {
            text.push_str(&format!(", after the raise {peak}"));
        }
    }
    let waiting: Vec<&str> =
        rows.iter().filter(|row| row.state == State::Held).map(|row| row.name.as_str()).collect();
    if !waiting.is_empty() {
        text.push_str(&format!("; {} still waits", waiting.join(", ")));
    }
    text
}

fn in_use(peak: &Peak) -> Option<String> {
    let key = "requests.cpu";
    Some(format!("{} of {}", peak.most.get(key)?, peak.limits.get(key)?))
}
