//! Whether things end well from a state in which nothing goes wrong any more.

use sluice_engine::headroom::Plan;

use crate::actions::Action;
use crate::rules::Rules;
use crate::world::{Stage, World};

const MOST_STEPS: usize = 400;
/// virt-controller tries again whenever a quota changes; so often is enough.
const MOST_POSTS: usize = 6;

impl Rules {
    /// Everybody goes on, one after the other, until nobody has anything to do.
    pub fn ends_well(&self, world: &World) -> bool {
        self.settle(world).is_some_and(|end| self.is_goal(&end))
    }

    /// Where that leads; `None` if it does not end.
    pub fn settle(&self, world: &World) -> Option<World> {
        let mut world = world.clone();
        let mut posts = 0;
        let mut actions = Vec::new();
        for _ in 0..MOST_STEPS {
            actions.clear();
            self.possible(&world, &mut actions);
            if posts < MOST_POSTS {
                let waiting = world.targets.iter().enumerate().filter(|(_, t)| t.stage == Stage::Idle);
                let worth = waiting.filter(|(_, target)| {
                    matches!(self.plan(&world, target.namespace), Plan::Raise(_) | Plan::Fits { .. })
                });
                actions.extend(worth.map(|(position, _)| Action::Post(position)));
            } else {
                actions.retain(|action| !matches!(action, Action::Post(_)));
            }
            let Some(next) = actions.iter().min_by_key(|action| urgency(action)) else { return Some(world) };
            posts += usize::from(matches!(next, Action::Post(_)));
            self.act(&mut world, next);
        }
        None
    }
}

/// Time passes only when nothing else can happen, and a lock is waited for to the end.
fn urgency(action: &Action) -> u8 {
    match action {
        Action::Land(_) => 0,
        Action::Enforce { .. } | Action::Know { .. } | Action::Arrive { .. } => 1,
        Action::Judge { .. } => 2,
        Action::Restart(_) => 3,
        Action::Step(_) | Action::StepSweep(_) => 4,
        Action::Sync { .. } => 5,
        Action::Ask { .. } => 6,
        Action::NotSeen(_) => 7,
        Action::StartSweep { .. } => 8,
        Action::Post(_) => 9,
        Action::Tick(_) => 10,
        _ => 11,
    }
}
