//! What always holds.

use stateright::{Model, Property};

use crate::actions::Action;
use crate::rules::Rules;
use crate::world::{Quota, Stage, World, Wrong};

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
        ];
        properties.push(Property::always(BOUND, Self::is_bounded));
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
            let inside =
                |target: &&crate::world::Target| target.namespace == namespace && target.stage == Stage::In;
            let targets = world.targets.iter().filter(inside).map(|_| self.need).sum::<u8>();
            quotas.iter().all(|quota| quota.used <= most + targets + world.taken)
        })
    }
}
