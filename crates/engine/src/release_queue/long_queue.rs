//! Indexes of the queue of a quota that is shared, or for which many different charges wait.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::dominant_share::DominantShare;
use super::equivalence_class::EquivalenceClass;
use super::lanes::{Head, Lane, Lanes};
use super::quota_set::ShareId;
use super::wait_order::ClassId;
use crate::charge::{Amount, Charge};
use crate::ledger::Ledger;
use crate::resource::Resource;

/// What would otherwise take a look at each class of the queue.
#[derive(Debug, Default)]
pub(super) struct LongQueue {
    pub(super) lanes: Lanes,
    /// What the classes ask for.
    needs: BTreeMap<Resource, Needs>,
}

/// How much of one resource is asked for, by how many classes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needs {
    classes: usize,
    amounts: BTreeMap<Amount, usize>,
}

impl LongQueue {
    /// Of a quota that is not shared.
    pub(super) fn of(heads: &BTreeSet<Head>, classes: &HashMap<ClassId, EquivalenceClass>) -> Self {
        let mut queue = Self::default();
        for (_, id) in heads {
            let Some((class, front)) = classes.get(id).and_then(|class| Some((class, class.front()?))) else {
                continue;
            };
            let add = |lane: &mut Lane| lane.replace(*id, None, Some(&front));
            queue.lanes.update(ShareId::default(), DominantShare::NONE, add);
            queue.add_needs(&class.charge);
        }
        queue
    }

    pub(super) fn add_needs(&mut self, charge: &Charge) {
        for (resource, amount) in charge.iter().filter(|(_, amount)| *amount > Amount::ZERO) {
            let needs = self.needs.entry(resource.clone()).or_default();
            needs.classes += 1;
            *needs.amounts.entry(*amount).or_default() += 1;
        }
    }

    pub(super) fn remove_needs(&mut self, charge: &Charge) {
        for (resource, amount) in charge.iter().filter(|(_, amount)| *amount > Amount::ZERO) {
            let Some(needs) = self.needs.get_mut(resource) else { continue };
            needs.classes -= 1;
            if let Some(count) = needs.amounts.get_mut(amount) {
                *count -= 1;
                if *count == 0 {
                    needs.amounts.remove(amount);
                }
            }
            if needs.classes == 0 {
                self.needs.remove(resource);
            }
        }
    }

    /// Whether each of the `classes` in the queue asks for a resource of which less is free than the least of them asks for.
    pub(super) fn lacks_the_least_need(&self, ledger: &Ledger, classes: usize) -> bool {
        ledger.lines().iter().any(|line| {
            let Some(needs) = self.needs.get(&line.resource).filter(|needs| needs.classes == classes) else {
                return false;
            };
            let least = needs.amounts.first_key_value();
            least.is_some_and(|(least, _)| line.used().saturating_add(*least) > line.hard)
        })
    }

    /// Whether the same classes wait in both.
    pub(super) fn lists_the_same(&self, all: &Self) -> bool {
        self.needs == all.needs && self.lanes.lists_the_same(&all.lanes)
    }
}
