//! What is printed of a drain.

use serde_json::json;

use super::row::{IN_TURN, NOT_KNOWN, NOT_MIGRATABLE, NOW, Row, STUCK};
use crate::cli::printed::{Format, print, print_value, table};

/// Prints the rows.
pub(super) fn say(rows: &[Row], missing: &[String], format: Format) -> anyhow::Result<()> {
    match format {
        Format::Json | Format::Yaml => {
            let items = rows.iter().map(|row| {
                json!({
                    "namespace": row.namespace, "vm": row.vm, "native": row.native, "sluice": row.sluice,
                    "headroom": row.headroom, "result": row.result, "reason": row.reason, "message": row.message,
                })
            });
            let value = json!({
                "apiVersion": "cli.sluice.dev/v1", "kind": "DrainCheck", "items": items.collect::<Vec<_>>(),
                "missingRights": missing,
            });
            print_value(&value, format)?;
        }
        Format::Name => {
            let stuck = rows.iter().filter(|row| row.result == STUCK);
            print(&stuck.map(|row| format!("{}/{}\n", row.namespace, row.vm)).collect::<String>())?;
        }
        Format::Table | Format::Wide => {
            print(&text(rows))?;
        }
    }
    missing.iter().for_each(|right| eprintln!("missing right: {right}"));
    Ok(())
}

/// A table, and below it why those do not go at once that do not.
fn text(rows: &[Row]) -> String {
    let head = ["NAMESPACE", "VM", "NATIVE", "SLUICE", "HEAD-ROOM", "RESULT"].map(str::to_owned).to_vec();
    let cells = rows.iter().map(|row| {
        let columns = [&row.namespace, &row.vm, row.native, row.sluice, &row.headroom, row.result];
        columns.map(str::to_owned).to_vec()
    });
    let mut text = format!("{} VMs. Quotas only: room on other nodes is the scheduler's.\n", rows.len());
    text.push_str(&table(&std::iter::once(head).chain(cells).collect::<Vec<_>>()));
    let many = |result: &str| rows.iter().filter(|row| row.result == result).count();
    text.push_str(&format!(
        "{} now, {} in turn, {} stuck, {} not known, {} cannot migrate.\n",
        many(NOW),
        many(IN_TURN),
        many(STUCK),
        many(NOT_KNOWN),
        many(NOT_MIGRATABLE)
    ));
    for row in rows.iter().filter(|row| row.result != NOW) {
        text.push_str(&format!("  {}/{}: {}\n", row.namespace, row.vm, row.message));
    }
    text
}
