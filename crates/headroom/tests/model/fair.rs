//! Whether things end well from a state in which nothing goes wrong any more.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use parking_lot::RwLock;
use sluice_engine::headroom::Plan;

use crate::actions::Action;
use crate::rules::Rules;
use crate::world::{Stage, World};

const MOST_STEPS: usize = 400;
/// virt-controller tries again whenever a quota changes; so often is enough.
const MOST_POSTS: usize = 6;

/// How long it takes.
#[derive(Clone, Copy, Debug, Default)]
struct Length {
    steps: usize,
    posts: usize,
}

/// States from which things end well, and how long that takes. They are those of one model: a clone knows none.
#[derive(Debug, Default)]
pub struct EndWell {
    lengths: RwLock<HashMap<u64, Length>>,
    hasher: RandomState,
}

impl Clone for EndWell {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Rules {
    /// Everybody goes on, one after the other, until nobody has anything to do. Many states lead to the same ones: each
    /// is followed once.
    pub fn ends_well(&self, world: &World) -> bool {
        let known = &self.end_well;
        let mut world = world.clone();
        let mut length = Length::default();
        let mut passed = Vec::new();
        let end = loop {
            let state = known.hasher.hash_one(&world);
            if let Some(rest) = known.lengths.read().get(&state) {
                let whole = Length { steps: length.steps + rest.steps, posts: length.posts + rest.posts };
                if whole.steps < MOST_STEPS && whole.posts < MOST_POSTS {
                    break whole;
                }
            }
            passed.push((state, length));
            match self.next(&world, length.posts) {
                Some(_) if length.steps == MOST_STEPS => return false,
                Some(next) => {
                    length.steps += 1;
                    length.posts += usize::from(matches!(next, Action::Post(_)));
                    self.act(&mut world, &next);
                }
                None if self.is_goal(&world) => break length,
                None => return false,
            }
        };
        // With no more posts allowed it may have gone another way from the states on it.
        if end.posts < MOST_POSTS {
            let rest = |at: Length| Length { steps: end.steps - at.steps, posts: end.posts - at.posts };
            known.lengths.write().extend(passed.into_iter().map(|(state, at)| (state, rest(at))));
        }
        true
    }

    /// What happens next when nothing goes wrong, after virt-controller has tried so often.
    fn next(&self, world: &World, posts: usize) -> Option<Action> {
        let mut actions = Vec::new();
        self.possible(world, &mut actions);
        if posts < MOST_POSTS {
            let waiting = world.targets.iter().enumerate().filter(|(_, t)| t.stage == Stage::Idle);
            let worth = waiting.filter(|(_, target)| {
                matches!(self.plan(world, target.namespace), Plan::Raise(_) | Plan::Fits { .. })
            });
            actions.extend(worth.map(|(position, _)| Action::Post(position)));
        } else {
            actions.retain(|action| !matches!(action, Action::Post(_)));
        }
        actions.into_iter().min_by_key(urgency)
    }
}

/// Time passes only when nothing else can happen, and a lock is waited for to the end.
fn urgency(action: &Action) -> u8 {
    match action {
        Action::Land(_) => 0,
        Action::Enforce { .. } | Action::Know { .. } | Action::Arrive { .. } => 1,
        Action::Judge { .. } => 2,
        Action::Restart(_) => 3,
        Action::Step(_) | Action::Refuse(_) | Action::StepSweep(_) => 4,
        Action::Sync { .. } => 5,
        Action::Ask { .. } => 6,
        Action::NotSeen(_) => 7,
        Action::StartSweep { .. } => 8,
        Action::Post(_) => 9,
        Action::Tick(_) => 10,
        _ => 11,
    }
}
