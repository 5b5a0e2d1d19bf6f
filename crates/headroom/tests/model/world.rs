//! Everything there is: what is stored, what each API server sees of it, and who is doing what.

use std::sync::{Arc, OnceLock};

use sluice_engine::headroom::{Amounts, Budget as HeadroomBudget, Grant, MARK, NativeQuota, Need};
use sluice_engine::{Amount, Charge, Format, Quantity, Resource, ScopeFacts, Uid};
use sluice_headroom::protocol::Opening;

pub const SERVERS: usize = 2;

/// A raise in force, and what it was meant to allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Raised {
    pub run: u8,
    /// What was used when it was written, and the target together.
    pub fit: u8,
    /// Whoever wrote it is gone, or was too late to restore it: tenants may find it after the lock's end.
    pub left: bool,
}

/// A stored ResourceQuota of one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    pub identity: u8,
    pub spec: u8,
    pub hard: u8,
    pub used: u8,
    /// The window whose raise marked it.
    pub mark: Option<u8>,
    /// What `hard` would be without us.
    pub plain: u8,
    pub raised: Option<Raised>,
    /// kube-controller-manager has something to do.
    pub stale: bool,
}

/// What somebody knows of a quota: as it was read, or shown by a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Snapshot {
    pub identity: u8,
    pub spec: u8,
    pub hard: u8,
    pub used: u8,
    pub mark: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    pub nonce: u8,
    pub target: usize,
    /// 2: time for a raise. 1: a raise that was sent may still land, none is sent any more. 0: over.
    pub life: u8,
    /// How far above the specs the raises are that were planned when it was created.
    pub planned: u8,
}

/// What waits in the queue of quota admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Item {
    Tenant,
    Target(usize),
    Drain(u8),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Namespace {
    pub window: Option<Window>,
    pub quotas: Vec<Quota>,
    /// What all tenant pods that were let in take.
    pub tenant: u8,
    /// By server: the window it enforces.
    pub enforced: [Option<u8>; SERVERS],
    /// By server: the quotas it knows.
    pub known: [Vec<Snapshot>; SERVERS],
    pub queues: [Vec<Item>; SERVERS],
    /// By server: tenant pods that passed the policy and are not in the queue yet.
    pub between: [u8; SERVERS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// virt-controller has yet to create it, or to try again.
    Idle,
    /// The API server asks the webhook about it.
    Asking,
    /// In the queue of quota admission.
    Queued,
    Entered,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    pub namespace: usize,
    pub stage: Stage,
    pub tries: u8,
}

/// A write under way of which nobody waits for the answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Orphan {
    Create { namespace: usize, nonce: u8, target: usize },
    Raise { namespace: usize, write: RaiseWrite },
    Restore { namespace: usize, write: RestoreWrite },
}

/// A patch of `status.hard` with its tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RaiseWrite {
    pub run: u8,
    pub quota: usize,
    /// What it tests for.
    pub read: Snapshot,
    pub to: u8,
    /// It marks the quota.
    pub marks: bool,
    pub need: u8,
}

/// A patch that puts `status.hard` back, with its tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RestoreWrite {
    pub quota: usize,
    pub identity: u8,
    pub spec: u8,
    /// The quota has to be as it was listed.
    pub listed: Option<Snapshot>,
}

/// One opening and the state of its I/O.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    pub nonce: u8,
    pub target: usize,
    pub machine: Opening,
    pub is_locked: bool,
    pub looks: bool,
    pub other: Option<u8>,
    pub records: Vec<Snapshot>,
    /// The quotas as they were when it began: what its process knew of them may be as old as that.
    pub remembered: Vec<Snapshot>,
    /// Quota, identity, `status.hard` and `status.used` as they were right after a raise.
    pub raised: Vec<(usize, Snapshot)>,
    /// The record that the next restoring write rests on; `None`: read first.
    pub restoring: Option<Option<Snapshot>>,
    pub drains: Option<u8>,
    pub clearing: Option<Sweep>,
    /// A raise came to nothing, or nobody knows of what.
    pub was_overtaken: bool,
    /// Its target was let go on with room made for it.
    pub has_promised: bool,
}

/// Where a sweep of one namespace is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sweep {
    pub namespace: usize,
    pub step: SweepStep,
    /// The window that was found.
    pub found: Option<u8>,
    /// It has restored something.
    pub restored: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SweepStep {
    Window,
    List,
    /// Whether the window is still the same: then what was listed is not of a later one.
    Look(Vec<RestoreWrite>),
    Restore(Vec<RestoreWrite>),
    Delete,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replica {
    pub alive: bool,
    pub run: Option<Run>,
    pub sweep: Option<Sweep>,
}

/// How often something may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Budget {
    pub tenants: u8,
    pub deletes: u8,
    pub edits: u8,
    pub recreations: u8,
    pub resyncs: u8,
    pub crashes: u8,
    /// Answers that are lost.
    pub losses: u8,
    /// Openings that are still busy when their lock ends.
    pub delays: u8,
    /// Openings that end by themselves before the target is through, or the target before them.
    pub impatience: u8,
}

impl Budget {
    pub fn is_used_up(&self) -> bool {
        *self == Self::default()
    }
}

/// What must never happen, once it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wrong {
    /// A tenant pod was let in that the quota would not have let in without us.
    TenantBeyond,
    /// Out of a raise that was left, tenants took more than the target needed.
    LeftTooMuch,
    RaisedUnproven,
    RaisedOverBudget,
    UnlockedRaised,
    LoweredBelowSpec,
    /// Quota admission refused a target for which an opening has made room and is still there.
    RefusedAfterAdmit,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub namespaces: Vec<Namespace>,
    pub targets: Vec<Target>,
    pub replicas: Vec<Replica>,
    pub orphans: Vec<Orphan>,
    pub budget: Budget,
    pub runs: u8,
    pub crashed: bool,
    /// What tenants took from raises that were left.
    pub taken: u8,
    pub wrong: Option<Wrong>,
}

impl World {
    /// The first thing that goes wrong is kept.
    pub fn blame(&mut self, wrong: Wrong) {
        self.wrong.get_or_insert(wrong);
    }

    /// Whether an opening is carried out by somebody.
    pub fn drives(&self, nonce: u8) -> bool {
        self.replicas.iter().any(|replica| replica.run.as_ref().is_some_and(|run| run.nonce == nonce))
    }
}

impl Namespace {
    pub fn life(&self, nonce: u8) -> u8 {
        self.window.as_ref().filter(|window| window.nonce == nonce).map_or(0, |window| window.life)
    }

    pub fn is_proven(&self, nonce: u8) -> bool {
        self.life(nonce) > 0 && self.enforced.iter().all(|enforced| *enforced == Some(nonce))
    }

    pub fn native(&self) -> Vec<NativeQuota> {
        let quotas = self.quotas.iter().enumerate();
        quotas.map(|(position, quota)| native(position, &quota.snapshot())).collect()
    }

    pub fn overdraft(&self) -> u8 {
        let over = self.quotas.iter().map(|quota| quota.used.saturating_sub(quota.spec));
        over.max().unwrap_or_default()
    }

    /// Whether no API server takes a status from somebody else than Sluice.
    pub fn keeps_status(&self) -> bool {
        self.window.as_ref().is_some_and(|window| self.is_proven(window.nonce))
    }
}

impl Quota {
    pub fn new(spec: u8, used: u8) -> Self {
        Self { identity: 0, spec, hard: spec, used, mark: None, plain: spec, raised: None, stale: false }
    }

    pub fn snapshot(&self) -> Snapshot {
        let Self { identity, spec, hard, used, mark, .. } = *self;
        Snapshot { identity, spec, hard, used, mark }
    }
}

pub fn key() -> Arc<str> {
    static KEY: OnceLock<Arc<str>> = OnceLock::new();
    Arc::clone(KEY.get_or_init(|| "requests.memory".into()))
}

pub fn units(amount: u8) -> Quantity {
    Quantity::from_units(i64::from(amount), Format::DecimalSi)
}

pub fn amounts(amount: u8) -> Amounts {
    Amounts::from([(key(), units(amount))])
}

/// The amount that a quantity of this model stands for.
pub fn count(quantity: &Quantity) -> u8 {
    (0..=u8::MAX).find(|amount| units(*amount) == *quantity).expect("a small amount")
}

/// The amount of the one key of this model.
pub fn amount(amounts: &Amounts) -> u8 {
    count(amounts.get(&key()).expect("the key of the model"))
}

pub fn name(quota: usize) -> Arc<str> {
    format!("q{quota}").into()
}

pub fn position(name: &str) -> usize {
    name.strip_prefix('q').and_then(|position| position.parse().ok()).expect("a quota of the model")
}

pub fn native(position: usize, snapshot: &Snapshot) -> NativeQuota {
    let mut status_hard = amounts(snapshot.hard);
    status_hard.extend(snapshot.mark.map(|_| (Arc::from(MARK), Quantity::ZERO)));
    NativeQuota {
        spec_hard: amounts(snapshot.spec),
        status_hard,
        used: amounts(snapshot.used),
        ..NativeQuota::new(name(position), Uid::parse(&format!("q{position}-{}", snapshot.identity)))
    }
}

pub fn need(amount: u8) -> Need {
    let charge = Charge::from_pairs([(Resource::Memory, Amount::from(units(amount)))]);
    Need::new(charge, ScopeFacts::default())
}

pub fn granted(additional: u8, elsewhere: Option<u8>) -> HeadroomBudget {
    let (source, additional) = (Arc::from("model"), amounts(additional));
    let grant = match elsewhere {
        Some(taken) => Grant::Pool { source, additional, taken_elsewhere: amounts(taken) },
        None => Grant::Amounts { source, additional },
    };
    HeadroomBudget { grants: vec![grant] }
}
