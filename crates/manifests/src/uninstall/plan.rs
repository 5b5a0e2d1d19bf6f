//! What is left to do.

use std::collections::BTreeMap;

use super::collection::Collection;
use super::inventory::{Part, Stage, goes_with_aaq};
use super::object::ObjectName;

/// An object that has a name of ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub uid: String,
    /// It has our label.
    pub is_ours: bool,
    /// It is deleted already, and waits for finalizers.
    pub is_ending: bool,
    /// It has an owner, or the label of another program.
    pub is_of_others: bool,
    /// `spec.replicas` of a Deployment.
    pub replicas: u64,
}

/// What was seen of an installation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Where the installation is.
    pub namespace: String,
    /// What is there of its [inventory](super::inventory()), in the same order.
    pub parts: Vec<(Part, Found)>,
    /// The CRDs that are there.
    pub definitions: Vec<(ObjectName, Found)>,
    /// How many objects there are of each collection that are not deleted yet.
    pub collections: BTreeMap<Collection, usize>,
    /// How many there are that are deleted, and wait for finalizers.
    pub ending: BTreeMap<Collection, usize>,
    /// Pods of controller and webhook.
    pub processes: usize,
    /// Pods behind the gate.
    pub held: usize,
    /// ResourceQuotas with a mark.
    pub raised: usize,
    /// `AAQ`s and `MTQ`s with a finalizer that the operator takes away.
    pub finalized: usize,
}

/// What is to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Objects that were applied stay: whoever has applied them deletes them, as Helm does.
    pub keep_objects: bool,
    /// The operator and what it needs itself stay: only what it [makes by the word of an `AAQ`](super::goes_with_aaq) goes.
    pub keep_operator: bool,
    /// Quotas and grants of head-room go.
    pub quotas: bool,
    /// The CRDs go.
    pub definitions: bool,
}

/// What the next step waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// API servers have followed what was deleted.
    Followed,
    /// The pods of controller and webhook have ended, and with them the raises that they have made.
    Ended,
}

/// Something to do. Doing it twice is as doing it once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Take all replicas of a Deployment.
    Stop(ObjectName),
    /// Delete the object that has this uid.
    Delete(ObjectName, String),
    Wait(Wait),
    /// Take the gate off all pods, in the order in which they wait, until a list has none.
    Release,
    /// Put back all quotas that are raised.
    Restore,
    /// Delete all objects of a collection.
    Clear(Collection),
    /// Take the finalizers off `AAQ`s and `MTQ`s that only the operator would take away.
    Unfinalize,
}

impl Seen {
    /// Objects that refuse or gate pods under a name of ours and without our label. What they do is not known, so nothing is
    /// done before somebody says whose they are.
    pub fn blocking(&self) -> impl Iterator<Item = &ObjectName> {
        self.without_label().filter(|part| part.stage < Stage::Rights).map(|part| &part.object)
    }

    /// Objects that have a name of ours, and not our label.
    pub fn foreign(&self) -> impl Iterator<Item = &ObjectName> {
        // A namespace that others have made, as Helm does, is theirs.
        self.without_label().filter(|part| part.stage != Stage::Home).map(|part| &part.object)
    }

    fn without_label(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|(_, found)| !found.is_ours).map(|(part, _)| part)
    }

    /// The namespace of the installation, if it is one of its objects.
    #[must_use]
    pub fn home(&self) -> Option<(&ObjectName, &Found)> {
        let mut all = self.parts.iter().filter(|(_, found)| found.is_ours);
        all.find(|(part, _)| part.stage == Stage::Home).map(|(part, found)| (&part.object, found))
    }

    /// How many objects there are of a collection that are not deleted yet.
    #[must_use]
    pub fn count(&self, collection: Collection) -> usize {
        self.collections.get(&collection).copied().unwrap_or(0)
    }
}

/// What is to be done, in order. Nothing where something [blocks](Seen::blocking). The namespace comes after it and is
/// judged apart, by what else is in it.
#[must_use]
pub fn plan(seen: &Seen, wish: &Wish) -> Vec<Step> {
    if seen.blocking().next().is_some() {
        return Vec::new();
    }
    let ours = || seen.parts.iter().filter(|(_, found)| found.is_ours);
    let delete = |stage: Stage| -> Vec<Step> {
        let goes = |part: &Part| {
            let is_meant = !wish.keep_objects || goes_anyway(part);
            part.stage == stage && is_meant && (!wish.keep_operator || goes_with_aaq(part))
        };
        let due = ours().filter(|(part, found)| goes(part) && !found.is_ending);
        due.map(|(part, found)| Step::Delete(part.object.clone(), found.uid.clone())).collect()
    };
    // Controller and webhook are made, the operator is applied.
    let stop = |is_made: bool| -> Vec<Step> {
        let is_one = |part: &Part| part.object.kind.kind == "Deployment" && part.is_made == is_made;
        let due = ours().filter(|(part, found)| is_one(part) && found.replicas > 0);
        due.map(|(part, _)| Step::Stop(part.object.clone())).collect()
    };
    let (refuses, gates, rights) = (delete(Stage::Refuses), delete(Stage::Gates), delete(Stage::Rights));
    let processes = stop(true);
    let is_in_force = !refuses.is_empty() || !gates.is_empty();
    let may_run = !processes.is_empty() || seen.processes > 0 || !rights.is_empty();
    let mut steps = delete(Stage::Operator);
    if !wish.keep_operator {
        steps.extend(stop(false));
    }
    let wait = |when: bool, wait: Wait| when.then_some(Step::Wait(wait));
    // Each wait is there as long as what comes after it is: a run that was killed before it has not waited.
    steps.extend(wait(is_in_force, Wait::Followed));
    steps.extend(refuses);
    steps.extend(wait(!gates.is_empty(), Wait::Followed));
    steps.extend(gates);
    steps.extend(wait(is_in_force || may_run, Wait::Followed));
    let ended = wait(!processes.is_empty() || seen.processes > 0, Wait::Ended);
    steps.extend(processes.into_iter().chain(ended));
    steps.extend(rights);
    steps.extend((is_in_force || may_run || seen.held > 0).then_some(Step::Release));
    steps.extend((may_run || seen.raised > 0).then_some(Step::Restore));
    steps.extend(delete(Stage::Guards));
    steps.extend(clear(seen, &Collection::MADE));
    steps.extend(delete(Stage::Objects));
    steps.extend((seen.finalized > 0 && !wish.keep_operator).then_some(Step::Unfinalize));
    if wish.quotas {
        steps.extend(clear(seen, &Collection::OF_USERS));
    }
    if wish.definitions {
        let due = seen.definitions.iter().filter(|(_, found)| !found.is_ending && !found.is_of_others);
        steps.extend(due.map(|(object, found)| Step::Delete(object.clone(), found.uid.clone())));
    }
    steps
}

/// No manifest contains it, or it is a right without which a process that cannot be stopped does nothing.
fn goes_anyway(part: &Part) -> bool {
    part.is_made || part.stage < Stage::Objects
}

fn clear(seen: &Seen, collections: &[Collection]) -> Vec<Step> {
    collections.iter().filter(|each| seen.count(**each) > 0).map(|each| Step::Clear(*each)).collect()
}
