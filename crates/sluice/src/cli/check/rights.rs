//! What is found of the rights of an installation's accounts, compared with what this program would install.

use serde_json::Value;

use super::about::{self, Check};
use super::seen::{self, Read, Seen, called, path_of, text, unread};

/// Roles give each account what this version needs, and are bound to it.
pub fn rights(seen: &Seen) -> Check {
    let mut all: Vec<Result<Vec<String>, Check>> =
        seen::rights(&seen.options).iter().map(|wanted| lacking(seen, wanted)).collect();
    all.sort_by_key(|lacking| lacking.as_ref().map_or(usize::MAX, Vec::len));
    match all.into_iter().next() {
        Some(Ok(faults)) => about::RIGHTS.without(&faults, "as this version needs"),
        Some(Err(unknown)) => unknown,
        None => about::RIGHTS.unknown("not read"),
    }
}

fn lacking(seen: &Seen, wanted: &[Value]) -> Result<Vec<String>, Check> {
    let mut faults = Vec::new();
    for wanted in wanted {
        let found = match seen.at(&path_of(wanted)) {
            Read::Is(found) => found,
            Read::Absent => {
                faults.push(format!("{} is missing", called(wanted)));
                continue;
            }
            other => return Err(unread(other, &about::RIGHTS)),
        };
        let list = |object: &Value, field| object.get(field).and_then(Value::as_array).cloned();
        let given = list(found, "rules").unwrap_or_default();
        let rules = list(wanted, "rules").unwrap_or_default();
        faults.extend(rules.iter().filter_map(|rule| {
            Some(format!("{} does not give {}", called(wanted), not_given(rule, &given)?))
        }));
        let bound = list(found, "subjects").unwrap_or_default();
        let is_bound = |subject: &Value| {
            bound
                .iter()
                .any(|it| ["/kind", "/name", "/namespace"].iter().all(|at| text(it, at) == text(subject, at)))
        };
        let subjects = list(wanted, "subjects").unwrap_or_default();
        faults.extend(
            subjects
                .iter()
                .filter(|subject| !is_bound(subject))
                .map(|subject| format!("{} does not bind {}", called(wanted), text(subject, "/name"))),
        );
    }
    Ok(faults)
}

/// A right of `rule` that none of the `given` rules gives.
fn not_given(rule: &Value, given: &[Value]) -> Option<String> {
    let texts = |rule: &Value, field: &str| -> Vec<String> {
        let all = rule.get(field).and_then(Value::as_array).into_iter().flatten();
        all.filter_map(|text| text.as_str().map(str::to_owned)).collect()
    };
    let has = |rule: &Value, field: &str, text: &str| {
        texts(rule, field).iter().any(|each| each == text || each == "*")
    };
    let any_name = |rule: &Value| texts(rule, "resourceNames").is_empty();
    let of_names = if any_name(rule) {
        vec![None]
    } else {
        texts(rule, "resourceNames").into_iter().map(Some).collect()
    };
    for verb in texts(rule, "verbs") {
        for url in texts(rule, "nonResourceURLs") {
            if !given.iter().any(|it| has(it, "verbs", &verb) && has(it, "nonResourceURLs", &url)) {
                return Some(format!("{verb} {url}"));
            }
        }
        for resource in texts(rule, "resources") {
            for group in texts(rule, "apiGroups") {
                for name in &of_names {
                    let gives = |it: &Value| {
                        let named = name.as_ref().is_some_and(|name| has(it, "resourceNames", name));
                        has(it, "verbs", &verb)
                            && has(it, "resources", &resource)
                            && has(it, "apiGroups", &group)
                            && (any_name(it) || named)
                    };
                    if !given.iter().any(gives) {
                        let group = if group.is_empty() { String::new() } else { format!(".{group}") };
                        let name = name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
                        return Some(format!("{verb} {resource}{group}{name}"));
                    }
                }
            }
        }
    }
    None
}
