//! Which module a path leads to.

use std::collections::BTreeSet;

use super::module::Names;
use super::modules::Modules;

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Meaning {
    Module(Names),
    /// Something that this module defines.
    Item(Names),
}

/// The names that are being looked up: imports may lead back to themselves.
type Asked = BTreeSet<(Names, String)>;

/// The module that defines what `path` names, as it is written in the module `from`; `None` for another crate's.
pub(super) fn defining_module(modules: &Modules, from: &Names, path: &[String]) -> Option<Names> {
    match follow(modules, from, path, &Asked::new())? {
        Meaning::Module(names) | Meaning::Item(names) => Some(names),
    }
}

fn follow(modules: &Modules, from: &Names, path: &[String], asked: &Asked) -> Option<Meaning> {
    let (first, mut rest) = path.split_first()?;
    let mut at = match first.as_str() {
        "crate" => Names::new(),
        "self" => from.clone(),
        "super" => outer(from)?,
        name => match meaning(modules, from, name, asked)? {
            Meaning::Module(names) => names,
            item => return Some(item),
        },
    };
    while let Some((name, after)) = rest.split_first() {
        rest = after;
        at = match name.as_str() {
            "self" => at,
            "super" => outer(&at)?,
            name => match meaning(modules, &at, name, asked) {
                Some(Meaning::Module(names)) => names,
                Some(item) => return Some(item),
                // What a macro defines is not seen.
                None => return Some(Meaning::Item(at)),
            },
        };
    }
    Some(Meaning::Module(at))
}

fn outer(names: &Names) -> Option<Names> {
    names.split_last().map(|(_, outer)| outer.to_vec())
}

/// What `name` stands for in a module.
fn meaning(modules: &Modules, within: &Names, name: &str, asked: &Asked) -> Option<Meaning> {
    let mut asked = asked.clone();
    if !asked.insert((within.clone(), name.to_owned())) {
        return None;
    }
    let inner: Names = within.iter().cloned().chain([name.to_owned()]).collect();
    if modules.get(&inner).is_some() {
        return Some(Meaning::Module(inner));
    }
    let module = modules.get(within)?;
    if module.defined.contains(name) {
        return Some(Meaning::Item(within.clone()));
    }
    if let Some(path) = module.imported.get(name) {
        return follow(modules, within, path, &asked);
    }
    module.globs.iter().find_map(|path| match follow(modules, within, path, &asked)? {
        Meaning::Module(names) => meaning(modules, &names, name, &asked),
        // The variants of an enum.
        Meaning::Item(_) => None,
    })
}
