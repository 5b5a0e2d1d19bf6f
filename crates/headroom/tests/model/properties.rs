//! What always holds.

use stateright::{Model, Property};

use crate::actions::Action;
use crate::rules::Rules;
use crate::world::{Fate, Quota, Stage, Target, World, Wrong};

pub const THIEF: &str = "no other pod uses a raise while its lock holds";
pub const ENDED: &str = "no other pod uses a raise whose lock is over";
pub const LATE_THIEF: &str = "no pod that came after the target was let in takes its place";
pub const LEAK: &str = "of one raise no more is used than the target needs";
pub const GRANT: &str = "nothing is raised beyond what is granted";
pub const NO_GRANT: &str = "nothing is locked where nothing is granted";
pub const REFUSAL: &str = "no target is refused for which room was made";
pub const EDIT: &str = "the administrator's limit is not undone";
pub const UNKNOWN: &str = "no limit is enforced of which the usage is unknown";
pub const SEEN: &str = "only a target that was seen counts as let in";
pub const EXPLAINED: &str = "nothing is raised where more is used than is explained";
pub const TAKEN: &str = "no theft is told of a target that exists";
pub const RESTED: &str = "no session begins where a lock was just in vain, as far as its process was shown";
pub const FORMULA: &str =
    "above a quota is what the account explains, and one pod that took a target's place";
pub const OVERHEAD: &str = "after the last migration nothing but overhead is above a quota";
pub const ENDS: &str = "every session ends";
pub const BOUND: &str = "what is used above the quota is targets and counted pods";
pub const POOL: &str = "the pool is enough for all";
pub const STUCK: &str = "the sweep alone puts every quota right";
pub const FROZEN: &str = "kube-controller-manager is let through in the end";
pub const ASKED: &str = "API servers are asked for a mark that a quota carries";
pub const RETRY: &str = "a later attempt gets in";

/// A property for each thing that can be blamed.
macro_rules! never {
    ($($name:ident => $wrong:ident),* $(,)?) => {
        vec![$(Property::always($name, |_: &Rules, world: &World| world.wrong != Some(Wrong::$wrong))),*]
    };
}

impl Model for Rules {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.init()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.wrong.is_none() {
            self.possible(world, actions);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        self.act(&mut next, &action);
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = never![
            THIEF => ThiefInLiveRaise,
            ENDED => ThiefInEndedRaise,
            LATE_THIEF => ThiefAfterSettle,
            LEAK => LeakTooLarge,
            GRANT => BeyondGrant,
            NO_GRANT => LockWithoutGrant,
            REFUSAL => TargetRefused,
            EDIT => EditUndone,
            UNKNOWN => UsageUnknown,
            SEEN => EnteredUnseen,
            EXPLAINED => Unexplained,
            TAKEN => FalselyTaken,
            RESTED => OpenedInRest,
        ];
        properties.push(Property::always(BOUND, Self::is_bounded));
        properties.push(Property::always(FORMULA, Self::is_accounted_for));
        properties.push(Property::always(OVERHEAD, Self::leaves_overhead));
        properties.push(Property::always(ENDS, Self::sessions_end));
        properties.push(Property::always(STUCK, Self::sweep_ends_well));
        properties.push(Property::always(FROZEN, Self::manager_ends_well));
        properties.push(Property::always(RETRY, Self::retry_ends_well));
        properties.push(Property::always(ASKED, Self::asks_for_a_mark));
        if self.is_pool {
            properties.push(Property::always(POOL, |rules: &Self, world: &World| {
                let over = world.quotas.iter().map(|quotas| quotas.iter().map(above).max().unwrap_or(0));
                over.sum::<u8>() <= rules.additional + world.taken
            }));
        }
        if self.without.is_none() && self.additional > 0 {
            properties.push(Property::sometimes(
                "a target gets in and its raise is ended",
                |_, world: &World| {
                    let ended = world.runs.is_empty()
                        && world.quotas.iter().flatten().all(|quota| quota.mark.is_none());
                    ended && world.targets.iter().any(|target| target.promised && target.stage == Stage::In)
                },
            ));
        }
        properties
    }
}

fn above(quota: &Quota) -> u8 {
    quota.used.saturating_sub(quota.spec)
}

impl Rules {
    fn is_bounded(&self, world: &World) -> bool {
        let limits = self.quotas.iter().flatten().map(|(spec, used)| *spec.max(used));
        let most = limits.chain([if self.budget.edits > 0 { self.edit } else { 0 }]).max().unwrap_or(0);
        world.quotas.iter().enumerate().all(|(namespace, quotas)| {
            let targets = world.inside(namespace).map(|_| self.need).sum::<u8>();
            quotas.iter().all(|quota| quota.used <= most + targets + world.taken)
        })
    }

    /// Nothing is raised while a pod is above that the account does not explain, so such pods do not add up. Targets that
    /// are left, and migrations that end after a theft, explain no more what they explained when something was raised.
    fn is_accounted_for(&self, world: &World) -> bool {
        world.quotas.iter().enumerate().all(|(namespace, quotas)| {
            let left = self.need * world.count(namespace, Fate::Left);
            let most = |position| self.explained(world, (namespace, position)) + left + self.need;
            (0..quotas.len()).all(|position| world.actual[namespace] <= most(position))
        })
    }

    /// Of states in which all sessions and migrations are over, and no target is left.
    fn leaves_overhead(&self, world: &World) -> bool {
        let is_over = |target: &Target| target.fate == Fate::Moved || target.stage == Stage::Idle;
        if !world.runs.is_empty() || !world.targets.iter().all(is_over) {
            return true;
        }
        world.quotas.iter().zip(&self.quotas).enumerate().all(|(namespace, (quotas, first))| {
            let overhead = self.overhead * world.count(namespace, Fate::Moved);
            let others = world.thieves.iter().filter(|it| it.namespace == namespace && it.since.is_some());
            let others = others.map(|it| it.size).sum::<u8>();
            let limits = quotas.iter().zip(first).map(|(quota, (_, used))| quota.own().max(*used));
            limits.max().is_none_or(|limit| world.actual[namespace] <= limit + overhead + others)
        })
    }
}
