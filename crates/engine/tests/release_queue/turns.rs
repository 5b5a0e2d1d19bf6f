//! A simulated week of quotas in which a large pod waits among small ones that take whatever is free: how much room is kept
//! for it in vain where it can never go, and when it goes where it can.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_engine::{
    Charge, Claim, ClassId, Decision, Patience, PodId, QuotaId, QuotaSet, ReleaseQueue, Resource,
};

use crate::{charge, key, ledger, share_of};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const WEEK: u64 = 7 * 24 * HOUR;
const PATIENCE_MS: u64 = MINUTE;

/// A quota of so much CPU.
struct Quota {
    is_shared: bool,
    cpu: i128,
}

const fn own(cpu: i128) -> Quota {
    Quota { is_shared: false, cpu }
}

const fn shared(cpu: i128) -> Quota {
    Quota { is_shared: true, cpu }
}

/// Small pods of one namespace, of one CPU each.
struct Small {
    share: u32,
    quotas: &'static [u32],
    /// At least and at most.
    lives: (u64, u64),
    /// One comes each so often; `None`: there is always one that waits.
    every: Option<u64>,
}

const fn churn(share: u32, quotas: &'static [u32], shortest: u64, longest: u64) -> Small {
    Small { share, quotas, lives: (shortest, longest), every: None }
}

/// A pod that is larger than what is free.
struct Head {
    share: u32,
    quotas: &'static [u32],
    cpu: i128,
}

/// What takes part in a simulation.
struct Mix {
    quotas: Vec<Quota>,
    /// They run from the beginning, for ever: of which share, in which quotas, how much CPU.
    services: Vec<(u32, &'static [u32], i128)>,
    small: Vec<Small>,
    heads: Vec<Head>,
}

/// When the first head had room kept for it first, when all that ran then had ended, and when it went.
#[derive(Clone, Copy, Debug)]
struct Turn {
    began: u64,
    all_ended: u64,
    went: Option<u64>,
}

struct Simulation<'m> {
    mix: &'m Mix,
    queue: ReleaseQueue,
    now_ms: u64,
    random: u64,
    next_pod: u32,
    /// What runs, by when it ends.
    running: BTreeMap<(u64, PodId), (Arc<QuotaSet>, Arc<Charge>)>,
    /// Of each kind of small pods: the class of those that wait, and how many that are.
    waiting: Vec<(Option<ClassId>, usize)>,
    kinds: BTreeMap<PodId, usize>,
    /// Of each quota: how much of it was not given away although a pod waited for it that it has room for, times how long.
    idle: Vec<u128>,
    turn: Option<Turn>,
    /// For how long a pod that runs could take no more although there was room for it, without interruption,
    /// at most and now.
    growth_refused: (u64, u64),
}

impl<'m> Simulation<'m> {
    fn new(mix: &'m Mix, seed: u64) -> Self {
        let mut queue = ReleaseQueue::default();
        for (id, quota) in (0..).map(QuotaId).zip(&mix.quotas) {
            let open = if quota.is_shared { ReleaseQueue::open_shared } else { ReleaseQueue::open };
            open(&mut queue, id, ledger(quota.cpu, 1));
        }
        for (share, quotas, cpu) in &mix.services {
            queue.apply(Claim::Counted, &share_of(*share, quotas.iter().copied()), &charge(*cpu, 0));
        }
        Self {
            mix,
            queue,
            now_ms: 0,
            random: seed,
            next_pod: u32::try_from(mix.heads.len()).unwrap(),
            running: BTreeMap::new(),
            waiting: vec![(None, 0); mix.small.len()],
            kinds: BTreeMap::new(),
            idle: vec![0; mix.quotas.len()],
            turn: None,
            growth_refused: (0, 0),
        }
    }

    fn patience(&self) -> Patience {
        Patience { now_ms: self.now_ms, limit_ms: PATIENCE_MS }
    }

    fn lives(&mut self, kind: usize) -> u64 {
        let (shortest, longest) = self.mix.small[kind].lives;
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        shortest + (self.random >> 33) % (longest - shortest)
    }

    fn small_pod_comes(&mut self, kind: usize) {
        let small = &self.mix.small[kind];
        let (pod, since) = (self.next_pod, self.now_ms);
        self.next_pod += 1;
        self.kinds.insert(PodId(pod), kind);
        let quotas = share_of(small.share, small.quotas.iter().copied());
        let key = key(pod, 9, i64::try_from(since).unwrap());
        let class = self.queue.wait(PodId(pod), key, since, Arc::new(charge(1, 0)), quotas);
        let (known, waiting) = &mut self.waiting[kind];
        (*known, *waiting) = (Some(class), *waiting + 1);
    }

    fn heads_come(&mut self) {
        for (id, head) in (0..).zip(&self.mix.heads) {
            let quotas = share_of(head.share, head.quotas.iter().copied());
            let key = key(id, 0, i64::try_from(self.now_ms).unwrap());
            self.queue.wait(PodId(id), key, self.now_ms, Arc::new(charge(head.cpu, 0)), quotas);
        }
    }

    /// Everything that happens at this moment.
    fn happen(&mut self) {
        while let Some(entry) = self.running.first_entry().filter(|entry| entry.key().0 <= self.now_ms) {
            let (quotas, charge) = entry.remove();
            self.queue.end(Claim::Assumed, &quotas, &charge);
        }
        for kind in 0..self.mix.small.len() {
            if self.mix.small[kind].every.is_some_and(|every| self.now_ms.is_multiple_of(every)) {
                self.small_pod_comes(kind);
            }
        }
        loop {
            for kind in 0..self.mix.small.len() {
                while self.mix.small[kind].every.is_none() && self.waiting[kind].1 < 2 {
                    self.small_pod_comes(kind);
                }
            }
            if !self.queue.has_news() && self.queue.next_due_ms().is_none_or(|due| due > self.now_ms) {
                break;
            }
            for decision in self.queue.decide(self.patience(), 256) {
                if let Decision::Release { pod, charge, quotas } = decision {
                    self.goes(pod, charge, quotas);
                }
            }
        }
        let kept = self.waiting.iter().filter_map(|(class, _)| self.queue.class((*class)?)?.reason()?.behind);
        if self.turn.is_none() && kept.into_iter().any(|pod| pod == PodId(0)) {
            let all_ended = self.running.keys().map(|(end, _)| *end).max().unwrap_or(self.now_ms);
            self.turn = Some(Turn { began: self.now_ms, all_ended, went: None });
        }
    }

    fn goes(&mut self, pod: PodId, charge: Arc<Charge>, quotas: Arc<QuotaSet>) {
        let Some(kind) = self.kinds.remove(&pod) else {
            let now = self.now_ms;
            if pod == PodId(0) {
                let first = Turn { began: now, all_ended: now, went: None };
                self.turn.get_or_insert(first).went = Some(now);
            }
            self.running.insert((now + HOUR, pod), (quotas, charge));
            return;
        };
        self.waiting[kind].1 -= 1;
        let ends = self.now_ms + self.lives(kind);
        self.running.insert((ends, pod), (quotas, charge));
    }

    fn free(&self, quotas: &[u32]) -> i128 {
        let free = quotas.iter().map(|quota| {
            let line = self.queue.ledger(QuotaId(*quota)).unwrap().line(&Resource::Cpu).unwrap();
            line.hard.saturating_sub(line.used()).nanos() / 1_000_000_000
        });
        free.min().unwrap()
    }

    /// Until something happens.
    fn pass_time(&mut self, until: u64) {
        let ends = self.running.first_key_value().map(|((end, _), _)| *end);
        let comes = self.mix.small.iter().filter_map(|small| small.every);
        let comes = comes.map(|every| (self.now_ms / every + 1) * every).min();
        let next = [ends, comes, self.queue.next_due_ms(), Some(until)].into_iter().flatten().min().unwrap();
        let mut idle = vec![0; self.mix.quotas.len()];
        let mut is_refused = false;
        for (small, (_, waiting)) in self.mix.small.iter().zip(&self.waiting).filter(|(_, (_, it))| *it > 0) {
            let free = self
                .free(small.quotas)
                .min(i128::try_from(*waiting).unwrap_or(0).max(free_if_endless(small)));
            for quota in small.quotas {
                idle[*quota as usize] = free.max(idle[*quota as usize]);
            }
            let more: Vec<_> = small.quotas.iter().map(|quota| (QuotaId(*quota), charge(1, 0))).collect();
            is_refused |= free > 0 && self.queue.can_grow(&more, self.patience()).is_err();
        }
        // It is over before anything else happens.
        let next = if is_refused { next.min(self.now_ms + 10 * SECOND) } else { next };
        let passes = next - self.now_ms;
        for (sum, idle) in self.idle.iter_mut().zip(idle) {
            *sum += u128::try_from(idle).unwrap() * u128::from(passes);
        }
        let (most, now) = self.growth_refused;
        let now = if is_refused { now + passes } else { 0 };
        self.growth_refused = (most.max(now), now);
        self.now_ms = next;
    }

    fn run(&mut self) {
        self.happen();
        while self.now_ms < 2 * HOUR {
            self.pass_time(2 * HOUR);
            self.happen();
        }
        self.idle.fill(0);
        self.heads_come();
        self.happen();
        let until = self.now_ms + WEEK;
        while self.now_ms < until && self.turn.is_none_or(|turn| turn.went.is_none()) {
            self.pass_time(until);
            self.happen();
        }
        self.queue.audit_queue().unwrap();
    }
}

/// How many pods of the kind could be there at once.
const fn free_if_endless(small: &Small) -> i128 {
    if small.every.is_none() { i128::MAX } else { 0 }
}

const SEEDS: [u64; 3] = [1, 2, 3];

/// In percent of each quota; and the longest that growth was refused.
fn assert_never_goes(name: &str, mix: &Mix) {
    for seed in SEEDS {
        let mut simulation = Simulation::new(mix, seed);
        simulation.run();
        assert_eq!(simulation.turn.and_then(|turn| turn.went), None, "{name}");
        assert!(simulation.turn.is_some(), "{name}: it has had no turn");
        for (quota, idle) in mix.quotas.iter().zip(&simulation.idle) {
            let percent = idle * 100 / (u128::from(WEEK) * u128::try_from(quota.cpu).unwrap());
            assert!(percent <= 10, "{name}, {seed}: {percent} % of the room was kept in vain");
        }
        assert!(simulation.growth_refused.0 <= 5 * MINUTE, "{name}: {:?}", simulation.growth_refused);
    }
}

fn assert_goes(name: &str, mix: &Mix) {
    for seed in SEEDS {
        let mut simulation = Simulation::new(mix, seed);
        simulation.run();
        let turn = simulation.turn.unwrap_or_else(|| panic!("{name}, {seed}: it has had no turn"));
        let within = 2 * (turn.all_ended - turn.began);
        let went = turn.went.map(|went| went - turn.began);
        assert!(went.is_some_and(|went| went <= within), "{name}, {seed}: {went:?} of {within}");
        assert!(simulation.growth_refused.0 <= 5 * MINUTE, "{name}: {:?}", simulation.growth_refused);
    }
}

fn mix(
    quotas: Vec<Quota>,
    services: &[(u32, &'static [u32], i128)],
    small: Vec<Small>,
    heads: Vec<Head>,
) -> Mix {
    Mix { quotas, services: services.to_vec(), small, heads }
}

const fn head(share: u32, quotas: &'static [u32], cpu: i128) -> Head {
    Head { share, quotas, cpu }
}

/// Pods that run for days come one by one, and there is room for all of them but not for the large one.
#[test]
fn beside_services_alone_next_to_nothing_is_kept_in_vain() {
    for (name, quota) in [("services, own", own(300)), ("services, shared", shared(300))] {
        let comes = Small { share: 1, quotas: &[0], lives: (24 * HOUR, 72 * HOUR), every: Some(HOUR) };
        assert_never_goes(name, &mix(vec![quota], &[(1, &[0], 1)], vec![comes], vec![head(2, &[0], 300)]));
    }
}

#[test]
fn beside_pods_that_come_and_go_a_large_one_goes() {
    for (name, cpu, shortest, longest) in [
        ("churn of seconds", 10, 5 * SECOND, MINUTE),
        ("churn, most", 8, MINUTE, 10 * MINUTE),
        ("churn, all", 10, MINUTE, 10 * MINUTE),
        ("churn of hours", 60, HOUR / 2, 3 * HOUR),
    ] {
        let of =
            |quota| mix(vec![quota], &[], vec![churn(1, &[0], shortest, longest)], vec![head(2, &[0], cpu)]);
        assert_goes(&format!("{name}, own"), &of(own(cpu.max(10))));
        assert_goes(&format!("{name}, shared"), &of(shared(cpu.max(10))));
    }
}

#[test]
fn beside_a_service_too_if_they_leave_room_and_else_little_is_kept_in_vain() {
    for (name, shortest, longest) in [
        ("churn of minutes", MINUTE, 10 * MINUTE),
        ("churn of an hour", MINUTE, HOUR),
        ("churn of hours", HOUR / 2, 3 * HOUR),
    ] {
        let of = |quota, cpu| {
            mix(
                vec![quota],
                &[(1, &[0], 1)],
                vec![churn(1, &[0], shortest, longest)],
                vec![head(2, &[0], cpu)],
            )
        };
        assert_never_goes(&format!("{name} beside a service, own"), &of(own(20), 20));
        assert_never_goes(&format!("{name} beside a service, shared"), &of(shared(20), 20));
        assert_goes(&format!("{name} beside a service, own"), &of(own(20), 10));
        assert_goes(&format!("{name} beside a service, shared"), &of(shared(20), 10));
    }
}

/// Jobs that last for hours, some of which began together.
#[test]
fn in_a_batch_a_large_job_goes_when_others_have_ended() {
    for (name, slots, shortest, longest) in [
        ("jobs of hours", 40, 20 * MINUTE, 2 * HOUR),
        ("jobs that end together", 20, HOUR, HOUR + 10 * SECOND),
        ("jobs of a day", 100, 10 * HOUR, 24 * HOUR),
    ] {
        let of = |quota, cpu| {
            mix(vec![quota], &[], vec![churn(1, &[0], shortest, longest)], vec![head(2, &[0], cpu)])
        };
        assert_goes(&format!("{name}, own"), &of(own(slots), slots / 2));
        assert_goes(&format!("{name}, shared"), &of(shared(slots), slots / 2));
    }
}

#[test]
fn patience_holds_however_many_quotas_lack_room() {
    let lives = (MINUTE, 10 * MINUTE);
    let of = |quotas, ids, small| mix(quotas, &[], small, vec![head(1, ids, 8)]);
    let both = || churn(1, &[0, 1], lives.0, lives.1);
    let all = || churn(1, &[0, 1, 2], lives.0, lives.1);
    let others = |quotas| churn(2, quotas, lives.0, lives.1);
    let two: &'static [u32] = &[0, 1];
    assert_goes("two own", &of(vec![own(10), own(10)], two, vec![both()]));
    assert_goes(
        "two own, one of them of others too",
        &of(vec![own(10), own(20)], two, vec![both(), others(&[1])]),
    );
    assert_goes("own and shared", &of(vec![own(10), shared(10)], two, vec![both(), others(&[1])]));
    assert_goes(
        "two shared",
        &of(vec![shared(10), shared(10)], two, vec![both(), others(&[0]), others(&[1])]),
    );
    let three: &'static [u32] = &[0, 1, 2];
    let quotas = || vec![own(10), own(10), shared(20)];
    assert_goes("three", &of(quotas(), three, vec![all(), both(), others(&[2])]));
    for (name, service) in [
        ("three, of which one is taken", (2, &[2][..], 13)),
        ("three, of which an own one is taken", (1, &[0][..], 3)),
    ] {
        let small = vec![all(), both(), others(&[2])];
        assert_never_goes(name, &mix(quotas(), &[service], small, vec![head(1, three, 8)]));
    }
}

/// As many as there are: it is the quota that keeps no more in vain.
#[test]
fn large_pods_of_many_namespaces_keep_no_more_in_vain_than_one() {
    let heads = |count: u32| (0..count).map(|share| head(10 + share, &[0], 20)).collect();
    for count in [2, 30] {
        let small = vec![churn(1, &[0], MINUTE, 10 * MINUTE)];
        assert_never_goes(
            &format!("{count} heads"),
            &mix(vec![shared(20)], &[(1, &[0], 1)], small, heads(count)),
        );
    }
}
