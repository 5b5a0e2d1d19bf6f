//! Which module uses which, and the circles in that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use super::module::Names;
use super::modules::Modules;
use super::names::defining_module;
use crate::shell::root;

/// Of each module those that it uses, with the first path that says so.
#[derive(Debug, Default)]
pub(super) struct Graph(BTreeMap<Names, BTreeMap<Names, Names>>);

impl Graph {
    /// Reads it from the paths in the modules.
    pub(super) fn of(modules: &Modules) -> Self {
        let mut graph = Self::default();
        for (from, module) in modules.iter() {
            for path in module.paths.iter().chain(&module.globs) {
                let to = defining_module(modules, from, path);
                if let Some(to) = to.filter(|to| !from.starts_with(to) && !to.starts_with(from)) {
                    graph.0.entry(from.clone()).or_default().entry(to).or_insert_with(|| path.clone());
                }
            }
        }
        graph
    }

    /// A shortest circle of each knot: of modules that all lead to each other.
    pub(super) fn circles(&self) -> Vec<Vec<Names>> {
        let mut circles = Vec::new();
        let mut told = BTreeSet::new();
        for start in self.0.keys() {
            let Some(circle) = self.circle(start).filter(|_| !told.contains(start)) else { continue };
            let knot = self.reached(start).into_iter().filter(|other| self.reached(other).contains(start));
            let knot: Vec<Names> = knot.collect();
            told.extend(knot.iter().cloned());
            let shortest = knot.iter().filter_map(|other| self.circle(other)).min_by_key(Vec::len);
            circles.push(shortest.unwrap_or(circle));
        }
        circles
    }

    /// The circle with a line for each module along it.
    pub(super) fn described(&self, circle: &[Names], modules: &Modules) -> String {
        let next = circle.iter().skip(1).chain(circle.first());
        let lines = circle.iter().zip(next).map(|(from, to)| {
            let file = modules.get(from).map_or_else(|| Path::new(""), |module| module.file.as_path());
            let file = file.strip_prefix(root()).unwrap_or(file).display();
            let path = self.used(from).find(|(used, _)| *used == to).map(|(_, path)| path.join("::"));
            let (from, path) = (from.join("::"), path.unwrap_or_default());
            format!("  {file}: {from} uses {} ({path})", to.join("::"))
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    fn used(&self, from: &Names) -> impl Iterator<Item = (&Names, &Names)> {
        self.0.get(from).into_iter().flatten()
    }

    /// All modules that can be reached from this one by at least one step.
    fn reached(&self, from: &Names) -> BTreeSet<Names> {
        let mut reached = BTreeSet::new();
        let mut ahead = vec![from];
        while let Some(at) = ahead.pop() {
            for (next, _) in self.used(at) {
                if reached.insert(next.clone()) {
                    ahead.push(next);
                }
            }
        }
        reached
    }

    /// A shortest circle that begins at this module.
    fn circle(&self, start: &Names) -> Option<Vec<Names>> {
        let mut seen = BTreeSet::new();
        let mut ahead = VecDeque::from([vec![start]]);
        while let Some(way) = ahead.pop_front() {
            for (next, _) in way.last().into_iter().flat_map(|at| self.used(at)) {
                if next == start {
                    return Some(way.into_iter().cloned().collect());
                }
                if seen.insert(next) {
                    ahead.push_back(way.iter().copied().chain([next]).collect());
                }
            }
        }
        None
    }
}
