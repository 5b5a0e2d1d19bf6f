//! What is to be said at the end.

use crate::board::{Board, Peak, State};

/// `8 pods, 5 were held, longest wait 3.1 s, never more than 4 of 4 CPUs in use`, from what was observed.
pub fn summary(board: &Board) -> String {
    let rows = board.rows();
    let held: Vec<_> = rows.iter().filter(|row| row.told.is_some()).collect();
    let waits = held.iter().filter_map(|row| row.waited());
    let verb = if held.len() == 1 { "was" } else { "were" };
    let mut text = format!("{} pods, {} {verb} held", rows.len(), held.len());
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;
    use sluice_api::names;
    use sluice_engine::Quantity;

    use super::summary;
    use crate::board::{Amounts, Board};

    fn pod(name: &str, held: bool) -> Pod {
        let gates = if held { json!([{"name": names::GATE}]) } else { json!([]) };
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name},
            "spec": {"schedulingGates": gates, "containers": [
                {"name": "main", "resources": {"requests": {"cpu": "1500m"}}}]},
        }))
        .unwrap()
    }

    fn cpus(amount: &str) -> Amounts {
        Amounts::from([("requests.cpu".to_owned(), Quantity::parse(amount).unwrap())])
    }

    #[test]
    fn the_last_line_is_what_was_observed() {
        let mut board = Board::default();
        board.allow(cpus("2"));
        board.pod(Duration::from_secs(1), &pod("web", false));
        for name in ["import", "huge"] {
            board.pod(Duration::from_secs(2), &pod(name, true));
            board.told(name, "because");
        }
        board.allow(cpus("4"));
        board.pod(Duration::from_millis(5_100), &pod("import", false));
        insta::assert_snapshot!(summary(&board), @"3 pods, 2 were held, longest wait 3.1 s, never more than 1500m of 2 CPUs in use, after the raise 3 of 4; huge still waits");
    }
}
