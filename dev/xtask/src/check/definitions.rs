//! CRDs only grow. They outlive every version of Sluice, and a version that is taken back finds those of the newer one: an
//! object that was accepted is accepted still, and no field of it is dropped.
//!
//! Compared is with the CRDs of the last release, which is the last tag `v…` of git. Before there is one, with a copy of an
//! earlier state (`definitions/last.json`), so that the rule is kept from the beginning.

mod schema;

use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::shell::root;

const FIRST: &str = include_str!("definitions/last.json");

/// Reports everything that a CRD accepts no more.
///
/// # Errors
/// When there is something, or the last CRDs cannot be read.
pub(super) fn check() -> anyhow::Result<()> {
    let (which, last) = last()?;
    let lost = lost(&last, &sluice_manifests::crds());
    for each in &lost {
        eprintln!("deploy/crds.yaml: {each}");
    }
    ensure!(lost.is_empty(), "{} changes of CRDs since {which} are no additions", lost.len());
    Ok(())
}

/// The last CRDs, and whose they are.
fn last() -> anyhow::Result<(String, Vec<Value>)> {
    let described = git(&["describe", "--tags", "--abbrev=0", "--match=v[0-9]*"])?;
    let Some(tag) = described.map(|text| text.trim().to_owned()).filter(|tag| !tag.is_empty()) else {
        let crds = serde_json::from_str(FIRST).context("could not read definitions/last.json")?;
        return Ok(("definitions/last.json".to_owned(), crds));
    };
    let text = git(&["show", &format!("{tag}:deploy/crds.yaml")])?;
    let text = text.with_context(|| format!("{tag} has no deploy/crds.yaml"))?;
    Ok((tag, sluice_packaging::read(&text)?))
}

/// What git prints; `None` where it fails, as it does where there is no tag.
fn git(arguments: &[&str]) -> anyhow::Result<Option<String>> {
    let output = Command::new("git").args(arguments).current_dir(root()).output();
    let output = output.context("could not start git")?;
    if !output.status.success() {
        return Ok(None);
    }
    String::from_utf8(output.stdout).context("could not read the answer of git").map(Some)
}

/// What `now` accepts no more of what `last` accepted.
fn lost(last: &[Value], now: &[Value]) -> Vec<String> {
    let mut lost = Vec::new();
    for before in last {
        let name = text(before, "/metadata/name");
        match now.iter().find(|crd| text(crd, "/metadata/name") == name) {
            Some(after) => lost_of_one(name, before, after, &mut lost),
            None => lost.push(format!("{name} is gone")),
        }
    }
    lost
}

fn lost_of_one(name: &str, before: &Value, after: &Value, lost: &mut Vec<String>) {
    for field in ["/spec/group", "/spec/scope", "/spec/names/kind", "/spec/names/plural"] {
        if before.pointer(field) != after.pointer(field) {
            lost.push(format!("{name}: {field} is another one"));
        }
    }
    for version in versions(before).filter(|version| is(version, "served")) {
        let number = text(version, "/name");
        let found = versions(after).find(|each| text(each, "/name") == number && is(each, "served"));
        let Some(found) = found else {
            lost.push(format!("{name}: {number} is served no more"));
            continue;
        };
        if is(version, "storage") && !is(found, "storage") {
            lost.push(format!("{name}: objects are stored as {number} no more"));
        }
        for subresource in ["/subresources/status", "/subresources/scale"] {
            if version.pointer(subresource).is_some() != found.pointer(subresource).is_some() {
                lost.push(format!("{name}: {number}{subresource} comes or goes"));
            }
        }
        let of = |version: &Value| version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_default();
        schema::compare(&format!("{name} {number}"), &of(version), &of(found), lost);
    }
}

fn versions(crd: &Value) -> impl Iterator<Item = &Value> {
    crd.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten()
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn is(value: &Value, field: &str) -> bool {
    value.get(field).and_then(Value::as_bool).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::lost;

    fn crd(version: Value) -> Value {
        json!({
            "metadata": { "name": "things.test" },
            "spec": {
                "group": "test", "scope": "Cluster", "names": { "kind": "Thing", "plural": "things" },
                "versions": [version],
            },
        })
    }

    fn version(served: bool, subresources: Value, properties: Value) -> Value {
        let schema = json!({ "openAPIV3Schema": { "type": "object", "properties": properties } });
        json!({
            "name": "v1", "served": served, "storage": true, "subresources": subresources, "schema": schema,
        })
    }

    #[test]
    fn kinds_and_served_versions_stay() {
        let last = crd(version(true, json!({ "status": {} }), json!({})));
        let mut shown = last.clone();
        shown["spec"]["versions"][0]["additionalPrinterColumns"] = json!([{ "name": "Age" }]);
        assert_eq!(
            lost(std::slice::from_ref(&last), &[shown]),
            Vec::<String>::new(),
            "a column says nothing"
        );
        let expect = |now: &[Value], expected: &str| {
            assert_eq!(lost(std::slice::from_ref(&last), now), [expected]);
        };
        expect(&[], "things.test is gone");
        let unserved = crd(version(false, json!({ "status": {} }), json!({})));
        expect(&[unserved], "things.test: v1 is served no more");
        expect(
            &[crd(version(true, json!({}), json!({})))],
            "things.test: v1/subresources/status comes or goes",
        );
        let mut other = last.clone();
        other["spec"]["scope"] = json!("Namespaced");
        expect(&[other], "things.test: /spec/scope is another one");
    }

    #[test]
    fn fields_of_a_served_version_are_compared() {
        let last = crd(version(true, json!({}), json!({ "a": { "type": "string" } })));
        let more = json!({ "a": { "type": "string" }, "b": { "type": "string" } });
        assert_eq!(
            lost(std::slice::from_ref(&last), &[crd(version(true, json!({}), more))]),
            Vec::<String>::new()
        );
        let none = crd(version(true, json!({}), json!({})));
        assert_eq!(lost(&[last], &[none]), ["things.test v1.a is gone"]);
    }

    #[test]
    fn the_copy_is_what_the_crds_were() {
        let (_, last) = super::last().expect("the last CRDs");
        assert!(last.len() >= 11, "{}", last.len());
        assert_eq!(lost(&last, &last), Vec::<String>::new());
    }
}
