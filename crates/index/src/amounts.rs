//! Amounts as the API has them, packed: a cluster has a quota or more per namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_engine::Quantity;
use sluice_engine::headroom::Amounts;

use crate::quantity::ResourceTexts;

/// Texts of amounts by key, exactly as the API server sent them: patches test for them.
pub type RawAmounts = BTreeMap<String, String>;

/// Between the fields of a line; no key and no quantity has it.
const FIELD: char = '\u{1f}';
/// After each line.
const LINE: char = '\u{1e}';
/// Stands for an amount that is not there.
const ABSENT: &str = "\u{1d}";

/// Which of the three maps of a quota.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Column {
    SpecHard = 1,
    StatusHard = 2,
    Used = 3,
}

/// `spec.hard`, `status.hard` and `status.used` of a quota in one text, a line per key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Texts(Box<str>);

impl Texts {
    /// Packs the three maps. Keys or amounts with control characters, which no API server lets through, are left
    /// out.
    pub(crate) fn pack(columns: [&ResourceTexts; 3]) -> Self {
        let mut lines: BTreeMap<&str, [Option<&str>; 3]> = BTreeMap::new();
        for (position, column) in columns.into_iter().enumerate() {
            for (key, text) in column {
                if key.contains(is_control) || text.0.contains(is_control) {
                    continue;
                }
                if let Some(cell) = lines.entry(key).or_default().get_mut(position) {
                    *cell = Some(&text.0);
                }
            }
        }
        let mut packed = String::new();
        for (key, cells) in lines {
            packed.push_str(key);
            for cell in cells {
                packed.push(FIELD);
                packed.push_str(cell.unwrap_or(ABSENT));
            }
            packed.push(LINE);
        }
        Self(packed.into_boxed_str())
    }

    /// Keys and texts of one map.
    pub(crate) fn column(&self, column: Column) -> impl Iterator<Item = (&str, &str)> {
        self.0.split_terminator(LINE).filter_map(move |line| {
            let mut fields = line.split(FIELD);
            let key = fields.next()?;
            let text = fields.nth(column as usize - 1)?;
            (text != ABSENT).then_some((key, text))
        })
    }

    pub(crate) fn raw(&self, column: Column) -> RawAmounts {
        self.column(column).map(|(key, text)| (key.to_owned(), text.to_owned())).collect()
    }

    /// One map as numbers; keys that are not one go to `unreadable`.
    pub(crate) fn amounts(&self, column: Column, unreadable: &mut Vec<Arc<str>>) -> Amounts {
        let mut amounts = Amounts::new();
        for (key, text) in self.column(column) {
            match Quantity::parse_json_text(text) {
                Ok(amount) => {
                    amounts.insert(key.into(), amount);
                }
                Err(_) => unreadable.push(key.into()),
            }
        }
        amounts
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.0.len()
    }
}

fn is_control(c: char) -> bool {
    c.is_ascii_control()
}

/// Amounts of a grant: numbers, and what could not be read, each as `key: reason`. Of more than `most`
/// keys the first are taken.
pub(crate) fn read_amounts(texts: &ResourceTexts, most: usize) -> (Amounts, Vec<String>) {
    let mut amounts = Amounts::new();
    let mut errors = Vec::new();
    for (key, text) in texts.iter().take(most) {
        match Quantity::parse_json_text(&text.0) {
            Ok(amount) => {
                amounts.insert(key.as_str().into(), amount);
            }
            Err(error) => errors.push(format!("{key}: {error}")),
        }
    }
    if texts.len() > most {
        errors.push(format!("reading the amounts: only the first {most} of {} keys count", texts.len()));
    }
    (amounts, errors)
}
