//! What is asked of both namespaces: steps at random, but so that each outcome comes often enough.

use std::collections::BTreeMap;

use sluice_e2e::random::Random;

use super::quotas::{Member, Members, Size, fit, room};

/// Of so many steps one is chosen.
const CANDIDATES: usize = 40;
/// Far enough away that each pod can be given an earlier one many times: a deadline can only be set and brought forward.
const DEADLINE: i64 = 7200;
const EARLIER: i64 = 60;

/// A request.
#[derive(Clone, Debug)]
pub enum Step {
    Create { name: String, size: Size, deadline: Option<i64> },
    Delete { name: String },
    Resize { name: String, size: Size },
    Deadline { name: String, seconds: i64 },
}

/// What a step and its verdict are together. First what is rare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    ScopeChanged,
    ScopeRefused,
    Created,
    CreationRefused,
    Grown,
    GrowthRefused,
    Shrunk,
    DeadlineEarlier,
    Deleted,
    NothingChanged,
}

/// So many outcomes of each kind are still to come.
pub type Wanted = BTreeMap<Outcome, usize>;

impl Step {
    /// The next one: with an outcome that is wanted, if it goes as the sums say.
    pub fn choose(random: &mut Random, members: &Members, wanted: &Wanted, number: usize) -> Self {
        let mut candidates: Vec<(Outcome, Self)> = (0..CANDIDATES)
            .map(|_| {
                let step = Self::any(random, members, number);
                (step.outcome(members, step.fits(members)), step)
            })
            .collect();
        let is_wanted = |outcome: Outcome| wanted.get(&outcome).is_some_and(|left| *left > 0);
        let find = |good: &dyn Fn(Outcome) -> bool| candidates.iter().position(|(outcome, _)| good(*outcome));
        // If nothing that is wanted can come now: room is made where something wanted needs it, else it is taken.
        let needs_room = [Outcome::ScopeChanged, Outcome::Created, Outcome::Grown].into_iter().any(is_wanted);
        let towards = if needs_room && members.len() > 1 { Outcome::Deleted } else { Outcome::Created };
        let found = find(&|outcome: Outcome| outcome <= Outcome::ScopeRefused && is_wanted(outcome))
            .or_else(|| find(&is_wanted))
            .or_else(|| find(&|outcome: Outcome| outcome == towards));
        candidates.swap_remove(found.unwrap_or(0)).1
    }

    fn any(random: &mut Random, members: &Members, number: usize) -> Self {
        let names: Vec<&String> = members.keys().collect();
        let kind = if names.is_empty() { 0 } else { random.below(4) };
        if kind == 0 {
            let deadline = random.chance(30).then_some(DEADLINE);
            let small =
                Size { cpu: random.pick(&[50, 100, 200]), limit: 400, memory: random.pick(&[64, 128, 256]) };
            let size = near(random, small, room(members, deadline.is_some()));
            return Self::Create { name: format!("p{number}"), size, deadline };
        }
        let name = random.pick(&names).clone();
        let member = &members[&name];
        match kind {
            1 => Self::Delete { name },
            2 => {
                let room = room(members, member.deadline.is_some());
                Self::Resize { name, size: near(random, member.size, room) }
            }
            _ => {
                let seconds = member.deadline.map_or(DEADLINE, |seconds| seconds - EARLIER);
                Self::Deadline { name, seconds }
            }
        }
    }

    /// Whether the quotas have room for what comes of it.
    fn fits(&self, members: &Members) -> bool {
        let mut after = members.clone();
        self.apply(&mut after);
        fit(&after)
    }

    /// What it changes if it is let in.
    pub fn apply(&self, members: &mut Members) {
        match self {
            Self::Create { name, size, deadline } => {
                let member = Member { size: *size, reported: *size, deadline: *deadline };
                members.insert(name.clone(), member);
            }
            Self::Delete { name } => drop(members.remove(name)),
            Self::Resize { name, size } => {
                if let Some(member) = members.get_mut(name) {
                    member.size = *size;
                }
            }
            Self::Deadline { name, seconds } => {
                if let Some(member) = members.get_mut(name) {
                    member.deadline = Some(*seconds);
                }
            }
        }
    }

    /// What it is together with its verdict; `members` are those before it.
    pub fn outcome(&self, members: &Members, is_let_in: bool) -> Outcome {
        match (self, is_let_in) {
            (Self::Create { .. }, true) => Outcome::Created,
            (Self::Create { .. }, false) => Outcome::CreationRefused,
            (Self::Delete { .. }, _) => Outcome::Deleted,
            (Self::Resize { name, size }, _) if *size == members[name].size => Outcome::NothingChanged,
            (Self::Resize { name, size }, true) if !size.exceeds(members[name].size) => Outcome::Shrunk,
            (Self::Resize { .. }, true) => Outcome::Grown,
            (Self::Resize { .. }, false) => Outcome::GrowthRefused,
            (Self::Deadline { name, .. }, _) if members[name].deadline.is_some() => Outcome::DeadlineEarlier,
            (Self::Deadline { .. }, true) => Outcome::ScopeChanged,
            (Self::Deadline { .. }, false) => Outcome::ScopeRefused,
        }
    }

    /// The pod that has to be run with this size, if the step is let in.
    pub fn sized(&self) -> Option<(&str, Size)> {
        match self {
            Self::Create { name, size, .. } | Self::Resize { name, size } => Some((name.as_str(), *size)),
            Self::Delete { .. } | Self::Deadline { .. } => None,
        }
    }
}

/// A size of which each part is less than now, the same, more, all that there is room for, or the least that is too much.
fn near(random: &mut Random, now: Size, (cpu, memory): (i64, i64)) -> Size {
    let mut other = |now: i64, room: i64, more: [i64; 3]| -> i64 {
        let other = match random.below(8) {
            0 => now + room,
            1 => now + room + 1,
            2 | 3 => now / 2,
            4 | 5 => now,
            _ => now + random.pick(&more),
        };
        other.max(1)
    };
    let cpu = other(now.cpu, cpu, [50, 100, 300]);
    let memory = other(now.memory, memory, [64, 128, 512]);
    // Not below the request, which the API server demands.
    let limit = random.pick(&[now.limit, cpu, 2 * cpu]).max(cpu);
    Size { cpu, limit, memory }
}
