//! The queue in a run of random steps, beside a world that is kept the simple way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use sluice_engine::{
    Amount, Charge, Claim, ClassId, Deadline, Decision, Ledger, Patience, PodId, QuotaId, QuotaSet,
    ReleaseQueue, Resource, ShareId, WaitKey,
};

use crate::{ALL, QUOTAS, charge, key, ledger, share_of, units};

/// Each of them may take from each quota.
const SHARES: u32 = 3;

/// So long pods are patient.
const LIMIT: u64 = 4;

/// Whatever there is to decide is decided in fewer looks.
const ENOUGH: usize = 10_000;

#[derive(Clone, Debug)]
pub enum Step {
    Wait {
        priority: i32,
        created: i64,
        since: u64,
        cpu: i128,
        memory: i128,
        quotas: u8,
        share: u32,
    },
    Leave {
        at: usize,
    },
    /// A deadline of a pod that waits is near, or none is.
    Hasten {
        at: usize,
        deadline: Option<i64>,
    },
    End {
        at: usize,
    },
    Confirm {
        at: usize,
    },
    /// A pod that waits is seen released by another one.
    Arrive {
        at: usize,
    },
    /// A pod that waits goes without a question.
    LetGo {
        at: usize,
    },
    Hard {
        quota: u32,
        cpu: i128,
        memory: i128,
    },
    /// The moment since which none is patient any more comes so much nearer.
    Decide {
        later: u64,
        looks: usize,
    },
    /// Once, however much is left to decide.
    DecideSome {
        looks: usize,
    },
    Pause {
        quota: u32,
    },
    Resume {
        quota: u32,
    },
}

pub fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..3, 0..50i64, 1..50u64, 0..6i128, 0..4i128, 1..8u8, 0..SHARES)
            .prop_map(|(priority, created, since, cpu, memory, quotas, share)| {
                Step::Wait { priority, created, since, cpu, memory, quotas, share }
            }),
        2 => any::<usize>().prop_map(|at| Step::Leave { at }),
        2 => (any::<usize>(), proptest::option::of(0..4i64))
            .prop_map(|(at, deadline)| Step::Hasten { at, deadline }),
        3 => any::<usize>().prop_map(|at| Step::End { at }),
        2 => any::<usize>().prop_map(|at| Step::Confirm { at }),
        1 => any::<usize>().prop_map(|at| Step::Arrive { at }),
        1 => any::<usize>().prop_map(|at| Step::LetGo { at }),
        1 => (0..QUOTAS, 0..12i128, 0..12i128)
            .prop_map(|(quota, cpu, memory)| Step::Hard { quota, cpu, memory }),
        4 => (0..20u64, 1..4usize).prop_map(|(later, looks)| Step::Decide { later, looks }),
        2 => (1..4usize).prop_map(|looks| Step::DecideSome { looks }),
        1 => (0..QUOTAS).prop_map(|quota| Step::Pause { quota }),
        1 => (0..QUOTAS).prop_map(|quota| Step::Resume { quota }),
    ]
}

#[derive(Clone, Debug)]
struct Waiting {
    key: WaitKey,
    since: u64,
    class: ClassId,
    charge: Arc<Charge>,
    quotas: Arc<QuotaSet>,
}

#[derive(Clone, Debug)]
struct Released {
    claim: Claim,
    charge: Arc<Charge>,
    quotas: Arc<QuotaSet>,
}

/// The queue, and beside it everything that is true of it, kept the simple way.
pub struct World {
    queue: ReleaseQueue,
    hard: Vec<(i128, i128)>,
    waiting: BTreeMap<PodId, Waiting>,
    /// Of every pod that has ever waited.
    classes: BTreeMap<PodId, ClassId>,
    released: BTreeMap<PodId, Released>,
    next: u32,
    impatient_since: u64,
    paused: BTreeSet<QuotaId>,
    shared: BTreeSet<QuotaId>,
    /// Every decision so far.
    pub decided: Vec<Decision>,
}

impl World {
    /// Those quotas are shared whose bit is set.
    pub fn new(shared: u8) -> Self {
        let mut queue = ReleaseQueue::default();
        let hard = vec![(10, 10), (6, 12), (20, 3)];
        let shared: BTreeSet<QuotaId> =
            (0..QUOTAS).filter(|quota| shared & (1 << quota) != 0).map(QuotaId).collect();
        for (quota, (cpu, memory)) in (0..).map(QuotaId).zip(&hard) {
            let open = if shared.contains(&quota) { ReleaseQueue::open_shared } else { ReleaseQueue::open };
            open(&mut queue, quota, ledger(*cpu, *memory));
        }
        Self {
            queue,
            hard,
            waiting: BTreeMap::new(),
            classes: BTreeMap::new(),
            released: BTreeMap::new(),
            next: 0,
            impatient_since: 0,
            paused: BTreeSet::new(),
            shared,
            decided: Vec::new(),
        }
    }

    pub fn step(&mut self, step: &Step) {
        match step {
            Step::Wait { priority, created, since, cpu, memory, quotas, share } => {
                let pod = PodId(self.next);
                let key = key(self.next, *priority, *created);
                self.next += 1;
                let charge = Arc::new(charge(*cpu, *memory));
                let quotas = share_of(*share, (0..QUOTAS).filter(|quota| quotas & (1 << quota) != 0));
                let class =
                    self.queue.wait(pod, key.clone(), *since, Arc::clone(&charge), Arc::clone(&quotas));
                self.waiting.insert(pod, Waiting { key, since: *since, class, charge, quotas });
                self.classes.insert(pod, class);
            }
            Step::Leave { at } => {
                if let Some(pod) = nth(&self.waiting, *at) {
                    let gone = self.waiting.remove(&pod).unwrap();
                    assert!(self.queue.leave(gone.class, &gone.key));
                    assert!(!self.queue.leave(gone.class, &gone.key), "it waits no more");
                }
            }
            Step::Hasten { at, deadline } => {
                if let Some(pod) = nth(&self.waiting, *at) {
                    let waiting = &self.waiting[&pod];
                    self.queue.hasten(waiting.class, &waiting.key, deadline.map(Deadline));
                }
            }
            Step::End { at } => {
                if let Some(pod) = nth(&self.released, *at) {
                    let gone = self.released.remove(&pod).unwrap();
                    self.queue.end(gone.claim, &gone.quotas, &gone.charge);
                }
            }
            Step::Confirm { at } => {
                if let Some(pod) = nth(&self.released, *at) {
                    let seen = self.released.get_mut(&pod).unwrap();
                    if seen.claim == Claim::Assumed {
                        self.queue.confirm(&seen.quotas, &seen.charge);
                        seen.claim = Claim::Counted;
                    }
                }
            }
            Step::Arrive { at } => {
                if let Some(pod) = nth(&self.waiting, *at) {
                    let Waiting { key, class, charge, quotas, .. } = self.waiting.remove(&pod).unwrap();
                    assert!(self.queue.leave(class, &key));
                    self.queue.arrive(&quotas, &charge);
                    self.released.insert(pod, Released { claim: Claim::Counted, charge, quotas });
                }
            }
            Step::LetGo { at } => {
                if let Some(pod) = nth(&self.waiting, *at) {
                    let Waiting { key, class, charge, quotas, .. } = self.waiting[&pod].clone();
                    let rests = quotas.iter().any(|quota| self.queue.rests(*quota));
                    let decision = self.queue.let_go(class, &key);
                    assert_eq!(decision.is_none(), rests, "it goes unless sums are incomplete");
                    if decision.is_some() {
                        self.waiting.remove(&pod);
                        self.released.insert(pod, Released { claim: Claim::Assumed, charge, quotas });
                        assert_eq!(self.queue.let_go(class, &key), None, "it waits no more");
                    }
                }
            }
            Step::Hard { quota, cpu, memory } => {
                let limits = [(Resource::Cpu, units(*cpu)), (Resource::Memory, units(*memory))];
                assert!(self.queue.replace_hard(QuotaId(*quota), limits));
                self.hard[*quota as usize] = (*cpu, *memory);
            }
            Step::Decide { later, looks } => {
                self.impatient_since += later;
                self.decide(*looks);
            }
            Step::DecideSome { looks } => {
                let decisions = self.queue.decide(self.patience(), *looks);
                self.heed(&decisions);
                self.decided.extend(decisions);
            }
            Step::Pause { quota } => {
                self.queue.pause(QuotaId(*quota));
                self.paused.insert(QuotaId(*quota));
            }
            Step::Resume { quota } => {
                self.queue.resume(QuotaId(*quota));
                self.paused.remove(&QuotaId(*quota));
            }
        }
        self.check_sums();
    }

    /// In slices of so many looks, until all is decided.
    pub fn decide(&mut self, looks: usize) {
        for turn in 0.. {
            assert!(turn * looks < ENOUGH, "there is always more to decide");
            let decisions = self.queue.decide(self.patience(), looks);
            self.heed(&decisions);
            self.decided.extend(decisions);
            let now_ms = self.patience().now_ms;
            if !self.queue.has_news() && self.queue.next_due_ms().is_none_or(|due| due > now_ms) {
                break;
            }
        }
        self.check_all_was_decided();
        assert_eq!(self.queue.decide(self.patience(), ALL), [], "deciding again changes nothing");
    }

    fn patience(&self) -> Patience {
        Patience { now_ms: self.impatient_since + LIMIT, limit_ms: LIMIT }
    }

    fn heed(&mut self, decisions: &[Decision]) {
        for decision in decisions {
            let Decision::Release { pod, charge, quotas } = decision else { continue };
            let was = self.waiting.remove(pod).expect("only who waits is released");
            assert_eq!((&was.charge, &was.quotas), (charge, quotas));
            let (charge, quotas) = (Arc::clone(charge), Arc::clone(quotas));
            self.released.insert(*pod, Released { claim: Claim::Assumed, charge, quotas });
            for quota in was.quotas.iter() {
                assert!(!self.paused.contains(quota), "released while its quota is paused");
                let sums = self.recount(*quota);
                for (resource, hard) in [
                    (Resource::Cpu, self.hard[quota.0 as usize].0),
                    (Resource::Memory, self.hard[quota.0 as usize].1),
                ] {
                    let asked = was.charge.get(&resource).unwrap();
                    let line = sums.line(&resource).unwrap();
                    assert!(asked.is_zero() || line.used() <= units(hard), "more than hard was given away");
                }
            }
        }
    }

    fn fits(&self, pod: &Waiting, quota: QuotaId) -> bool {
        self.queue.ledger(quota).unwrap().excess(&pod.charge, None).is_empty()
    }

    /// Whether the first pod may have room kept in this quota that the other one would take.
    fn is_kept_for(&self, first: &Waiting, held: &Waiting, quota: QuotaId) -> bool {
        let ledger = |quota| self.queue.ledger(quota).unwrap();
        let could_fit = |quota: &QuotaId| ledger(*quota).could_fit(&first.charge);
        first.class != held.class
            && first.since <= self.impatient_since
            && first.quotas.contains(&quota)
            && first.quotas.iter().all(could_fit)
            && !ledger(quota).excess(&held.charge, Some(&first.charge)).is_empty()
    }

    /// A pod that fits is held only where the queue keeps room for another class. The reason names a pod of that class. That
    /// pod may be gone. Then the queue keeps the room for an older pod of the class, and `obstacles` names the older pod.
    fn check_all_was_decided(&self) {
        for held in self.waiting.values() {
            if held.quotas.iter().any(|quota| self.paused.contains(quota)) {
                continue;
            }
            let reason = self.queue.class(held.class).unwrap().reason();
            let reason = reason.unwrap_or_else(|| panic!("{held:?} was not looked at"));
            let fits = held.quotas.iter().all(|quota| self.fits(held, *quota));
            let ahead = reason.behind.map(|pod| self.classes[&pod]);
            let is_kept = self
                .waiting
                .values()
                .any(|first| ahead == Some(first.class) && self.is_kept_for(first, held, reason.quota));
            let told = self.queue.obstacles(held.class).first().and_then(|reason| reason.behind);
            assert!(told.is_none_or(|pod| self.waiting.contains_key(&pod)), "{held:?} is told of {told:?}");
            assert!(!fits || is_kept, "{held:?} fits and is held: {reason:?}");
        }
    }

    fn recount(&self, quota: QuotaId) -> Ledger {
        self.recount_of(quota, |_| true)
    }

    fn recount_of(&self, quota: QuotaId, is_meant: impl Fn(ShareId) -> bool) -> Ledger {
        let (cpu, memory) = self.hard[quota.0 as usize];
        let mut sums = ledger(cpu, memory);
        let takes = |pod: &&Released| pod.quotas.contains(&quota) && is_meant(pod.quotas.share());
        for pod in self.released.values().filter(takes) {
            sums.apply(pod.claim, &pod.charge);
        }
        sums
    }

    /// What each share takes is what one would make anew, so that they sum up to what the quota has counted and assumed.
    fn check_shares(&self, quota: QuotaId) {
        let Some(shares) = self.queue.shares(quota) else {
            return assert!(!self.shared.contains(&quota));
        };
        for share in (0..SHARES).map(ShareId) {
            let used: Vec<Amount> = self
                .recount_of(quota, |other| other == share)
                .lines()
                .iter()
                .map(|line| line.used())
                .collect();
            let takes_nothing = used.iter().all(|amount| amount.is_zero());
            assert_eq!(shares.get(share), if takes_nothing { &[] } else { &*used }, "{share:?} of {quota:?}");
        }
        assert!(shares.iter().all(|(share, _)| share.0 < SHARES));
    }

    /// The incremental sums and lists are what one would make anew.
    fn check_sums(&self) {
        for quota in (0..QUOTAS).map(QuotaId) {
            assert_eq!(self.queue.ledger(quota), Some(&self.recount(quota)));
            self.check_shares(quota);
            let held = self.waiting.values().filter(|pod| pod.quotas.contains(&quota)).count();
            assert_eq!(self.queue.held(quota), held);
        }
        for (pod, waiting) in &self.waiting {
            let class = self.queue.class(waiting.class).expect("its class exists");
            assert_eq!((class.charge(), class.quotas()), (&waiting.charge, &waiting.quotas));
            assert!(class.pods().any(|other| other == *pod));
        }
        if let Err(wrong) = self.queue.audit_queue() {
            panic!("{wrong}");
        }
    }
}

fn nth<T>(pods: &BTreeMap<PodId, T>, at: usize) -> Option<PodId> {
    (!pods.is_empty()).then(|| *pods.keys().nth(at % pods.len()).unwrap())
}
