//! Everything there is: what is stored, what each cache and watch shows of it, and what is under way.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use sluice_engine::headroom::{Amounts, MARK, NativeQuota, Need};
use sluice_engine::{Amount, Charge, Format, Quantity, Resource, ScopeFacts, Uid};
use sluice_headroom::protocol::{QuotaRef, Rests, WindowSession};

use crate::looks::Read;

/// Seconds of a step of the clock.
pub const TICK: i64 = 7;

/// What a raise was meant to allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Room {
    /// What was used when it was written.
    pub base: u8,
    pub need: u8,
}

/// A ResourceQuota as it is stored, or as a cache shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    pub version: u8,
    pub spec: u8,
    pub hard: u8,
    pub used: u8,
    pub mark: Option<i64>,
    /// Whether a second key is in `spec.hard`, `status.hard` and `status.used`.
    pub second: [bool; 3],
    /// When its spec was last written, as [`World::clock`] counts.
    pub since: u8,
    /// What `hard` would be without Sluice.
    pub plain: u8,
    /// kube-controller-manager has something to do.
    pub stale: bool,
    pub room: Option<Room>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// virt-controller has yet to create it, or to try again.
    Idle,
    /// The API server waits for Sluice's webhook and for another one.
    Asking {
        ours: bool,
        sibling: bool,
    },
    /// Quota admission is next.
    Quota,
    In,
}

impl Stage {
    pub fn is_asking(self) -> bool {
        matches!(self, Self::Asking { .. })
    }

    /// Sluice's webhook has answered, or is not asked.
    pub fn answered(self) -> Self {
        match self {
            Self::Asking { sibling: true, .. } => Self::Quota,
            Self::Asking { sibling: false, .. } => Self::Asking { ours: true, sibling: false },
            other => other,
        }
    }
}

/// What has become of a migration whose target exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    UnderWay,
    /// The machine runs in the target, and its source has ended.
    Moved,
    /// The migration is over, and the target is still there beside the source.
    Left,
}

/// A target pod. It is created through the first API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    pub namespace: usize,
    /// The process whose webhook was asked last.
    pub process: usize,
    pub stage: Stage,
    pub posted_at: u8,
    pub tries: u8,
    /// Its session has made room and let it in, and nothing has gone wrong since.
    pub promised: bool,
    pub fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flight {
    Idle,
    /// It has passed the pods' policy at this API server, and waits for a slow webhook or in the queue of quota admission.
    Passed {
        server: usize,
        /// Room was already promised to a target then.
        late: bool,
    },
    Done,
}

/// A pod of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thief {
    pub namespace: usize,
    pub size: u8,
    pub flight: Flight,
    /// When it was let in.
    pub since: Option<u8>,
}

/// A raise on its way to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RaiseWrite {
    pub namespace: usize,
    pub quota: usize,
    pub version: u8,
    pub to: u8,
    pub mark: i64,
    /// Something was granted when the session began.
    pub granted: bool,
    /// What was above the quota was explained when the session looked.
    pub explained: bool,
}

/// One session and the state of its I/O.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    pub id: u8,
    pub process: usize,
    pub target: usize,
    pub machine: WindowSession,
    pub read: Read,
    /// The quotas of the namespace as they were read or written last.
    pub records: Vec<Quota>,
    /// Whether what was above each quota was explained when it was looked at last.
    pub explained: Vec<bool>,
    pub granted: bool,
    pub locked_at: u8,
    pub let_in_at: Option<u8>,
    /// How many tries the target had left at the attempt that this is for, and at a later one that uses the same raise.
    pub attempts: (u8, Option<u8>),
    pub renewed: bool,
    /// virt-controller has tried again.
    pub denied: bool,
    /// It was held up longer than its waits allow.
    pub delayed: bool,
}

impl Run {
    /// Whether it has asked for nothing yet.
    pub fn is_new(&self) -> bool {
        self.records.is_empty() && self.read == Read::Nothing
    }

    /// Whether it is for the present attempt to create its target.
    pub fn is_for(&self, target: &Target) -> bool {
        self.attempts.0 == target.tries || self.attempts.1 == Some(target.tries)
    }
}

/// What a process of Sluice knows: each watch lags by itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    pub quotas: Vec<Vec<Quota>>,
    pub seen: Vec<bool>,
    pub granted: bool,
    /// What it remembers of locks, where the model has rests.
    pub rests: Rests,
    /// States of the quotas that its watch has yet to show, in their order, where the model has rests.
    pub events: VecDeque<Vec<Vec<Quota>>>,
    /// It remembers no lock from before its start.
    pub restarted: bool,
}

/// How often something may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Budget {
    pub crashes: u8,
    /// Targets that the other webhook refuses.
    pub denials: u8,
    /// Steps of the clock while a session or the API server has something to do.
    pub delays: u8,
    /// Raises of which the answer is lost.
    pub losses: u8,
    /// Settling that is given up.
    pub impatience: u8,
    pub edits: u8,
    /// Second keys that the administrator adds.
    pub keys: u8,
    /// Targets that are left where their migrations end.
    pub leftovers: u8,
    /// Migrations that succeed.
    pub moves: u8,
    /// Pods of tenants that are deleted.
    pub frees: u8,
    pub nudges: u8,
    /// Syncs of kube-controller-manager without a cause.
    pub resyncs: u8,
    /// Grants that are taken away.
    pub revokes: u8,
}

/// What must never happen, once it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wrong {
    ThiefInLiveRaise,
    ThiefInEndedRaise,
    ThiefAfterSettle,
    LeakTooLarge,
    BeyondGrant,
    LockWithoutGrant,
    TargetRefused,
    EditUndone,
    UsageUnknown,
    EnteredUnseen,
    Unexplained,
    FalselyTaken,
    OpenedInRest,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub clock: u8,
    pub quotas: Vec<Vec<Quota>>,
    /// By API server; the pods' policy and quota admission share them.
    pub caches: Vec<Vec<Vec<Quota>>>,
    pub processes: Vec<Process>,
    pub targets: Vec<Target>,
    pub thieves: Vec<Thief>,
    /// What the pods of each namespace take.
    pub actual: Vec<u8>,
    pub runs: Vec<Run>,
    /// What sweeps have read: namespace, quota and how it was. There are several while one leader follows another.
    pub sweeping: Vec<(usize, usize, Quota)>,
    pub orphans: Vec<RaiseWrite>,
    pub granted: bool,
    /// Of each namespace, what was used when it was locked, and when a lock of it ended in vain last.
    pub locks: Vec<(Option<u8>, Option<u8>)>,
    pub budget: Budget,
    pub sessions: u8,
    /// What pods took above the specs that no promise was made to.
    pub taken: u8,
    pub wrong: Option<Wrong>,
}

impl World {
    /// The first thing that goes wrong is kept.
    pub fn blame(&mut self, wrong: Wrong) {
        self.wrong.get_or_insert(wrong);
    }

    pub fn now_ms(&self) -> i64 {
        i64::from(self.clock) * TICK * 1000
    }

    /// Whether a mark is over for the policies.
    pub fn is_over(&self, mark: i64) -> bool {
        i64::from(self.clock) * TICK >= mark / 1000
    }

    pub fn is_live(&self, quota: &Quota) -> bool {
        quota.mark.is_some_and(|mark| !self.is_over(mark))
    }

    /// What targets of a namespace take whose migrations are under way.
    pub fn passing(&self, namespace: usize, need: u8) -> u8 {
        need * self.count(namespace, Fate::UnderWay)
    }

    pub fn count(&self, namespace: usize, fate: Fate) -> u8 {
        self.inside(namespace).map(|target| u8::from(target.fate == fate)).sum()
    }

    /// Virtual machines that run in a namespace and are migrated.
    pub fn machines(&self, namespace: usize) -> u8 {
        self.targets.iter().map(|target| u8::from(target.namespace == namespace)).sum()
    }

    pub fn inside(&self, namespace: usize) -> impl Iterator<Item = &Target> {
        self.targets.iter().filter(move |it| it.namespace == namespace && it.stage == Stage::In)
    }

    /// Nothing that was promised has to be kept.
    pub fn excuse(&mut self) {
        self.targets.iter_mut().for_each(|target| target.promised = false);
    }
}

impl Quota {
    pub fn new(spec: u8, used: u8) -> Self {
        let second = [false; 3];
        Self {
            version: 0,
            spec,
            hard: spec,
            used,
            mark: None,
            second,
            since: 0,
            plain: spec,
            stale: false,
            room: None,
        }
    }

    /// What is used above the spec on behalf of targets, or will be. `machines`:
    /// what targets take, also those that are left.
    pub fn overdraft(&self, machines: u8) -> u8 {
        if self.mark.is_some() {
            return self.used.max(self.hard).saturating_sub(self.spec);
        }
        self.used.saturating_sub(self.spec).min(machines)
    }

    /// What is enforced without Sluice, now or after the next sync.
    pub fn own(&self) -> u8 {
        self.plain.max(self.spec)
    }

    pub fn written(&mut self) {
        self.version += 1;
    }
}

fn text(cell: &'static OnceLock<Arc<str>>, text: &str) -> Arc<str> {
    Arc::clone(cell.get_or_init(|| text.into()))
}

pub fn key() -> Arc<str> {
    static KEY: OnceLock<Arc<str>> = OnceLock::new();
    text(&KEY, "requests.memory")
}

pub fn second_key() -> Arc<str> {
    static KEY: OnceLock<Arc<str>> = OnceLock::new();
    text(&KEY, "limits.memory")
}

fn mark_key() -> Arc<str> {
    static KEY: OnceLock<Arc<str>> = OnceLock::new();
    text(&KEY, MARK)
}

pub fn units(amount: i64) -> Quantity {
    Quantity::from_units(amount, Format::DecimalSi)
}

/// The amount that a quantity of this model stands for.
pub fn count(quantity: &Quantity) -> u8 {
    u8::try_from(quantity.nanos() / units(1).nanos()).expect("a small amount")
}

fn amounts(amount: u8, second: bool) -> Amounts {
    let second = second.then(|| (second_key(), units(1)));
    [(key(), units(amount.into()))].into_iter().chain(second).collect()
}

pub fn additional(amount: u8) -> Amounts {
    amounts(amount, false)
}

pub fn position(name: &str) -> usize {
    name.strip_prefix('q').and_then(|position| position.parse().ok()).expect("a quota of the model")
}

pub fn reference(position: usize) -> QuotaRef {
    QuotaRef { name: format!("q{position}").into(), uid: Uid::parse(&format!("uid-{position}")) }
}

pub fn native(position: usize, quota: &Quota) -> NativeQuota {
    let QuotaRef { name, uid } = reference(position);
    let mark = quota.mark.map(|mark| (mark_key(), units(mark)));
    let mut status_hard = amounts(quota.hard, quota.second[1]);
    status_hard.extend(mark.clone());
    let mut used = amounts(quota.used, quota.second[2]);
    used.extend(mark);
    NativeQuota {
        spec_since: quota.since.into(),
        spec_hard: amounts(quota.spec, quota.second[0]),
        status_hard,
        used,
        ..NativeQuota::new(name, uid)
    }
}

pub fn natives(quotas: &[Quota]) -> Vec<NativeQuota> {
    quotas.iter().enumerate().map(|(position, quota)| native(position, quota)).collect()
}

pub fn need(amount: u8) -> Need {
    let charge = Charge::from_pairs([(Resource::Memory, Amount::from(units(amount.into())))]);
    Need::new(charge, ScopeFacts::default())
}
