//! Keeping the classes of waiting pods and the entries' lists of them in step.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ReleaseQueue;
use super::equivalence_class::{EquivalenceClass, Front};
use super::quota_set::QuotaSet;
use super::wait_order::{ClassId, QuotaId};
use super::waiting::Census;
use crate::charge::Charge;

impl ReleaseQueue {
    pub(super) fn class_of(&mut self, charge: Arc<Charge>, quotas: Arc<QuotaSet>) -> ClassId {
        if let Some(id) = self.class_ids.get(&(Arc::clone(&charge), Arc::clone(&quotas))) {
            return *id;
        }
        let id = ClassId(self.next_class);
        self.next_class = self.next_class.wrapping_add(1);
        self.class_ids.insert((Arc::clone(&charge), Arc::clone(&quotas)), id);
        let fits_when_empty = self.could_fit(&quotas, &charge);
        self.classes.insert(id, EquivalenceClass::new(charge, quotas, fits_when_empty));
        id
    }

    fn could_fit(&self, quotas: &[QuotaId], charge: &Charge) -> bool {
        quotas
            .iter()
            .all(|quota| self.entries.get(quota).is_none_or(|entry| entry.ledger().could_fit(charge)))
    }

    /// Updates the lists of the class's entries after a pod was added to the class or removed from it, and removes a class
    /// without pods.
    pub(super) fn move_front(&mut self, id: ClassId, old: Option<&Front>) {
        let Some(class) = self.classes.get(&id) else {
            return;
        };
        let (new, share) = (class.front(), class.quotas.share());
        for quota in class.quotas.iter() {
            let Some(entry) = self.entries.get_mut(quota) else {
                continue;
            };
            if !class.fits_when_empty {
                if new.is_some() {
                    entry.never_fits.insert(id);
                } else {
                    entry.never_fits.remove(&id);
                }
                continue;
            }
            if old == new.as_ref() {
                continue;
            }
            entry.relist((id, share), (old, new.as_ref()), &class.charge, &self.classes);
        }
        if new.is_none()
            && let Some(class) = self.classes.remove(&id)
        {
            self.class_ids.remove(&(class.charge, class.quotas));
            self.fresh.remove(&id);
        }
    }

    /// The limits of a quota changed: which of its classes could ever fit is found out, for some at a time, and all of them
    /// are looked at again. Until then none is released: room may have to be kept for one that could not fit before.
    pub(super) fn begin_review(&mut self, quota: QuotaId) {
        self.wake(quota);
        let Some(entry) = self.entries.get_mut(&quota) else {
            return;
        };
        let never_fits = entry.never_fits.iter().copied();
        let classes: Vec<ClassId> = never_fits.chain(entry.heads.iter().map(|(_, id)| *id)).collect();
        self.reviews.retain(|other| *other != quota);
        if !classes.is_empty() {
            self.reviews.push_back(quota);
        }
        entry.rest.review = Some(classes).filter(|classes| !classes.is_empty());
    }

    /// Goes on with a review, for at most so many classes; then it is another quota's turn.
    pub(super) fn go_on_reviewing(&mut self, most: usize) -> usize {
        let Some(quota) = self.reviews.pop_front() else { return 0 };
        let entry = self.entries.get_mut(&quota);
        let Some(classes) = entry.and_then(|entry| entry.rest.review.as_mut()) else { return 0 };
        let now = classes.split_off(classes.len().saturating_sub(most));
        let is_done = classes.is_empty();
        for id in &now {
            self.review(*id);
            let share = self.classes.get(id).map(|class| class.quotas.share());
            if let Some((entry, share)) = self.entries.get_mut(&quota).zip(share) {
                entry.rank(share);
            }
        }
        // What they are told may change, whether they fit or not.
        if let Some(entry) = self.entries.get_mut(&quota) {
            entry.rest.later.extend(&now);
        }
        if is_done {
            self.end_rest(quota, |rest| rest.review = None);
        } else {
            self.reviews.push_back(quota);
        }
        now.len()
    }

    fn review(&mut self, id: ClassId) {
        let Some(class) = self.classes.get(&id) else {
            return;
        };
        let fits_when_empty = self.could_fit(&class.quotas, &class.charge);
        let Some(front) = class.front().filter(|_| fits_when_empty != class.fits_when_empty) else {
            return;
        };
        let (quotas, charge) = (Arc::clone(&class.quotas), Arc::clone(&class.charge));
        let named = (id, quotas.share());
        for other in quotas.iter() {
            let Some(entry) = self.entries.get_mut(other) else {
                continue;
            };
            if fits_when_empty {
                entry.never_fits.remove(&id);
                entry.relist(named, (None, Some(&front)), &charge, &self.classes);
            } else {
                entry.relist(named, (Some(&front), None), &charge, &self.classes);
                entry.never_fits.insert(id);
            }
            self.wake(*other);
        }
        if let Some(class) = self.classes.get_mut(&id) {
            class.fits_when_empty = fits_when_empty;
        }
        if !fits_when_empty {
            self.give_turn_up(id);
        }
    }

    /// Whether the lists of heads, of classes without hope and of held pods are what the classes say. Costs
    /// time in the number of waiting pods: for tests.
    ///
    /// # Errors
    /// Says what differs.
    pub fn audit_queue(&self) -> Result<(), String> {
        for (quota, entry) in &self.entries {
            let classes = || self.classes.iter().filter(|(_, class)| class.quotas.contains(quota));
            let mut lists = entry.emptied();
            for (id, class) in classes() {
                match class.front() {
                    Some(front) if class.fits_when_empty => {
                        let named = (*id, class.quotas.share());
                        lists.relist(named, (None, Some(&front)), &class.charge, &self.classes);
                    }
                    _ => drop(lists.never_fits.insert(*id)),
                }
            }
            let waiting: BTreeSet<_> = classes()
                .flat_map(|(_, class)| class.ranked().map(|(_, key, pod)| (key.created, pod)))
                .collect();
            if !entry.lists_the_same(&lists) || waiting != entry.waiting {
                return Err(format!("comparing the queue of {quota:?} with its classes: they differ"));
            }
            if !entry.is_in_order() {
                return Err(format!(
                    "comparing the order of shares of {quota:?} with their sums: they differ"
                ));
            }
        }
        for (id, class) in &self.classes {
            let named = (Arc::clone(&class.charge), Arc::clone(&class.quotas));
            let fits_when_empty = self.could_fit(&class.quotas, &class.charge);
            let entries = class.quotas.iter().filter_map(|quota| self.entries.get(quota));
            let is_to_be_reviewed =
                entries.filter_map(|it| it.rest.review.as_ref()).any(|it| it.contains(id));
            if class.pods().len() == 0
                || fits_when_empty != class.fits_when_empty && !is_to_be_reviewed
                || self.class_ids.get(&named) != Some(id)
            {
                return Err(format!("comparing {id:?} with what is known of it: they differ"));
            }
        }
        let mut census = Census::default();
        self.classes.values().for_each(|class| census.add(class.wait_reason(), class.pods().len()));
        if census != self.census {
            return Err("counting the pods that wait, by reason: the sums differ".to_owned());
        }
        if self.class_ids.len() != self.classes.len() {
            return Err("counting the classes: some are only known by name".to_owned());
        }
        Ok(())
    }
}
