//! A module, as its source has it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Names with `::` between them. That of a module begins at the root of its crate, whose own has no names.
pub(super) type Names = Vec<String>;

/// What the source of a module says.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// Where it is written.
    pub(super) file: PathBuf,
    /// What it defines itself.
    pub(super) defined: BTreeSet<String>,
    /// What it imports, by the name that it has here.
    pub(super) imported: BTreeMap<String, Names>,
    /// Modules and types of which it imports everything.
    pub(super) globs: Vec<Names>,
    /// All paths in it, those of imports too.
    pub(super) paths: Vec<Names>,
}
