//! The modules of a crate, found by their declarations.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use proc_macro2::TokenStream;

use super::module::{Module, Names};
use super::source::{Declared, read};

/// All modules of a crate but those of tests, by their names.
#[derive(Debug, Default)]
pub(super) struct Modules(BTreeMap<Names, Module>);

impl Modules {
    /// Reads a crate from its first file.
    ///
    /// # Errors
    /// When a file cannot be read, or is no Rust.
    pub(super) fn read(crate_root: &Path) -> anyhow::Result<Self> {
        let mut modules = Self::default();
        let folder = crate_root.parent().unwrap_or(crate_root);
        modules.add_file(Names::new(), crate_root, folder)?;
        Ok(modules)
    }

    /// The module with these names.
    pub(super) fn get(&self, names: &[String]) -> Option<&Module> {
        self.0.get(names)
    }

    /// All modules with their names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Names, &Module)> {
        self.0.iter()
    }

    /// `folder`: where the modules are that it declares.
    fn add_file(&mut self, names: Names, file: &Path, folder: &Path) -> anyhow::Result<()> {
        let shown = file.display();
        let source = std::fs::read_to_string(file).with_context(|| format!("could not read {shown}"))?;
        let tokens = source.parse().map_err(|error| anyhow!("{shown} is no Rust: {error}"))?;
        self.add(names, tokens, file, folder)
    }

    fn add(&mut self, names: Names, tokens: TokenStream, file: &Path, folder: &Path) -> anyhow::Result<()> {
        let (mut module, declared) = read(tokens);
        module.file = file.to_path_buf();
        self.0.insert(names.clone(), module);
        for Declared { name, body } in declared {
            let inner: Names = names.iter().chain([&name]).cloned().collect();
            let inside = folder.join(&name);
            match body {
                Some(body) => self.add(inner, body, file, &inside)?,
                None => {
                    let beside = folder.join(format!("{name}.rs"));
                    let file = if beside.is_file() { beside } else { inside.join("mod.rs") };
                    self.add_file(inner, &file, &inside)?;
                }
            }
        }
        Ok(())
    }
}
