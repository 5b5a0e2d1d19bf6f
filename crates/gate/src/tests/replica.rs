//! A process that is fed by watches, each as late as it likes.

use serde_json::Value;
use sluice_engine::{Amount, ChargeRules, Claim, QuotaId};
use sluice_index::Targeting;

use super::evaluator::content_of;
use super::own_namespace;
use super::server::{Change, GATE, KINDS, Kind, Server, wire};
use super::step::Trouble;
use crate::recorder::stamp::Stamp;
use crate::{AuditCursor, AuditFinding, GateConfig, Moment, State};

/// For how long a leader that was replaced goes on when two act at once.
const DEPOSED_MS: u64 = 10_000;

pub struct Replica {
    pub state: State,
    /// How much of the log each watch has delivered, by [`Kind`].
    pub cursors: [usize; KINDS.len()],
    pub leads: bool,
    /// Lists that are handed on piece by piece, by [`Kind`].
    pub listings: [Option<Listing>; KINDS.len()],
    /// It leads as soon as it has seen so much: what there was when it got the lease.
    pub catches_up: Option<usize>,
    /// The leader before it had nothing under way.
    pub is_handed_over: bool,
    pub deposed_at: Option<u64>,
    /// Pods that watches have shown and that the next evaluators were not asked about; `None`: there are none.
    pub unread: Option<Vec<Value>>,
}

/// The objects that there were at some moment, in pages.
pub struct Listing {
    objects: std::vec::IntoIter<Value>,
    cursor: usize,
}

/// `number` tells the process from all others.
fn fresh(number: usize) -> State {
    let mut config = GateConfig::new(GATE, ChargeRules::for_minor(36));
    config.charge_spacing_ms = 0;
    // One takes its time, the other none.
    config.reclassified_pods = if number.is_multiple_of(2) { 1 } else { 1_000 };
    let mut state = State::new(config, Targeting::new(kube::core::Selector::default(), own_namespace()));
    state.set_stamp(Stamp::numbered(number as u64));
    state
}

impl Replica {
    /// A new process: it lists, and knows nothing else.
    pub fn new(number: usize, server: &Server, leads: bool, now: Moment) -> Self {
        let cursor = server.log.len();
        let mut new = Self {
            state: fresh(number),
            cursors: [cursor; KINDS.len()],
            leads,
            listings: Default::default(),
            catches_up: leads.then_some(cursor),
            is_handed_over: false,
            deposed_at: None,
            unread: None,
        };
        server.tell(&mut new.state, now);
        // Pods come last only by chance: the lists are not in any order.
        for kind in KINDS {
            new.relist(server, kind);
        }
        for kind in KINDS.into_iter().rev() {
            new.deliver(server, kind, usize::MAX, now);
        }
        new
    }

    /// A deposed leader goes on for a while: it has not noticed yet.
    pub fn acts(&self, trouble: Trouble, now: Moment) -> bool {
        let is_recent = |since: u64| now.mono_ms < since + DEPOSED_MS;
        self.leads || trouble != Trouble::Expiry && self.deposed_at.is_some_and(is_recent)
    }

    pub fn relist(&mut self, server: &Server, kind: Kind) {
        let objects: Vec<Value> = server.all(kind, "").map(|(_, object)| object.clone()).collect();
        match kind {
            Kind::Pod => self.state.begin_pods(),
            Kind::Namespace => self.state.begin_namespaces(),
            Kind::Quota => self.state.begin_quotas(),
            Kind::ClusterQuota => self.state.begin_cluster_quotas(),
            Kind::Charge => self.state.begin_charges(),
            Kind::Machine => self.state.begin_machines(),
            Kind::Permission => {}
        }
        self.listings[kind as usize] =
            Some(Listing { objects: objects.into_iter(), cursor: server.log.len() });
    }

    pub fn deliver(&mut self, server: &Server, kind: Kind, count: usize, now: Moment) {
        if let Some(listing) = &mut self.listings[kind as usize] {
            for object in listing.objects.by_ref().take(count) {
                if kind == Kind::Quota {
                    self.state.apply_listed_quota(&wire(object), now);
                } else {
                    self.unread
                        .iter_mut()
                        .filter(|_| kind == Kind::Pod)
                        .for_each(|it| it.push(object.clone()));
                    see(&mut self.state, &Change { kind, is_gone: false, object }, now);
                }
            }
            if listing.objects.len() == 0 {
                self.cursors[kind as usize] = listing.cursor;
                self.listings[kind as usize] = None;
                self.end_list(kind, now);
            }
        }
        if self.listings[kind as usize].is_none() {
            let cursor = &mut self.cursors[kind as usize];
            let until = cursor.saturating_add(count).min(server.log.len());
            for change in server.log[*cursor..until].iter().filter(|change| change.kind == kind) {
                let is_there = kind == Kind::Pod && !change.is_gone;
                self.unread.iter_mut().filter(|_| is_there).for_each(|it| it.push(change.object.clone()));
                see(&mut self.state, change, now);
            }
            *cursor = until;
        }
        let has_seen = |wanted| KINDS.into_iter().all(|kind| self.has_seen(server, kind, wanted));
        if self.catches_up.is_some_and(has_seen) {
            self.catches_up = None;
            match self.is_handed_over {
                true => self.state.lead_after_handover(now),
                false => self.state.lead(now),
            }
        }
    }

    /// Whether it has seen all that there was of a kind when the log was so long.
    pub fn has_seen(&self, server: &Server, kind: Kind, wanted: usize) -> bool {
        let late = server.log.get(self.cursors[kind as usize]..wanted).unwrap_or_default();
        self.listings[kind as usize].is_none() && late.iter().all(|change| change.kind != kind)
    }

    fn end_list(&mut self, kind: Kind, now: Moment) {
        match kind {
            Kind::Pod => self.state.end_pods(),
            Kind::Namespace => self.state.end_namespaces(now),
            Kind::Quota => self.state.end_quotas(now),
            Kind::ClusterQuota => self.state.end_cluster_quotas(now),
            Kind::Charge => self.state.end_charges(now),
            Kind::Machine => self.state.end_machines(now),
            Kind::Permission => {}
        }
    }

    /// The sums are those of the pods at any time.
    pub fn check(&mut self, trouble: Trouble, now: Moment) {
        let namespaces: Vec<_> = self.state.index().1.iter().map(|(id, _)| id).collect();
        for namespace in namespaces {
            let mut place = AuditCursor::default();
            let found = loop {
                let found = self.state.audit(namespace, &mut place, now);
                if found != AuditFinding::More {
                    break found;
                }
            };
            assert_eq!(found, AuditFinding::Right, "incremental sums differ from recomputed ones");
        }
        self.state.check_held();
        // No room is ever kept on account of a leader that there is not.
        if trouble == Trouble::ScribbledStatus {
            let is_in_flight = self.state.index().2.iter().any(|(quota, _)| is_in_flight(&self.state, quota));
            assert!(!is_in_flight, "the only leader takes its own charges for another's");
        }
    }
}

/// Whether room of a quota is kept on account of another leader.
pub fn is_in_flight(state: &State, quota: QuotaId) -> bool {
    let lines = state.queue().ledger(quota).map(|ledger| ledger.lines()).unwrap_or_default();
    lines.iter().any(|line| line.claimed(Claim::InFlight) != Amount::ZERO)
}

/// A watch has shown a change.
pub fn see(state: &mut State, change: &Change, now: Moment) {
    let object = change.object.clone();
    match (change.kind, change.is_gone) {
        (Kind::Pod, false) => {
            let hash = content_of(&object);
            state.apply_pod_of(&object, hash, now);
            super::shadow::see(state, &object, hash);
        }
        (Kind::Pod, true) => state.delete_pod(&wire(object)),
        (Kind::Namespace, false) => state.apply_namespace(&wire(object), now),
        (Kind::Namespace, true) => state.delete_namespace(&wire(object), now),
        (Kind::Quota, false) => state.apply_watched_quota(&wire(object), now),
        (Kind::Quota, true) => state.delete_watched_quota(&wire(object), now),
        (Kind::ClusterQuota, false) => state.apply_cluster_quota(&wire(object), now),
        (Kind::ClusterQuota, true) => state.delete_cluster_quota(&wire(object), now),
        (Kind::Charge, false) => state.apply_charge(&wire(object), now),
        (Kind::Charge, true) => state.delete_charge(&wire(object), now),
        (Kind::Machine, false) => state.apply_machine(&wire(object), now),
        (Kind::Machine, true) => state.delete_machine(&wire(object), now),
        (Kind::Permission, _) => state.allow_cluster_quotas(object["allowed"] == true, now),
    }
}
