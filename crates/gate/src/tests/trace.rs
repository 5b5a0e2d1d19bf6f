//! What the gate asks for in many runs of the simulation, as one number for each run: a refactoring that leaves all numbers
//! as they were has changed no decision. CONTRIBUTING.md says how to compare.

use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;

use proptest::strategy::{Strategy, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::protocol;
use super::step::Trouble;
use super::world::{Setting, TEAM};
use crate::{Action, Evaluate, Record};

/// All actions of a run, in their order. Handles are left out: they mean nothing outside the process.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Trace {
    actions: u64,
    hash: u64,
}

impl Trace {
    pub fn add(&mut self, replica: usize, action: &Action) {
        let mut hasher = DefaultHasher::new();
        (self.hash, replica, shown(action)).hash(&mut hasher);
        *self = Self { actions: self.actions + 1, hash: hasher.finish() };
    }
}

fn shown(action: &Action) -> String {
    match action {
        Action::Record(record) => {
            let Record { name, uid, object, target, held, charges, .. } = &**record;
            let since = (record.uncounted_since, record.machines_since, record.unenforced_since);
            format!("{:?}", (name, uid, object, target, held, charges, since))
        }
        Action::Release(pod) => format!("release {:?}", (&pod.namespace, &pod.name, &pod.uid, pod.version)),
        Action::Read(pod) => format!("read {:?}", (&pod.namespace, &pod.name, &pod.uid, pod.version)),
        Action::ListQuotas(namespaces) => {
            let names = namespaces.iter().map(|(_, name)| name);
            format!("list {:?}", names.collect::<Vec<_>>())
        }
        Action::WriteEvent(event) => {
            format!("{:?}", (&event.namespace, &event.name, &event.uid, event.reason, &event.message))
        }
        Action::Evaluate(question) => {
            let Evaluate { namespace, name, uid, hash, is_waiting, .. } = &**question;
            format!("evaluate {:?}", (namespace, name, uid, hash, is_waiting))
        }
        Action::Answer(_, judgement) => format!("answer {judgement:?}"),
        Action::ReadRound(_)
        | Action::CatchUpClusterQuotas
        | Action::ListTargets
        | Action::ReadMachine(_)
        | Action::CatchUp => {
            format!("{action:?}")
        }
    }
}

fn drawn<T: Debug>(strategy: impl Strategy<Value = T>, seed: u64) -> T {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    strategy.new_tree(&mut runner).unwrap().current()
}

fn plain(setting: &'static Setting, trouble: Trouble, seed: u64) -> Trace {
    protocol::run(setting, trouble, &drawn(protocol::steps(setting, trouble), seed))
}

/// The run with this number, and what it was about. Runs with several quotas, and those in which quotas are made anew, are
/// not the same each time: the order of some requests in them is that of a hash map.
fn run(seed: u64) -> (&'static str, Trace) {
    match seed % 3 {
        0 => ("team, two leaders", plain(&TEAM, Trouble::TwoLeaders, seed)),
        1 => ("team, expiry", plain(&TEAM, Trouble::Expiry, seed)),
        _ => ("team, scribbled status", plain(&TEAM, Trouble::ScribbledStatus, seed)),
    }
}

/// Writes the numbers to the file that `SLUICE_TRACE` names, or compares with those that it has; without it a few runs are
/// made twice, since what is compared has to be the same each time.
#[test]
fn trace() {
    let Some(file) = std::env::var_os("SLUICE_TRACE").map(PathBuf::from) else {
        (0..10).for_each(|seed| assert_eq!(run(seed), run(seed), "seed {seed}"));
        return;
    };
    let line = |seed| {
        let (about, Trace { actions, hash }) = run(seed);
        format!("{seed} {hash:016x} {actions} actions: {about}")
    };
    let lines: Vec<String> = (0..1_000).map(line).collect();
    match std::fs::read_to_string(&file) {
        Ok(known) => {
            let others = lines.iter().zip(known.lines()).filter(|(line, known)| *line != known);
            let others: Vec<_> = others.collect();
            assert!(others.is_empty(), "{} runs are not as they were: {others:#?}", others.len());
        }
        Err(_) => std::fs::write(&file, lines.join("\n")).unwrap(),
    }
}
