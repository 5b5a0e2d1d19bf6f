//! Modules of one crate that need each other in a circle: none of them can be understood,
//! moved or tested without the others.
//!
//! A module and those inside it do not make a circle, for that is how the tree of folders works: the outer one declares the
//! inner one and uses it, and the inner one takes what is written outside. Siblings and cousins do.
//!
//! What is used is read from the tokens of the source, as it is written: `use` lines and paths of more than one word, inside
//! macros and attributes too. A name that is exported again counts as one of the module that defines it. Methods are not
//! followed, for only a compiler knows whose they are. Tests are left out.

mod conditions;
mod cursor;
mod graph;
mod module;
mod modules;
mod names;
mod source;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use crate::shell::root;
use graph::Graph;
use modules::Modules;

/// The folders of our crates.
const FOLDERS: [&str; 2] = ["crates", "dev"];

/// Reports one circle of each knot of modules.
///
/// # Errors
/// When there is one, or a source file cannot be read.
pub(super) fn check() -> anyhow::Result<()> {
    let mut count = 0;
    for crate_root in crate_roots()? {
        for circle in circles(&crate_root)? {
            eprintln!("modules need each other in a circle:\n{circle}");
            count += 1;
        }
    }
    ensure!(count == 0, "{count} circles of modules");
    Ok(())
}

/// The first file of each library and program.
fn crate_roots() -> anyhow::Result<Vec<PathBuf>> {
    let mut roots = Vec::new();
    for folder in FOLDERS {
        for package in entries(&root().join(folder))? {
            let source = package.join("src");
            roots.extend(
                ["lib.rs", "main.rs"].map(|name| source.join(name)).into_iter().filter(|it| it.is_file()),
            );
            let programs = source.join("bin");
            if programs.is_dir() {
                roots.extend(entries(&programs)?.into_iter().filter(|it| it.is_file()));
            }
        }
    }
    Ok(roots)
}

fn entries(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let read = || folder.read_dir()?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>();
    let mut entries = read().with_context(|| format!("could not read {}", folder.display()))?;
    entries.sort();
    Ok(entries)
}

/// One circle of each knot of modules of this crate, a line for each file along it.
fn circles(crate_root: &Path) -> anyhow::Result<Vec<String>> {
    let modules = Modules::read(crate_root)?;
    let graph = Graph::of(&modules);
    Ok(graph.circles().iter().map(|circle| graph.described(circle, &modules)).collect())
}

#[cfg(test)]
mod tests;
