//! The packages that the program is made of, and what may be done with them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Platform;
use crate::shell::cargo;

/// Beginnings of the names of files that say what is permitted.
const LICENCE_FILES: [&str; 6] = ["license", "licence", "copying", "copyright", "notice", "unlicense"];
/// Packages of C code have that of its authors in a folder.
const DEPTH: usize = 2;

/// A package of Cargo.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    /// An SPDX expression.
    license: Option<String>,
    manifest_path: PathBuf,
    /// None if it is one of the workspace.
    source: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// All packages whose code is in the program, those of the workspace too; in order.
pub(super) fn of_program(platform: Platform) -> anyhow::Result<Vec<Package>> {
    // Cargo's tree knows which features this program is built with, and its metadata where the sources are.
    let tree = ["tree", "--locked", "--package", "sluice", "--target", platform.target];
    let tree = printed(&[&tree[..], &["--edges", "normal,no-proc-macro", "--prefix", "none"]].concat())?;
    let used = used(&tree);
    let metadata = ["metadata", "--locked", "--format-version", "1", "--filter-platform", platform.target];
    let metadata: Metadata =
        serde_json::from_str(&printed(&metadata)?).context("could not read what cargo metadata prints")?;
    let is_used = |package: &Package| used.contains(&(package.name.clone(), package.version.clone()));
    let mut packages: Vec<_> = metadata.packages.into_iter().filter(is_used).collect();
    packages.sort();
    anyhow::ensure!(packages.len() == used.len(), "{} of {} packages are known", packages.len(), used.len());
    Ok(packages)
}

fn printed(arguments: &[&str]) -> anyhow::Result<String> {
    let output =
        cargo().args(arguments).output().with_context(|| format!("could not run cargo {arguments:?}"))?;
    anyhow::ensure!(
        output.status.success(),
        "cargo {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).with_context(|| format!("cargo {arguments:?} prints no text"))
}

/// Names and versions of a tree, of which each line is `NAME vVERSION` and what else is said.
pub(super) fn used(tree: &str) -> BTreeSet<(String, String)> {
    let package = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        Some((name, words.next()?.strip_prefix('v')?.to_owned()))
    };
    tree.lines().filter_map(package).collect()
}

/// The list of packages by CycloneDX 1.5 (<https://cyclonedx.org/docs/1.5/json/>), of the image `reference`.
pub(super) fn bill_of_materials(packages: &[Package], reference: &str) -> Value {
    let component = |package: &Package| {
        let purl = format!("pkg:cargo/{}@{}", package.name, package.version);
        let mut component = json!({
            "type": "library", "bom-ref": purl, "name": package.name, "version": package.version, "purl": purl,
        });
        if let (Some(license), Some(fields)) = (&package.license, component.as_object_mut()) {
            // Old packages separate licences by a slash.
            let expression = license.replace('/', " OR ");
            fields.insert("licenses".to_owned(), json!([{ "expression": expression }]));
        }
        component
    };
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": { "type": "container", "name": reference } },
        "components": packages.iter().map(component).collect::<Vec<_>>(),
    })
}

/// What the authors of the packages of others permit, in their words: each text once, with the packages that it is for.
pub(super) fn licences(packages: &[Package]) -> anyhow::Result<String> {
    let mut texts = BTreeMap::<String, Vec<&Package>>::new();
    let mut list = String::new();
    for package in packages.iter().filter(|package| package.source.is_some()) {
        let expression = package.license.as_deref().unwrap_or("see below");
        list.push_str(&format!("{} {}: {expression}\n", package.name, package.version));
        for file in licence_files(package.manifest_path.parent().unwrap_or_else(|| Path::new("")), DEPTH)? {
            let text = fs::read(&file).with_context(|| format!("could not read {}", file.display()))?;
            let of_text = texts.entry(String::from_utf8_lossy(&text).into_owned()).or_default();
            if of_text.last() != Some(&package) {
                of_text.push(package);
            }
        }
    }
    let mut all = format!(
        "Sluice contains these packages of others, and the C library of the system it is built on.\n\n{list}"
    );
    for (text, of_text) in texts {
        let names: Vec<_> = of_text.iter().map(|package| package.name.as_str()).collect();
        all.push_str(&format!("\n{}\n{}\n\n{}\n", "=".repeat(80), names.join(", "), text.trim()));
    }
    Ok(all)
}

fn licence_files(folder: &Path, depth: usize) -> anyhow::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let entries = fs::read_dir(folder).with_context(|| format!("could not list {}", folder.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("could not list {}", folder.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        // Licences of a list are a folder in some packages.
        if path.is_dir() && depth > 0 {
            found.extend(licence_files(&path, depth - 1)?);
        } else if path.is_file() && LICENCE_FILES.iter().any(|begin| name.starts_with(begin)) {
            found.insert(path);
        }
    }
    Ok(found)
}
