//! What API servers and kube-controller-manager do with quotas and pods.

use sluice_engine::headroom::restore;
use sluice_headroom::protocol::{Left, sweep};

use crate::rules::{Rules, Without};
use crate::world::{
    Fate, Flight, Quota, RaiseWrite, Room, Stage, Target, World, Wrong, count, key, native, second_key,
};

/// Locks end within so many seconds by the policy, which allows for clocks that differ. Here there is one.
const LONGEST_LOCK: i64 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pod {
    Target,
    Other,
}

impl Rules {
    /// A write by Sluice. Marks that end too late are refused.
    fn may_mark(world: &World, mark: i64) -> bool {
        mark / 1000 <= world.now_ms() / 1000 + LONGEST_LOCK
    }

    /// Whether it was written; otherwise the quota is not as it was seen.
    pub fn raise(&self, world: &mut World, write: &RaiseWrite) -> bool {
        let additional = if self.is_pool { u8::MAX / 2 } else { self.additional };
        let (may, need) = (Self::may_mark(world, write.mark), self.need);
        let quota = &mut world.quotas[write.namespace][write.quota];
        if !may || (quota.version != write.version && !self.lacks(Without::Swap)) {
            return false;
        }
        let to = if self.lacks(Without::ExactFit) { quota.spec + self.additional } else { write.to };
        let beyond = to > quota.own().max(quota.spec + additional);
        quota.hard = to;
        quota.mark = Some(write.mark);
        quota.room = Some(Room { base: quota.used, need });
        quota.written();
        let is_raised = to > world.quotas[write.namespace][write.quota].spec;
        if is_raised && !write.explained {
            world.blame(Wrong::Unexplained);
        } else if !write.granted {
            world.blame(Wrong::LockWithoutGrant);
        } else if beyond {
            world.blame(Wrong::BeyondGrant);
        }
        true
    }

    /// Whether a quota is above its spec by targets of migrations that are under way, and by pods that were there when the
    /// spec was written. A charge without a pod counts for nothing.
    pub fn is_explained(&self, world: &World, (namespace, position): (usize, usize)) -> bool {
        let used = world.actual[namespace].min(world.quotas[namespace][position].used);
        used <= self.explained(world, (namespace, position))
    }

    /// How much may be used of a quota by the account: its spec or what is older, what migrations take,
    /// and the overhead of machines.
    pub fn explained(&self, world: &World, (namespace, position): (usize, usize)) -> u8 {
        let quota = &world.quotas[namespace][position];
        let thieves = || world.thieves.iter().filter(|thief| thief.namespace == namespace);
        let young: u8 =
            thieves().filter(|it| it.since.is_some_and(|at| at > quota.since)).map(|it| it.size).sum();
        let left = self.need * world.count(namespace, Fate::Left);
        let passing = world.passing(namespace, self.need);
        let old = world.actual[namespace].saturating_sub(young + left + passing);
        passing + quota.spec.max(old) + self.overhead * world.machines(namespace)
    }

    pub fn renew(world: &mut World, (namespace, position): (usize, usize), version: u8, mark: i64) -> bool {
        let may = Self::may_mark(world, mark);
        let quota = &mut world.quotas[namespace][position];
        if !may || quota.version != version {
            return false;
        }
        quota.mark = Some(mark);
        quota.written();
        true
    }

    /// Ends a raise as the production plan says for the quota as it was seen.
    pub fn restore(&self, world: &mut World, (namespace, position): (usize, usize), seen: &Quota) -> bool {
        let Some(write) = restore(&native(position, seen)) else { return true };
        let quota = &mut world.quotas[namespace][position];
        if quota.version != seen.version && !self.lacks(Without::SwapOfRestore) {
            return false;
        }
        if let Some(amount) = write.keys.get(&key()) {
            quota.hard = count(amount);
        }
        quota.second[1] |= write.keys.contains_key(&second_key());
        if self.lacks(Without::RaisedKeysOnly) {
            (quota.hard, quota.second[1]) = (seen.spec, seen.second[0]);
        }
        if write.unmark {
            quota.mark = None;
        }
        (quota.plain, quota.room) = (quota.hard, None);
        quota.written();
        let is_undone = quota.hard != quota.spec;
        let is_unknown = quota.second[1] && !quota.second[2];
        if is_undone {
            world.blame(Wrong::EditUndone);
        } else if is_unknown {
            world.blame(Wrong::UsageUnknown);
        }
        true
    }

    /// What the sweep would end now.
    pub fn is_left(&self, world: &World, position: usize, quota: &Quota) -> bool {
        let quota = native(position, quota);
        if self.lacks(Without::Sweep) {
            return false;
        }
        if self.lacks(Without::EndOfMark) {
            return restore(&quota).is_some();
        }
        matches!(sweep(&quota, world.now_ms(), 1_000), Left::Now(_))
    }

    /// Whether a pod of a tenant passes the pods' policy.
    pub fn passes(&self, world: &World, server: usize, namespace: usize) -> bool {
        let quotas = &world.caches[server][namespace];
        self.lacks(Without::Lock) || !quotas.iter().any(|quota| world.is_live(quota))
    }

    /// Whether quota admission has something to do: it waits for its cache after a conflict.
    pub fn can_judge(&self, world: &World, server: usize, namespace: usize, size: u8) -> bool {
        let cache = &world.caches[server][namespace];
        *cache == world.quotas[namespace] || !fits(cache, size)
    }

    /// Whether the policy on charges accepts this one.
    fn may_charge(&self, world: &World, quota: &Quota, used: u8) -> bool {
        let is_free = if self.is_guarded(world, quota) {
            used == quota.hard || self.lacks(Without::ChargeGuard)
        } else {
            used <= quota.spec || self.lacks(Without::EndedGuard)
        };
        quota.mark.is_none() || quota.hard == quota.spec || is_free
    }

    /// Whether the policy on charges takes the mark of this quota to be live.
    fn is_guarded(&self, world: &World, quota: &Quota) -> bool {
        if self.lacks(Without::ChargeClock) { quota.mark.is_some() } else { world.is_live(quota) }
    }

    /// Quota admission charges each quota in turn; what it has written before a refusal stays. Whether the pod is let in.
    fn charge(&self, world: &mut World, (server, namespace): (usize, usize), size: u8, pod: Pod) -> bool {
        if !fits(&world.caches[server][namespace], size) {
            return false;
        }
        for position in 0..world.quotas[namespace].len() {
            let quota = world.quotas[namespace][position];
            let used = quota.used + size;
            if !self.may_charge(world, &quota, used) {
                world.taken += if position > 0 { size } else { 0 };
                return false;
            }
            // A quota that is only marked keeps nothing away that is in flight and would fit without Sluice.
            if world.is_live(&quota) && used <= quota.own() {
                excuse(world, namespace, pod);
            }
            let leaks = quota.room.is_some_and(|room| used > room.base + room.need) && used > quota.own();
            if leaks {
                world.blame(Wrong::LeakTooLarge);
            }
            let quota = &mut world.quotas[namespace][position];
            quota.used = used;
            quota.written();
        }
        world.actual[namespace] += size;
        true
    }

    pub fn charge_target(&self, world: &mut World, target: usize) {
        let Target { namespace, promised, .. } = world.targets[target];
        // The target of a session that did not get its turn may take the room of another one.
        let pod = if promised { Pod::Target } else { Pod::Other };
        let above = world.quotas[namespace].iter().any(|quota| quota.used + self.need > quota.own());
        if self.charge(world, (0, namespace), self.need, pod) {
            world.taken += if above && !promised { self.need } else { 0 };
            world.targets[target].stage = Stage::In;
            excuse(world, namespace, pod);
        } else {
            self.refuse(world, target, true);
        }
    }

    /// virt-controller hears of it.
    pub fn refuse(&self, world: &mut World, target: usize, by_quota: bool) {
        if by_quota && (world.targets[target].promised || self.no_refusal) {
            world.blame(Wrong::TargetRefused);
        }
        world.targets[target].stage = Stage::Idle;
        world.targets[target].promised = false;
    }

    pub fn charge_thief(&self, world: &mut World, thief: usize) {
        let pod = world.thieves[thief];
        let Flight::Passed { server, late } = pod.flight else { return };
        world.thieves[thief].flight = Flight::Done;
        let before = world.quotas[pod.namespace].clone();
        if !self.charge(world, (server, pod.namespace), pod.size, Pod::Other) {
            return;
        }
        world.thieves[thief].since = Some(world.clock + 1);
        let above = |quota: &&Quota| quota.used + pod.size > quota.own();
        let Some(most) = before.iter().filter(above).map(|q| q.used + pod.size - q.own().max(q.used)).max()
        else {
            return;
        };
        world.taken += most;
        if !before.iter().filter(above).any(|quota| world.is_live(quota)) {
            if before.iter().filter(above).any(|quota| quota.mark.is_some()) {
                world.blame(Wrong::ThiefInEndedRaise);
            }
            return;
        }
        // A pod of exactly the need that was in flight takes the place of the target; other ones must not.
        if pod.size != self.need {
            world.blame(Wrong::ThiefInLiveRaise);
        } else if late {
            world.blame(Wrong::ThiefAfterSettle);
        }
        excuse(world, pod.namespace, Pod::Other);
    }

    /// kube-controller-manager: the limits as they are wanted, the usage as it is. Whether that is accepted.
    pub fn sync(&self, world: &mut World, namespace: usize, position: usize) -> bool {
        let (actual, stored) = (world.actual[namespace], world.quotas[namespace][position]);
        let changes_hard = stored.mark.is_some() || stored.hard != stored.spec;
        if changes_hard && self.is_guarded(world, &stored) && !self.lacks(Without::HardGuard) {
            return false;
        }
        let quota = &mut world.quotas[namespace][position];
        (quota.hard, quota.plain, quota.used) = (quota.spec, quota.spec, actual);
        (quota.mark, quota.room, quota.stale) = (None, None, false);
        quota.second = [quota.second[0]; 3];
        quota.written();
        true
    }
}

/// The room in a namespace went to another pod than the target, as it may.
fn excuse(world: &mut World, namespace: usize, pod: Pod) {
    let targets =
        world.targets.iter_mut().filter(|target| target.namespace == namespace && pod == Pod::Other);
    targets.for_each(|target| target.promised = false);
}

/// Whether a cache of quota admission shows room for a pod.
fn fits(cache: &[Quota], size: u8) -> bool {
    let unknown = |quota: &Quota| quota.second[1] && !quota.second[2];
    cache.iter().all(|quota| quota.used + size <= quota.hard && !unknown(quota))
}
