//! The exact sums of what pods take from one quota.

use crate::charge::{Amount, Charge};
use crate::resource::Resource;

/// What kind of claim on the quota a charge is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// A pod that is seen without gates and is not terminal.
    Counted,
    /// A pod that was decided to be released and is not yet seen released.
    Assumed,
    /// Recorded in the quota's status by another leader and not found among the pods: possibly on its way
    /// (a predecessor's release that has not arrived yet).
    InFlight,
}

/// The running sums of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub resource: Resource,
    /// The limit; the smallest one if the quota names the resource twice (`cpu` and `requests.cpu`).
    pub hard: Amount,
    counted: Amount,
    assumed: Amount,
    in_flight: Amount,
}

impl Line {
    /// Everything that is taken or may be: counted, assumed and in flight.
    #[must_use]
    pub fn used(&self) -> Amount {
        self.counted.saturating_add(self.assumed).saturating_add(self.in_flight)
    }

    /// The part of [`Self::used`] that is taken by claims of this kind.
    #[must_use]
    pub fn claimed(&self, claim: Claim) -> Amount {
        match claim {
            Claim::Counted => self.counted,
            Claim::Assumed => self.assumed,
            Claim::InFlight => self.in_flight,
        }
    }

    fn claimed_mut(&mut self, claim: Claim) -> &mut Amount {
        match claim {
            Claim::Counted => &mut self.counted,
            Claim::Assumed => &mut self.assumed,
            Claim::InFlight => &mut self.in_flight,
        }
    }
}

/// One resource that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    /// What there is too little of.
    pub resource: Resource,
    /// What the pod asks for.
    pub requested: Amount,
    /// What is taken already.
    pub used: Amount,
    pub hard: Amount,
}

impl Excess {
    /// Whether the pod asks for more than the whole quota, so that it does not fit whatever ends.
    #[must_use]
    pub fn never_fits(&self) -> bool {
        self.requested > self.hard
    }
}

/// Running sums of the charges of one quota, over the resources its `hard` names.
///
/// [`Ledger::apply`] and [`Ledger::revert`] are exact inverses; both cost time in the length of the charge,
/// not in the number of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Sorted by resource, each resource once.
    lines: Vec<Line>,
}

impl Ledger {
    /// An empty ledger with these limits.
    #[must_use]
    pub fn new(hard: impl IntoIterator<Item = (Resource, Amount)>) -> Self {
        let mut lines: Vec<Line> = hard
            .into_iter()
            .map(|(resource, hard)| Line {
                resource,
                hard,
                counted: Amount::ZERO,
                assumed: Amount::ZERO,
                in_flight: Amount::ZERO,
            })
            .collect();
        lines.sort_by(|a, b| (&a.resource, a.hard).cmp(&(&b.resource, b.hard)));
        lines.dedup_by(|later, first| later.resource == first.resource);
        lines.shrink_to_fit();
        Self { lines }
    }

    /// The sums, sorted by resource.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The sums of one resource, if the quota names it.
    #[must_use]
    pub fn line(&self, resource: &Resource) -> Option<&Line> {
        self.lines.binary_search_by(|line| line.resource.cmp(resource)).ok().and_then(|at| self.lines.get(at))
    }

    /// Adds a charge. Resources the quota does not name are not its business.
    pub fn apply(&mut self, claim: Claim, charge: &Charge) {
        self.change(charge, |line, amount| {
            let sum = line.claimed_mut(claim);
            *sum = sum.saturating_add(amount);
        });
    }

    /// Takes a charge back that was added with the same claim.
    pub fn revert(&mut self, claim: Claim, charge: &Charge) {
        self.change(charge, |line, amount| {
            let sum = line.claimed_mut(claim);
            *sum = sum.saturating_sub(amount);
        });
    }

    /// A pod that was not assumed here has shown up: what was in flight on its account has arrived.
    pub fn arrive(&mut self, charge: &Charge) {
        self.change(charge, |line, amount| {
            line.in_flight = line.in_flight.saturating_sub(amount).max(Amount::ZERO);
        });
    }

    /// Reserves what `recorded` (a `status.used`) holds above the sums: it is taken to be in flight.
    ///
    /// `unrecorded` are charges that are assumed here but that cannot have been recorded: they explain nothing
    /// of what is recorded. Returns whether anything was added.
    pub fn reserve_in_flight(
        &mut self,
        recorded: impl IntoIterator<Item = (Resource, Amount)>,
        unrecorded: &[&Charge],
    ) -> bool {
        let mut added = false;
        for (resource, amount) in recorded {
            let Ok(at) = self.lines.binary_search_by(|line| line.resource.cmp(&resource)) else { continue };
            let Some(line) = self.lines.get_mut(at) else { continue };
            let mut explained = line.used();
            for charge in unrecorded {
                explained = explained.saturating_sub(charge.get(&resource).unwrap_or(Amount::ZERO));
            }
            let above = amount.limited().saturating_sub(explained);
            if above > Amount::ZERO {
                line.in_flight = line.in_flight.saturating_add(above);
                added = true;
            }
        }
        added
    }

    /// Forgets what was in flight. Returns whether there was anything.
    pub fn forget_in_flight(&mut self) -> bool {
        let mut any = false;
        for line in &mut self.lines {
            any |= line.in_flight != Amount::ZERO;
            line.in_flight = Amount::ZERO;
        }
        any
    }

    /// Takes over other limits and keeps the sums.
    ///
    /// Returns false, and changes nothing, if the limits name other resources: then the sums have to be made
    /// anew from the pods.
    #[must_use]
    pub fn replace_hard(&mut self, hard: impl IntoIterator<Item = (Resource, Amount)>) -> bool {
        let fresh = Self::new(hard);
        let same = fresh.lines.len() == self.lines.len()
            && fresh.lines.iter().zip(&self.lines).all(|(new, old)| new.resource == old.resource);
        if same {
            for (line, new) in self.lines.iter_mut().zip(fresh.lines) {
                line.hard = new.hard;
            }
        }
        same
    }

    /// What is missing for `charge` beside everything used and, if given, beside `reserved` too.
    ///
    /// Only resources of which the charge takes more than zero are looked at (`docs/quota-semantics.md`,
    /// *Enforcement*): a pod that takes nothing of an overdrawn resource is not held up by it. Empty means that it
    /// fits.
    #[must_use]
    pub fn excess(&self, charge: &Charge, reserved: Option<&Charge>) -> Vec<Excess> {
        let mut missing = Vec::new();
        for (resource, requested) in charge.iter() {
            if *requested <= Amount::ZERO {
                continue;
            }
            let Some(line) = self.line(resource) else { continue };
            let beside = reserved.and_then(|other| other.get(resource)).unwrap_or(Amount::ZERO);
            let total = line.used().saturating_add(beside).saturating_add(*requested);
            if total > line.hard {
                missing.push(Excess {
                    resource: resource.clone(),
                    requested: *requested,
                    used: line.used(),
                    hard: line.hard,
                });
            }
        }
        missing
    }

    /// Whether `charge` could ever fit, were the quota empty.
    #[must_use]
    pub fn could_fit(&self, charge: &Charge) -> bool {
        charge.iter().all(|(resource, requested)| {
            *requested <= Amount::ZERO || self.line(resource).is_none_or(|line| *requested <= line.hard)
        })
    }

    fn change(&mut self, charge: &Charge, mut change: impl FnMut(&mut Line, Amount)) {
        let mut lines = self.lines.iter_mut().peekable();
        for (resource, amount) in charge.iter() {
            while lines.next_if(|line| line.resource < *resource).is_some() {}
            if let Some(line) = lines.next_if(|line| line.resource == *resource) {
                change(line, *amount);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milli(amount: i128) -> Amount {
        Amount::from_nanos(amount * 1_000_000)
    }

    fn cpu(amount: i128) -> Charge {
        Charge::from_pairs([(Resource::Cpu, milli(amount)), (Resource::Pods, Amount::ONE)])
    }

    fn ledger(hard: i128) -> Ledger {
        Ledger::new([(Resource::Cpu, milli(hard))])
    }

    fn claimed(ledger: &Ledger, claim: Claim) -> Amount {
        ledger.line(&Resource::Cpu).map_or(Amount::ZERO, |line| line.claimed(claim))
    }

    #[test]
    fn of_two_limits_on_one_resource_the_smaller_counts() {
        let ledger = Ledger::new([(Resource::Cpu, milli(4000)), (Resource::Cpu, milli(2000))]);
        assert_eq!(ledger.lines().len(), 1);
        assert!(ledger.excess(&cpu(2000), None).is_empty());
        assert_eq!(ledger.excess(&cpu(2001), None).len(), 1);
    }

    #[test]
    fn only_what_is_asked_for_can_be_missing() {
        let mut ledger = Ledger::new([(Resource::Cpu, milli(100)), (Resource::Pods, Amount::ONE)]);
        ledger.apply(Claim::Counted, &Charge::from_pairs([(Resource::Cpu, milli(500))]));
        let pod = Charge::from_pairs([(Resource::Cpu, Amount::ZERO), (Resource::Pods, Amount::ONE)]);
        assert!(ledger.excess(&pod, None).is_empty(), "overdrawn CPU does not hold up a pod without CPU");
        assert_eq!(
            ledger.excess(&cpu(1), None),
            [Excess { resource: Resource::Cpu, requested: milli(1), used: milli(500), hard: milli(100) }]
        );
    }

    #[test]
    fn a_reservation_counts_beside_what_is_used() {
        let mut ledger = ledger(1000);
        ledger.apply(Claim::Assumed, &cpu(300));
        assert!(ledger.excess(&cpu(200), Some(&cpu(500))).is_empty());
        assert_eq!(ledger.excess(&cpu(201), Some(&cpu(500))).len(), 1);
    }

    #[test]
    fn what_is_recorded_above_the_sums_is_in_flight_until_it_arrives() {
        let mut ledger = ledger(1000);
        ledger.apply(Claim::Counted, &cpu(200));
        ledger.apply(Claim::Assumed, &cpu(100));
        let unrecorded = cpu(100);
        assert!(ledger.reserve_in_flight([(Resource::Cpu, milli(600))], &[&unrecorded]));
        assert_eq!(claimed(&ledger, Claim::InFlight), milli(400), "600m recorded, 200m of them explained");
        assert!(!ledger.reserve_in_flight([(Resource::Cpu, milli(600))], &[&unrecorded]), "reserved once");
        ledger.arrive(&cpu(150));
        assert_eq!(claimed(&ledger, Claim::InFlight), milli(250));
        ledger.arrive(&cpu(900));
        assert_eq!(claimed(&ledger, Claim::InFlight), Amount::ZERO, "never below nothing");
        assert!(!ledger.forget_in_flight());
    }

    #[test]
    fn absurd_records_are_reserved_without_overflow() {
        let mut ledger = ledger(1000);
        assert!(ledger.reserve_in_flight([(Resource::Cpu, Amount::from_nanos(i128::MAX))], &[]));
        assert_eq!(claimed(&ledger, Claim::InFlight), Amount::LIMIT);
        assert!(!ledger.reserve_in_flight([(Resource::Cpu, Amount::from_nanos(i128::MIN))], &[]));
        assert!(ledger.forget_in_flight());
        assert!(ledger.excess(&cpu(1000), None).is_empty());
    }

    #[test]
    fn other_resources_need_a_new_ledger_other_limits_do_not() {
        let mut ledger = ledger(1000);
        ledger.apply(Claim::Counted, &cpu(700));
        assert!(ledger.replace_hard([(Resource::Cpu, milli(600))]));
        assert_eq!(ledger.excess(&cpu(1), None).len(), 1);
        let before = ledger.clone();
        assert!(!ledger.replace_hard([(Resource::Memory, milli(600))]));
        assert_eq!(ledger, before);
    }
}
