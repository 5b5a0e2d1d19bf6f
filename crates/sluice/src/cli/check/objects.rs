//! What is found of the objects of an installation, compared with what this program would install.

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::{holding, names};
use sluice_manifests::{admission_policies, crds, mutating, validating};

use super::about::{self, About, Check};
use super::seen::{self, Read, Seen, called, flow as flow_paths, gives_way, lists, path_of, text, unread};

/// The CRDs are there and have all fields of this version.
pub fn definitions(seen: &Seen) -> Check {
    let (wanted, mut faults) = (crds(), Vec::new());
    for ours in &wanted {
        let name = text(ours, "/metadata/name");
        match seen.at(&path_of(ours)) {
            Read::Is(theirs) => faults.extend(
                older(ours, theirs)
                    .map(|field| format!("{name} is older than this program: it lacks {field}")),
            ),
            Read::Absent => faults.push(format!("{name} is missing")),
            other => return unread(other, &about::DEFINITIONS),
        }
    }
    about::DEFINITIONS.without(&faults, format!("{0} of {0}", wanted.len()))
}

/// A version or a field of `ours` that `theirs` lacks.
fn older(ours: &Value, theirs: &Value) -> Option<String> {
    let versions = |crd: &Value| crd.pointer("/spec/versions").and_then(Value::as_array).cloned();
    let theirs = versions(theirs).unwrap_or_default();
    versions(ours).unwrap_or_default().iter().find_map(|ours| {
        let name = text(ours, "/name");
        let Some(theirs) = theirs.iter().find(|version| text(version, "/name") == name) else {
            return Some(format!("version {name}"));
        };
        let schema =
            |version: &Value| version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_default();
        missing_field(&schema(ours), &schema(theirs), "")
    })
}

fn missing_field(ours: &Value, theirs: &Value, at: &str) -> Option<String> {
    let properties = ours.get("properties").and_then(Value::as_object).into_iter().flatten();
    for (name, ours) in properties {
        let at = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        let Some(theirs) = theirs.pointer("/properties").and_then(|all| all.get(name)) else {
            return Some(at);
        };
        if let Some(missing) = missing_field(ours, theirs, &at) {
            return Some(missing);
        }
    }
    let (ours, theirs) = (ours.get("items")?, theirs.get("items")?);
    missing_field(ours, theirs, &format!("{at}[]"))
}

/// The namespaces whose pods are gated; `Err`: not known.
fn selector(seen: &Seen) -> Result<Value, Check> {
    let aaqs = seen.items(lists::AAQS, &about::WEBHOOKS)?;
    let order = |aaq: &&Value| {
        let created = text(aaq, "/metadata/creationTimestamp").parse::<Timestamp>();
        (gives_way(aaq), created.map_or(i64::MAX, Timestamp::as_second))
    };
    let said = holding(aaqs, order);
    let said = said.and_then(|aaq| aaq.pointer("/spec/namespaceSelector").cloned());
    Ok(said.unwrap_or_else(|| json!(seen.options.namespace_selector)))
}

/// Whether `found` selects no namespace that `wanted` does not select. Platforms add requirements of their own.
fn narrows(found: &Value, wanted: &Value) -> bool {
    let expressions = |it: &Value| it.get("matchExpressions").and_then(Value::as_array).cloned();
    let found_expressions = expressions(found).unwrap_or_default();
    let label = |key: &str| found.get("matchLabels").and_then(|labels| labels.get(key));
    let wanted_labels = wanted.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    expressions(wanted).unwrap_or_default().iter().all(|it| found_expressions.contains(it))
        && wanted_labels.into_iter().all(|(key, value)| label(key) == Some(value))
}

/// Both webhook configurations have all entries, which trust one authority and select the namespaces of the `AAQ`.
pub fn webhooks(seen: &Seen) -> Check {
    let about = &about::WEBHOOKS;
    let selector = match selector(seen) {
        Ok(selector) => selector,
        Err(unknown) => return unknown,
    };
    let (mut faults, mut bundles, mut count) = (Vec::new(), Vec::new(), 0);
    for wanted in [mutating(&seen.options), validating(&seen.options)] {
        let name = text(&wanted, "/metadata/name").to_owned();
        let found = match seen.at(&seen::webhooks(text(&wanted, "/kind"), &name)) {
            Read::Is(found) => found,
            Read::Absent => {
                faults.push(format!("{name} is missing"));
                continue;
            }
            other => return unread(other, about),
        };
        for entry in entries(&wanted) {
            let entry_name = text(entry, "/name");
            count += 1;
            let Some(found) = entries(found).find(|found| text(found, "/name") == entry_name) else {
                faults.push(format!("{name} lacks {entry_name}"));
                continue;
            };
            bundles.push((entry_name.to_owned(), text(found, "/clientConfig/caBundle").to_owned()));
            let is_targeted = entry.get("namespaceSelector").is_some_and(|selector| *selector != json!({}));
            if is_targeted && !narrows(found.get("namespaceSelector").unwrap_or(&Value::Null), &selector) {
                faults.push(format!("{entry_name} selects other namespaces than the AAQ"));
            }
        }
    }
    faults.extend(wrong_bundles(&bundles));
    about.without(&faults, format!("{count} entries"))
}

fn entries(configuration: &Value) -> impl Iterator<Item = &Value> {
    configuration.get("webhooks").and_then(Value::as_array).into_iter().flatten()
}

/// Entries that trust another authority than most of them do, or none.
fn wrong_bundles(bundles: &[(String, String)]) -> Vec<String> {
    let same = |bundle: &str| bundles.iter().filter(|(_, other)| other == bundle).count();
    let most = bundles.iter().map(|(_, bundle)| bundle).max_by_key(|bundle| same(bundle));
    let wrong = bundles.iter().filter(|(_, bundle)| bundle.is_empty() || Some(bundle) != most);
    let say = |(entry, bundle): &(String, String)| match bundle.is_empty() {
        true => format!("{entry} has no caBundle"),
        false => format!("{entry} has another caBundle than the others"),
    };
    wrong.map(say).collect()
}

/// All policies and their bindings are there, and select the namespaces of the `AAQ`.
pub fn policies(seen: &Seen) -> Check {
    let about = &about::POLICIES;
    let selector = match selector(seen) {
        Ok(selector) => selector,
        Err(unknown) => return Check { about, ..unknown },
    };
    // An older API server has no policies that change objects: there the webhook gates, as options may ask elsewhere.
    let gates =
        seen.options_fault.is_none() && seen.version.as_ref().is_ok_and(|version| *version >= (1, 36));
    let is_known = |mutates: bool| !mutates || gates;
    let (mut faults, mut count) = (Vec::new(), 0);
    for policy in admission_policies(&seen.options).into_iter().filter(|it| is_known(it.mutates)) {
        count += 1;
        for wanted in [&policy.policy, &policy.binding] {
            let found = match seen.at(&path_of(wanted)) {
                Read::Is(found) => found,
                Read::Absent => {
                    faults.push(format!("{} is missing", called(wanted)));
                    continue;
                }
                other => return unread(other, about),
            };
            let at = ["/spec/matchConstraints/namespaceSelector", "/spec/matchResources/namespaceSelector"];
            for pointer in at.into_iter().filter(|pointer| wanted.pointer(pointer).is_some()) {
                let found = found.pointer(pointer).unwrap_or(&Value::Null);
                if policy.follows_selector() && !narrows(found, &selector) {
                    faults.push(format!("{} selects other namespaces than the AAQ", called(wanted)));
                }
            }
        }
    }
    about.without(&faults, format!("{count} policies with their bindings"))
}

/// Own requests do not wait behind those of tenants.
pub fn flow(seen: &Seen) -> Check {
    let about: &'static About = &about::FLOW;
    let mut faults = Vec::new();
    for path in flow_paths() {
        match seen.at(&path) {
            Read::Is(_) => {}
            Read::Absent => {
                let resource = path.rsplit('/').nth(1).unwrap_or_default();
                faults.push(format!("{resource} {} is missing", names::FLOW));
            }
            other => return unread(other, about),
        }
    }
    about.without(&faults, "own FlowSchema and level")
}
