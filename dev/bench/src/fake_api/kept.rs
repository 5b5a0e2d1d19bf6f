//! Leases, events and the rule: kept as they come, with a version; what names another one is refused.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::object::Refused;

/// How an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Create,
    Replace,
    /// By a merge patch.
    Merge,
}

/// Objects by their path.
#[derive(Debug, Default)]
pub(super) struct Kept(BTreeMap<String, Value>);

impl Kept {
    pub(super) fn get(&self, path: &str) -> Option<&Value> {
        self.0.get(path)
    }

    /// Writes an object, which has this version then.
    pub(super) fn write(
        &mut self,
        how: How,
        path: String,
        sent: Value,
        version: u64,
    ) -> Result<String, Refused> {
        let mut object = match (how, self.0.get(&path)) {
            (How::Create, Some(_)) => return Err(Refused::Exists),
            (How::Replace | How::Merge, None) => return Err(Refused::Missing),
            (How::Replace | How::Merge, Some(known))
                if named_version(&sent).is_some() && named_version(&sent) != named_version(known) =>
            {
                return Err(Refused::Conflict);
            }
            (How::Merge, Some(known)) => {
                let mut merged = known.clone();
                json_patch::merge(&mut merged, &sent);
                merged
            }
            (How::Create, None) | (How::Replace, Some(_)) => sent,
        };
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".to_owned(), json!(version.to_string()));
        }
        let text = object.to_string();
        self.0.insert(path, object);
        Ok(text)
    }
}

fn named_version(object: &Value) -> Option<&str> {
    object.pointer("/metadata/resourceVersion").and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(version: Option<&str>) -> Value {
        json!({"metadata": {"name": "a", "resourceVersion": version}})
    }

    #[test]
    fn one_of_two_candidates_wins() {
        let mut kept = Kept::default();
        let mut write = |how, named, version| kept.write(how, "a".to_owned(), object(named), version);
        assert_eq!(write(How::Replace, None, 1), Err(Refused::Missing));
        assert_eq!(write(How::Create, None, 2), Ok(object(Some("2")).to_string()));
        assert_eq!(write(How::Create, None, 3), Err(Refused::Exists), "it is there");
        assert_eq!(write(How::Replace, Some("2"), 4), Ok(object(Some("4")).to_string()));
        assert_eq!(write(How::Replace, Some("2"), 5), Err(Refused::Conflict), "the other one was faster");
        assert_eq!(kept.get("a"), Some(&object(Some("4"))));
    }

    #[test]
    fn a_merge_patch_changes_what_it_names() {
        let mut kept = Kept::default();
        let series = |count| json!({"series": {"count": count}});
        assert_eq!(kept.write(How::Merge, "a".to_owned(), series(1), 1), Err(Refused::Missing));
        assert!(kept.write(How::Create, "a".to_owned(), object(None), 2).is_ok());
        assert!(kept.write(How::Merge, "a".to_owned(), series(1), 3).is_ok());
        let wanted = json!({"metadata": {"name": "a", "resourceVersion": "3"}, "series": {"count": 1}});
        assert_eq!(kept.get("a"), Some(&wanted));
        let outdated = json!({"metadata": {"resourceVersion": "2"}, "series": {"count": 2}});
        assert_eq!(kept.write(How::Merge, "a".to_owned(), outdated, 4), Err(Refused::Conflict));
    }
}
