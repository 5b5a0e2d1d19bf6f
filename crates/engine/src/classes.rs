//! Keeping the classes of waiting pods and the accounts' lists of them in step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::book::Book;
use crate::charge::Charge;
use crate::queue::{ClassId, QuotaId, WaitClass, WaitKey};

impl Book {
    pub(crate) fn class_of(&mut self, charge: Arc<Charge>, quotas: Arc<[QuotaId]>) -> ClassId {
        if let Some(id) = self.class_ids.get(&(Arc::clone(&charge), Arc::clone(&quotas))) {
            return *id;
        }
        let id = ClassId(self.next_class);
        self.next_class = self.next_class.wrapping_add(1);
        self.class_ids.insert((Arc::clone(&charge), Arc::clone(&quotas)), id);
        let possible = self.could_fit(&quotas, &charge);
        self.classes.insert(id, WaitClass { charge, quotas, pods: BTreeMap::new(), reason: None, possible });
        id
    }

    fn could_fit(&self, quotas: &[QuotaId], charge: &Charge) -> bool {
        quotas
            .iter()
            .all(|quota| self.accounts.get(quota).is_none_or(|account| account.ledger.could_fit(charge)))
    }

    /// Keeps the accounts' lists of heads right after a class has got another head, and forgets a class that
    /// nobody waits in.
    pub(crate) fn move_head(&mut self, id: ClassId, old_head: Option<WaitKey>) {
        let Some(class) = self.classes.get(&id) else {
            return;
        };
        let new_head = class.head().map(|(key, _)| key.clone());
        for quota in class.quotas.iter() {
            let Some(account) = self.accounts.get_mut(quota) else {
                continue;
            };
            if !class.possible {
                if new_head.is_some() {
                    account.parked.insert(id);
                } else {
                    account.parked.remove(&id);
                }
                continue;
            }
            if old_head == new_head {
                continue;
            }
            if let Some(old) = &old_head {
                account.heads.remove(&(old.clone(), id));
            }
            if let Some(new) = &new_head {
                account.heads.insert((new.clone(), id));
            }
        }
        if new_head.is_none()
            && let Some(class) = self.classes.remove(&id)
        {
            self.class_ids.remove(&(class.charge, class.quotas));
            self.fresh.remove(&id);
        }
    }

    /// The limits of a quota changed: which of its classes could ever fit, and look at all of them again.
    pub(crate) fn review(&mut self, quota: QuotaId) {
        self.woken.insert(quota);
        let Some(account) = self.accounts.get(&quota) else {
            return;
        };
        let mut ids: BTreeSet<ClassId> = account.parked.clone();
        ids.extend(account.heads.iter().map(|(_, id)| *id));
        for id in ids {
            let Some(class) = self.classes.get(&id) else {
                continue;
            };
            let possible = self.could_fit(&class.quotas, &class.charge);
            if possible == class.possible {
                // Even an impossible class may have to be told another reason now.
                if !possible {
                    self.fresh.insert(id);
                }
                continue;
            }
            let Some((head, _)) = class.head().map(|(key, pod)| (key.clone(), pod)) else {
                continue;
            };
            for other in class.quotas.iter() {
                let Some(account) = self.accounts.get_mut(other) else {
                    continue;
                };
                if possible {
                    account.parked.remove(&id);
                    account.heads.insert((head.clone(), id));
                } else {
                    account.heads.remove(&(head.clone(), id));
                    account.parked.insert(id);
                }
                self.woken.insert(*other);
            }
            if let Some(class) = self.classes.get_mut(&id) {
                class.possible = possible;
            }
            self.fresh.insert(id);
        }
    }

    /// Whether the lists of heads, of classes without hope and of held pods are what the classes say. Costs
    /// time in the number of waiting pods: for tests and audits.
    ///
    /// # Errors
    /// Says what differs.
    pub fn audit_queue(&self) -> Result<(), String> {
        for (quota, account) in &self.accounts {
            let classes = || self.classes.iter().filter(|(_, class)| class.quotas.contains(quota));
            let heads: BTreeSet<(WaitKey, ClassId)> = classes()
                .filter(|(_, class)| class.possible)
                .filter_map(|(id, class)| class.head().map(|(key, _)| (key.clone(), *id)))
                .collect();
            let parked: BTreeSet<ClassId> =
                classes().filter(|(_, class)| !class.possible).map(|(id, _)| *id).collect();
            let held: usize = classes().map(|(_, class)| class.pods.len()).sum();
            if heads != account.heads || parked != account.parked || held != account.held {
                return Err(format!("comparing the queue of {quota:?} with its classes: they differ"));
            }
        }
        for (id, class) in &self.classes {
            let named = (Arc::clone(&class.charge), Arc::clone(&class.quotas));
            let possible = self.could_fit(&class.quotas, &class.charge);
            if class.pods.is_empty() || possible != class.possible || self.class_ids.get(&named) != Some(id) {
                return Err(format!("comparing {id:?} with what is known of it: they differ"));
            }
        }
        if self.class_ids.len() != self.classes.len() {
            return Err("counting the classes: some are only known by name".to_owned());
        }
        Ok(())
    }
}
