//! The index as a page for people: `index.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use sluice_gate::plain;

use super::{Index, Right};

/// So many things of one reason are named; `index.json` has all.
const NAMED: usize = 6;

/// What is never in a bundle.
const NEVER: &str = "\
Secrets are not read. Environment variables, arguments and commands of containers, contents of volumes, annotations of
others and `managedFields` are dropped, the secret path of the webhook is replaced by REDACTED. Of Sluice's own containers
the arguments stay. Names, labels, amounts, conditions and events of tenants are in here, and lines that Sluice has logged:
look through them before you give the bundle to somebody.
";

pub fn page(index: &Index) -> String {
    let mut text = String::new();
    // Writing to a text cannot fail.
    let _ = write(&mut text, index);
    plain(&text)
}

fn write(out: &mut String, index: &Index) -> fmt::Result {
    let Index { taken, server, installation, .. } = index;
    let version = env!("CARGO_PKG_VERSION");
    writeln!(out, "# Sluice bundle\n")?;
    writeln!(
        out,
        "Taken {taken} by sluice {version}. Kubernetes {server}, Sluice in namespace {installation}."
    )?;
    match &index.namespace {
        Some(name) => writeln!(out, "Tenants' objects are those of namespace {name}.")?,
        None => writeln!(out, "Tenants' objects are those of all namespaces.")?,
    }
    writeln!(out, "\n{}\n\n{NEVER}", checks(index))?;
    writeln!(out, "## What is in it\n\n| file | what | objects | bytes |\n|---|---|---:|---:|")?;
    for file in &index.files {
        let objects = file.objects.map(|count| count.to_string()).unwrap_or_default();
        writeln!(out, "| {} | {} | {objects} | {} |", file.path, file.what, file.bytes)?;
    }
    if !index.empty.is_empty() {
        let empty: Vec<&str> = index.empty.iter().map(String::as_str).collect();
        writeln!(out, "\nRead, and there are none: {}.", empty.join("; "))?;
    }
    not_read(out, index)?;
    if !index.left_out.is_empty() {
        writeln!(out, "\n## What was left out\n\n| what | why |\n|---|---|")?;
        for (why, what) in &index.left_out {
            writeln!(out, "| {} | {} |", cell(&named(what)), cell(why))?;
        }
    }
    if !index.not_there.is_empty() {
        writeln!(out, "\n## What is not there\n")?;
        writeln!(out, "Parts that an installation with other options has, or that are missing:\n")?;
        for name in &index.not_there {
            writeln!(out, "* {}", cell(name))?;
        }
    }
    Ok(())
}

fn checks(index: &Index) -> String {
    let of = |wanted: &str| -> Vec<&str> {
        let names = index.checks.iter().filter(|(_, state)| state == wanted).map(|(name, _)| name.as_str());
        names.collect()
    };
    let count = |state: &str, names: &[&str]| match names {
        [] => format!("0 {state}"),
        names => format!("{} {state} ({})", names.len(), names.join(", ")),
    };
    let (failed, unknown) = (of("failed"), of("unknown"));
    format!(
        "Checks: {} good, {}, {}: see check.json.",
        of("good").len(),
        count("failed", &failed),
        count("not known", &unknown)
    )
}

fn not_read(out: &mut String, index: &Index) -> fmt::Result {
    if index.is_whole() {
        return writeln!(out, "\nEverything else could be read.");
    }
    writeln!(out, "\n## What could not be read\n\n| what | why |\n|---|---|")?;
    for gap in &index.gaps {
        writeln!(out, "| {} | {} |", cell(&named(&gap.what)), cell(&gap.why.words()))?;
    }
    let rights = rules(index);
    if !rights.is_empty() {
        writeln!(out, "\nThese rules would allow it:\n\n```yaml\n{rights}```")?;
    }
    Ok(())
}

fn named(what: &BTreeSet<String>) -> String {
    let mut names: Vec<&str> = what.iter().map(String::as_str).take(NAMED).collect();
    let more = format!("{} more", what.len().saturating_sub(NAMED));
    if what.len() > NAMED {
        names.push(&more);
    }
    names.join(", ")
}

/// Resources by their group and the verb.
type Rules<'i> = BTreeMap<(&'i str, &'i str), Vec<&'i str>>;

/// The rules of a Role for each namespace, and of a ClusterRole: those of one group and verb are one.
fn rules(index: &Index) -> String {
    let mut by_place: BTreeMap<Option<&str>, Rules<'_>> = BTreeMap::new();
    for Right { group, resource, verb, namespace } in index.missing_rights() {
        let rules = by_place.entry(namespace.as_deref()).or_default();
        rules.entry((group, verb)).or_default().push(resource);
    }
    let mut text = String::new();
    for (namespace, rules) in by_place {
        let _ = match namespace {
            Some(name) => writeln!(text, "# of a Role in namespace {name}"),
            None => writeln!(text, "# of a ClusterRole"),
        };
        for ((group, verb), resources) in rules {
            let _ = writeln!(
                text,
                "- apiGroups: [{group:?}]\n  resources: [{}]\n  verbs: [{verb}]",
                resources.join(", ")
            );
        }
    }
    text
}

/// A cell of a table, which ends with its line.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}
