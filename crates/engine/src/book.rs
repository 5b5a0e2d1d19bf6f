//! All ledgers and all waiting pods, and the decision which of them to release.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

use crate::account::Account;
use crate::charge::{Amount, Charge};
use crate::ledger::{Claim, Ledger};
use crate::queue::{ClassId, PodId, QuotaId, Reason, WaitClass, WaitKey};
use crate::resource::Resource;

/// What a decision says about a pod or a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The pod fits; its charge is now [`Claim::Assumed`] in each of its quotas and it waits no more.
    Release {
        /// The pod.
        pod: PodId,
        /// What it takes.
        charge: Arc<Charge>,
        /// From which quotas.
        quotas: Arc<[QuotaId]>,
    },
    /// The class was looked at and does not fit, for another reason than the last time.
    Held {
        /// The class.
        class: ClassId,
        /// Nobody in it was told anything yet.
        first: bool,
    },
}

/// The ledgers of all quotas and the queue of waiting pods.
///
/// One value holds everything that a release depends on, so that two namespaces that share a quota cannot
/// both be given its last room.
#[derive(Debug, Default)]
pub struct Book {
    pub(crate) accounts: HashMap<QuotaId, Account>,
    pub(crate) classes: HashMap<ClassId, WaitClass>,
    pub(crate) class_ids: HashMap<(Arc<Charge>, Arc<[QuotaId]>), ClassId>,
    pub(crate) next_class: u32,
    /// Quotas that may have got room since the last decision.
    pub(crate) woken: HashSet<QuotaId>,
    /// Classes that have a pod that was not looked at yet.
    pub(crate) fresh: BTreeSet<ClassId>,
}

impl Book {
    /// Opens or replaces the account of a quota with an empty ledger.
    pub fn open(&mut self, quota: QuotaId, ledger: Ledger) {
        self.accounts.entry(quota).or_default().ledger = ledger;
        self.review(quota);
    }

    /// Closes an account. Pods that wait for the quota have to leave before.
    pub fn close(&mut self, quota: QuotaId) {
        self.accounts.remove(&quota);
        self.woken.remove(&quota);
    }

    /// The ledger of a quota.
    #[must_use]
    pub fn ledger(&self, quota: QuotaId) -> Option<&Ledger> {
        self.accounts.get(&quota).map(|account| &account.ledger)
    }

    /// How many pods wait for this quota.
    #[must_use]
    pub fn held(&self, quota: QuotaId) -> usize {
        self.accounts.get(&quota).map_or(0, |account| account.held)
    }

    /// A class of waiting pods.
    #[must_use]
    pub fn class(&self, class: ClassId) -> Option<&WaitClass> {
        self.classes.get(&class)
    }

    /// Takes over other limits; false if the ledger has to be made anew (see [`Ledger::replace_hard`]).
    #[must_use]
    pub fn replace_hard(
        &mut self,
        quota: QuotaId,
        hard: impl IntoIterator<Item = (Resource, Amount)>,
    ) -> bool {
        let kept = self.accounts.get_mut(&quota).is_some_and(|account| account.ledger.replace_hard(hard));
        if kept {
            self.review(quota);
        }
        kept
    }

    /// A pod begins to wait. `quotas` must be sorted and not empty, and each must be open.
    pub fn wait(&mut self, pod: PodId, key: WaitKey, charge: Arc<Charge>, quotas: Arc<[QuotaId]>) -> ClassId {
        let id = self.class_of(charge, quotas);
        let Some(class) = self.classes.get_mut(&id) else {
            return id;
        };
        let old_head = class.head().map(|(key, _)| key.clone());
        class.pods.insert(key, pod);
        // Room that is kept for another pod is not kept from one that comes before it.
        if class.reason.as_ref().is_none_or(|reason| reason.behind.is_some()) {
            self.fresh.insert(id);
        }
        for quota in class.quotas.iter() {
            if let Some(account) = self.accounts.get_mut(quota) {
                account.held += 1;
            }
        }
        self.move_head(id, old_head);
        id
    }

    /// A pod waits no more (deleted, changed, or no longer to be held). Returns whether it did wait.
    pub fn leave(&mut self, id: ClassId, key: &WaitKey) -> bool {
        let Some(class) = self.classes.get_mut(&id) else {
            return false;
        };
        let old_head = class.head().map(|(key, _)| key.clone());
        let was_head = old_head.as_ref() == Some(key);
        if class.pods.remove(key).is_none() {
            return false;
        }
        let quotas = Arc::clone(&class.quotas);
        for quota in quotas.iter() {
            if let Some(account) = self.accounts.get_mut(quota) {
                account.held = account.held.saturating_sub(1);
                // A head may have kept room for itself that others can have now.
                if was_head {
                    self.woken.insert(*quota);
                }
            }
        }
        self.move_head(id, old_head);
        true
    }

    /// Whether there is anything to decide.
    #[must_use]
    pub fn has_news(&self) -> bool {
        !self.woken.is_empty() || !self.fresh.is_empty()
    }

    /// Looks again at everybody who waits for this quota, at the next decision.
    pub fn wake(&mut self, quota: QuotaId) {
        self.woken.insert(quota);
    }

    /// Releases, in order, every pod that fits; smaller ones may pass a head that does not fit, unless that
    /// head has waited since before `patience_since` (seconds since the epoch): then room is kept for it.
    ///
    /// Looks only at the classes of quotas that may have got room and at newly arrived pods.
    pub fn decide(&mut self, patience_since: i64) -> Vec<Decision> {
        let mut candidates: BinaryHeap<Reverse<(WaitKey, ClassId)>> = BinaryHeap::new();
        let mut seen: HashSet<ClassId> = HashSet::new();
        for quota in std::mem::take(&mut self.woken) {
            let Some(account) = self.accounts.get(&quota) else {
                continue;
            };
            for (key, class) in &account.heads {
                if seen.insert(*class) {
                    candidates.push(Reverse((key.clone(), *class)));
                }
            }
        }
        for class in std::mem::take(&mut self.fresh) {
            if let Some((key, _)) = self.classes.get(&class).and_then(WaitClass::head)
                && seen.insert(class)
            {
                candidates.push(Reverse((key.clone(), class)));
            }
        }
        let mut decisions = Vec::new();
        while let Some(Reverse((_, id))) = candidates.pop() {
            let Some(reason) = self.reason_to_hold(id, patience_since) else {
                let Some(released) = self.release_head(id) else { continue };
                decisions.push(released);
                if let Some((key, _)) = self.classes.get(&id).and_then(WaitClass::head) {
                    candidates.push(Reverse((key.clone(), id)));
                }
                continue;
            };
            let Some(class) = self.classes.get_mut(&id) else { continue };
            let told = class.reason.as_ref().is_some_and(|old| old.says_the_same(&reason));
            let first = class.reason.replace(reason).is_none();
            if !told {
                decisions.push(Decision::Held { class: id, first });
            }
        }
        decisions
    }

    fn release_head(&mut self, id: ClassId) -> Option<Decision> {
        let class = self.classes.get(&id)?;
        let (charge, quotas) = (Arc::clone(&class.charge), Arc::clone(&class.quotas));
        let (key, pod) = class.head().map(|(key, pod)| (key.clone(), pod))?;
        let woken_before: Vec<QuotaId> = quotas.iter().filter(|q| self.woken.contains(q)).copied().collect();
        self.leave(id, &key);
        // The head leaves because it takes its room, so nobody else got any.
        for quota in quotas.iter().filter(|q| !woken_before.contains(q)) {
            self.woken.remove(quota);
        }
        self.apply(Claim::Assumed, &quotas, &charge);
        Some(Decision::Release { pod, charge, quotas })
    }

    fn reason_to_hold(&self, id: ClassId, patience_since: i64) -> Option<Reason> {
        let class = self.classes.get(&id)?;
        let (key, _) = class.head()?;
        for quota in class.quotas.iter() {
            let Some(account) = self.accounts.get(quota) else {
                continue;
            };
            let excess = account.ledger.excess(&class.charge, None);
            if !excess.is_empty() {
                return Some(Reason { quota: *quota, excess, behind: None });
            }
        }
        for quota in class.quotas.iter() {
            let Some(account) = self.accounts.get(quota) else {
                continue;
            };
            let Some((first, ahead)) = account.heads.first() else {
                continue;
            };
            if *ahead == id || first >= key || first.created > patience_since {
                continue;
            }
            let Some(ahead) = self.classes.get(ahead) else {
                continue;
            };
            let excess = account.ledger.excess(&class.charge, Some(&ahead.charge));
            if !excess.is_empty() {
                return Some(Reason { quota: *quota, excess, behind: ahead.head().map(|(_, pod)| pod) });
            }
        }
        None
    }
}
