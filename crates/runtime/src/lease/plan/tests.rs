use super::*;
use std::collections::BTreeMap;

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn record(version: &str, holder: &str) -> Record {
    Record { version: version.into(), holder: holder.into(), duration: secs(15), transitions: 3 }
}

fn seen(record: Option<Record>, at: Duration) -> Observation {
    Observation { record, changed_at: at, looked_for: Duration::ZERO, respect_until: Duration::ZERO }
}

#[test]
fn free_leases_are_taken_at_once() {
    let timings = Timings::default();
    assert_eq!(plan(&seen(None, secs(0)), secs(0), "a", &timings), Step::Create);
    let released = seen(Some(record("7", "")), secs(5));
    assert_eq!(plan(&released, secs(5), "a", &timings), Step::Take { version: "7".into(), transitions: 4 });
    let own = seen(Some(record("7", "a")), secs(5));
    assert_eq!(plan(&own, secs(99), "a", &timings), Step::Renew { version: "7".into(), transitions: 3 });
}

#[test]
fn a_held_lease_is_left_alone_for_its_duration_after_the_last_change_seen() {
    let timings = Timings::default();
    let held = seen(Some(record("7", "b")), secs(100));
    assert_eq!(plan(&held, secs(114), "a", &timings), Step::Wait { until: secs(115) });
    assert_eq!(plan(&held, secs(115), "a", &timings), Step::Take { version: "7".into(), transitions: 4 });
}

#[test]
fn promises_of_the_holder_are_kept_within_bounds() {
    let timings = Timings::default();
    for (promised, want) in [(1, 15), (40, 40), (1_000_000, 150)] {
        let held = seen(Some(Record { duration: secs(promised), ..record("7", "b") }), secs(0));
        assert_eq!(
            plan(&held, secs(0), "a", &timings),
            Step::Wait { until: secs(want) },
            "promised {promised}"
        );
    }
}

#[test]
fn only_a_change_restarts_the_clock() {
    let mut a = Candidate::new("a".into(), Timings::default());
    assert_eq!(a.next(secs(0)), None, "no decision before the first read");
    a.saw(Some(record("1", "b")), secs(0));
    a.saw(Some(record("1", "b")), secs(10));
    assert_eq!(a.next(secs(10)), Some(Step::Wait { until: secs(15) }));
    a.saw(Some(record("2", "b")), secs(12));
    assert_eq!(a.next(secs(16)), Some(Step::Wait { until: secs(27) }));
}

#[test]
fn a_lease_that_vanished_is_respected_as_if_it_were_there() {
    let mut a = Candidate::new("a".into(), Timings::default());
    a.saw(Some(record("1", "b")), secs(0));
    a.saw(None, secs(3));
    assert_eq!(a.next(secs(4)), Some(Step::Wait { until: secs(15) }));
    assert_eq!(a.next(secs(15)), Some(Step::Create));
    let mut holder = Candidate::new("b".into(), Timings::default());
    holder.saw(Some(record("1", "b")), secs(0));
    holder.saw(None, secs(3));
    assert_eq!(holder.next(secs(4)), Some(Step::Create), "the holder itself makes it anew");
}

#[test]
fn unsound_timings_are_found() {
    assert!(Timings::default().are_sound());
    assert!(!Timings { renew_deadline: secs(15), ..Timings::default() }.are_sound());
    assert!(!Timings { retry: secs(10), ..Timings::default() }.are_sound());
}

/// Deterministic random numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        crate::backoff::mix(self.0) % bound
    }

    fn millis(&mut self, bound: u64) -> Duration {
        Duration::from_millis(self.below(bound))
    }
}

#[derive(Debug, Clone)]
enum Happens {
    /// The candidate decides and sends a request.
    Turn,
    /// The request reaches the server.
    Arrive { author: String, sent: Duration, step: Option<Step> },
    /// The answer to a read reaches the candidate.
    Read(Option<Record>),
    /// The answer to a write reaches the candidate; `None` is a refusal.
    Written { sent: Duration, record: Option<Record> },
}

/// Three candidates, one server, late and lost messages, paused and restarted processes.
struct World {
    draw: Draw,
    timings: Timings,
    server: Option<Record>,
    version: u64,
    candidates: Vec<Candidate>,
    fresh: Vec<bool>,
    starts: u64,
    due: BTreeMap<(Duration, u64), (usize, u64, Happens)>,
    epochs: Vec<u64>,
    sequence: u64,
    acquired: u64,
}

impl World {
    fn new(seed: u64, timings: Timings) -> Self {
        let mut world = Self {
            draw: Draw(seed << 32),
            timings,
            server: None,
            version: 0,
            candidates: Vec::new(),
            fresh: vec![false; 3],
            starts: 0,
            due: BTreeMap::new(),
            epochs: vec![0; 3],
            sequence: 0,
            acquired: 0,
        };
        for who in 0..3 {
            let fresh = world.start();
            world.candidates.push(fresh);
            world.schedule(Duration::ZERO, who, Happens::Turn);
        }
        world
    }

    fn start(&mut self) -> Candidate {
        self.starts += 1;
        Candidate::new(format!("process-{}", self.starts), self.timings)
    }

    fn schedule(&mut self, at: Duration, who: usize, what: Happens) {
        self.sequence += 1;
        self.due.insert((at, self.sequence), (who, self.epochs[who], what));
    }

    /// Message delay: mostly short, sometimes as long as several lease durations. `None`: lost.
    fn delay(&mut self) -> Option<Duration> {
        match self.draw.below(20) {
            0 => None,
            1 => Some(self.draw.millis(40_000)),
            2..=4 => Some(self.draw.millis(4_000)),
            _ => Some(self.draw.millis(50)),
        }
    }

    /// Plays until `end`; returns the first moment with two holders.
    fn play(&mut self, end: Duration) -> Option<String> {
        while let Some(((now, _), (who, epoch, what))) = self.due.pop_first() {
            if now > end {
                return None;
            }
            let arrives = matches!(what, Happens::Arrive { .. });
            if epoch != self.epochs[who] && !arrives {
                continue;
            }
            match what {
                Happens::Turn => self.turn(now, who),
                Happens::Arrive { author, sent, step } => self.arrive(now, (who, epoch), author, sent, step),
                Happens::Read(record) => {
                    self.candidates[who].saw(record, now);
                    self.fresh[who] = true;
                    self.next_turn(now, who, Duration::ZERO);
                }
                Happens::Written { sent, record } => {
                    if let Some(record) = record {
                        self.candidates[who].wrote(record, sent, now);
                        self.acquired += 1;
                    }
                    self.fresh[who] = false;
                    let retry = self.timings.retry;
                    self.next_turn(now, who, retry);
                }
            }
            let holders: Vec<_> = self
                .candidates
                .iter()
                .filter(|candidate| candidate.held_until().is_some_and(|until| now < until))
                .map(|candidate| candidate.me().to_owned())
                .collect();
            if holders.len() > 1 {
                return Some(format!("{holders:?} hold the lease at {now:?}"));
            }
        }
        None
    }

    /// Cancels what the candidate waits for and gives it its turn after `wait`, now and then after a long pause.
    fn next_turn(&mut self, now: Duration, who: usize, wait: Duration) {
        self.epochs[who] += 1;
        let pause = if self.draw.below(30) == 0 { self.draw.millis(40_000) } else { Duration::ZERO };
        self.schedule(now + wait + pause, who, Happens::Turn);
    }

    fn turn(&mut self, now: Duration, who: usize) {
        let lost = self.candidates[who].held_until().is_some_and(|until| now >= until);
        if lost || self.draw.below(200) == 0 {
            self.candidates[who] = self.start();
            self.fresh[who] = false;
            self.next_turn(now, who, Duration::from_secs(1));
            return;
        }
        let step = if self.fresh[who] { self.candidates[who].next(now) } else { None };
        self.fresh[who] = false;
        if matches!(step, Some(Step::Wait { .. })) {
            let retry = self.timings.retry;
            self.next_turn(now, who, retry);
            return;
        }
        self.epochs[who] += 1;
        if let Some(delay) = self.delay() {
            let author = self.candidates[who].me().to_owned();
            self.schedule(now + delay, who, Happens::Arrive { author, sent: now, step });
        }
        // The request's own deadline.
        self.schedule(now + Duration::from_secs(5), who, Happens::Turn);
    }

    /// A request takes effect even if its author has given up on it or ended meanwhile.
    fn arrive(
        &mut self,
        now: Duration,
        from: (usize, u64),
        author: String,
        sent: Duration,
        step: Option<Step>,
    ) {
        let (who, epoch) = from;
        let answer = match step {
            None | Some(Step::Wait { .. }) => Happens::Read(self.server.clone()),
            Some(step) => {
                let current = self.server.as_ref().map(|record| record.version.clone());
                let (wanted, transitions) = match step {
                    Step::Take { version, transitions } | Step::Renew { version, transitions } => {
                        (Some(version), transitions)
                    }
                    _ => (None, 0),
                };
                let mut written = None;
                if current == wanted {
                    self.version += 1;
                    let version = self.version.to_string();
                    let record =
                        Record { version, holder: author, duration: self.timings.duration, transitions };
                    self.server = Some(record.clone());
                    written = Some(record);
                }
                Happens::Written { sent, record: written }
            }
        };
        if epoch == self.epochs[who]
            && let Some(delay) = self.delay()
        {
            self.schedule(now + delay, who, answer);
        }
    }
}

#[test]
fn never_two_holders_among_three_candidates() {
    let mut acquired = 0;
    for seed in 0..400 {
        let mut world = World::new(seed, Timings::default());
        let clash = world.play(secs(1200));
        assert_eq!(clash, None, "seed {seed}");
        acquired += world.acquired;
    }
    assert!(acquired > 40_000, "the simulation hardly elects a leader: {acquired} writes");
}

#[test]
fn the_simulation_finds_a_renew_deadline_that_is_too_long() {
    let unsound = Timings { renew_deadline: secs(25), ..Timings::default() };
    let clashes = (0..100).filter(|seed| World::new(*seed, unsound).play(secs(1200)).is_some()).count();
    assert!(clashes > 0, "a check that cannot fail proves nothing");
}

/// A pod of a rollout is seconds or minutes younger than the one that it follows.
#[test]
fn a_candidate_of_twice_the_age_leaves_time_for_the_younger_ones_write() {
    let seconds = Duration::from_secs;
    for (younger, older) in [(1, 5), (5, 12), (30, 120), (120, 900), (300, 86_400)] {
        let (younger, older) = (courtesy(seconds(younger)), courtesy(seconds(older)));
        assert!(older >= younger + Duration::from_millis(50), "{younger:?} {older:?}");
    }
    assert_eq!((courtesy(Duration::ZERO), courtesy(seconds(1 << 30))), (Duration::ZERO, 10 * STEP));
}
