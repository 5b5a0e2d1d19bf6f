//! Requests: done and answered, or not, or later.

use sluice_index::VmiWire;

use super::server::{Kind, Server, wire};
use super::step::{Fault, reply};
use super::world::{Request, World};
use crate::{Action, Answer, NotRead, Outcome, RecordedIn};

/// A request's time limit: nothing arrives after it.
const REQUEST_MS: u64 = 5_000;

/// What the watch has to show before such an action has an outcome.
const fn caught_up(action: &Action) -> Option<Kind> {
    match action {
        Action::CatchUp => Some(Kind::Pod),
        Action::CatchUpClusterQuotas => Some(Kind::ClusterQuota),
        _ => None,
    }
}

impl World {
    /// Does what was asked for; the answer is given later.
    pub fn execute(&mut self, at: usize) {
        let many = self.requests.len();
        if many == 0 {
            return;
        }
        let at = at % many;
        let is_dead = self.now_ms > self.requests[at].begun_ms + REQUEST_MS;
        let is_question = matches!(self.requests[at].action, Action::Evaluate(_));
        if self.requests[at].outcome.is_none()
            && !is_question
            && !is_dead
            && caught_up(&self.requests[at].action).is_none()
        {
            let action = self.requests[at].action.clone();
            self.requests[at].outcome = Some(self.outcome(&action, Fault::None));
        }
    }

    pub fn answer(&mut self, at: usize, fault: Fault) {
        if self.requests.is_empty() {
            return;
        }
        let mut request = self.requests.remove(at % self.requests.len());
        let is_dead = self.now_ms > request.begun_ms + REQUEST_MS;
        let fault = if is_dead { Fault::RequestLost } else { fault };
        if std::env::var_os("SIM_TRACE").is_some() {
            eprintln!(
                "{}ms answer r{} {:?} {fault:?} done={:?}",
                self.now_ms, request.replica, request.action, request.outcome
            );
        }
        if let Action::ReadRound(read) = &request.action {
            // The state may be any that is of this version or a later one.
            let state = self.state_of(read.round.version);
            self.evaluators.read.insert((request.replica, request.life, read.round.number), state);
        }
        if let Action::Evaluate(question) = &request.action {
            if self.lives[request.replica] == request.life {
                let (outcome, now) = (self.evaluated(request.replica, question, fault), self.moment());
                self.replicas[request.replica].state.on_outcome(outcome, now);
            }
            return;
        }
        if let Some(kind) = caught_up(&request.action) {
            let is_alive = self.lives[request.replica] == request.life;
            if is_alive && !self.replicas[request.replica].has_seen(&self.server, kind, request.logged) {
                return self.requests.push(request);
            }
        }
        let outcome = match request.outcome.take() {
            Some(outcome) if !is_dead => outcome,
            done => {
                if matches!(fault, Fault::Late) && done.is_none() {
                    // No process waits for the answer any more.
                    let action = request.action.clone();
                    self.requests.push(Request { life: u32::MAX, action, outcome: None, ..request });
                }
                self.outcome(&request.action, fault)
            }
        };
        if self.lives[request.replica] == request.life {
            let now = self.moment();
            self.replicas[request.replica].state.on_outcome(outcome, now);
        }
    }

    /// What a release takes was there.
    fn outcome(&mut self, action: &Action, fault: Fault) -> Outcome {
        let before = matches!(action, Action::Release(_)).then(|| self.taken());
        let outcome = self.server.outcome(action, fault);
        if let Action::Release(release) = action {
            self.price_released(release);
        }
        if let Some(before) = before {
            self.check_room(&before);
        }
        outcome
    }
}

impl Server {
    /// Does what was asked for as far as the fault allows it, and answers.
    pub fn outcome(&mut self, action: &Action, fault: Fault) -> Outcome {
        let is_done = matches!(fault, Fault::None | Fault::AnswerLost);
        match action {
            Action::Record(record) => {
                if let (RecordedIn::NewCharge { unshown: Some(version) }, Fault::Busy) =
                    (&record.object, fault)
                {
                    // Of two requests the first one is done.
                    self.show_limits(record, *version);
                }
                let answer = is_done.then(|| self.record(record));
                Outcome::Recorded(record.quota, record.uid.clone(), reply(answer, fault))
            }
            Action::Release(release) => {
                // A refusal is given only for the very version that there is.
                let answer = match fault {
                    Fault::Refused => Some(self.refuse(release)),
                    _ => is_done.then(|| self.release(release)),
                };
                let fault = if matches!(answer, Some(Answer::Stale(_))) { Fault::None } else { fault };
                Outcome::Released(release.pod, release.uid.clone(), reply(answer, fault))
            }
            Action::ListQuotas(namespaces) => {
                let one = if let [(_, name)] = namespaces.as_slice() { name } else { "" };
                let list = self.all(Kind::Quota, one).map(|(_, quota)| wire(quota.clone())).collect();
                let ids = namespaces.iter().map(|(id, _)| *id).collect();
                Outcome::Listed(ids, reply(is_done.then_some(Answer::Done(list)), fault))
            }
            Action::Read(pod) => {
                let answer = is_done.then(|| self.read(pod));
                Outcome::Read(pod.pod, pod.uid.clone(), reply(answer, fault))
            }
            Action::ReadMachine(read) => {
                let mut machines = self.all(Kind::Machine, &read.namespace).map(|(_, vmi)| wire(vmi.clone()));
                let uid = read.uid.to_string();
                let found = machines.find(|vmi: &VmiWire| vmi.metadata.uid.as_ref() == Some(&uid));
                let answer = is_done.then_some(Answer::Done(found));
                Outcome::MachineRead(read.clone(), Box::new(reply(answer, fault)))
            }
            Action::CatchUp => Outcome::CaughtUp,
            Action::CatchUpClusterQuotas => Outcome::ClusterQuotasCaughtUp,
            Action::ListTargets => Outcome::TargetsListed,
            Action::ReadRound(read) => {
                let not_read = NotRead { text: "not read".into(), are_too_many: false };
                let read_now = if is_done { Ok(()) } else { Err(not_read) };
                Outcome::RoundRead(read.namespace, read.round.number, read_now)
            }
            Action::WriteEvent(_) | Action::Answer(..) | Action::Evaluate(_) => unreachable!("{action:?}"),
        }
    }
}
