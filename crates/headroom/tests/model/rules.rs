//! What is modelled: amounts, how often something may happen, and which guard is taken away.

use std::collections::VecDeque;

use sluice_headroom::protocol::Rests;

use crate::ends::EndWell;
use crate::world::{Budget, Fate, Flight, Process, Quota, Stage, Target, Thief, World};

/// A guard that is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Without {
    /// The policy on charges accepts only the target's charge.
    ChargeGuard,
    /// After the end of a mark the policy on charges accepts what the spec allows.
    EndedGuard,
    /// The policy on charges ends by the clock.
    ChargeClock,
    /// `status.hard` of a marked quota is changed by Sluice alone.
    HardGuard,
    /// The policy on pods.
    Lock,
    /// API servers are asked whether they know of the raise.
    Settle,
    SettleEverywhere,
    /// The watch of quotas has shown the raise before a pool is looked at once more.
    ShownRaise,
    /// What a session has written counts while the watch does not show it yet.
    OwnWrites,
    /// The pool is looked at once more after the raise.
    PoolAfterRaise,
    /// A raise holds for one version of the quota.
    Swap,
    SwapOfRestore,
    ExactFit,
    /// Only keys that were raised are put back.
    RaisedKeysOnly,
    /// A session ends only its own raise.
    OwnMark,
    /// The sweep leaves marks alone that are not over.
    EndOfMark,
    Sweep,
    /// The target is waited for as long as the API server may wait for other webhooks.
    HoldForSiblings,
    /// A mark is set anew before its end.
    Renewal,
    /// A charge is not taken for the target.
    Seeing,
    /// The target counts as seen whichever replica was asked about it.
    AnyReplica,
    /// Pods are read before a theft is told.
    ReadPods,
    /// What is above a quota has to be explained.
    Account,
    /// As [`Self::Account`], and the model looks at what comes of raises, not at each.
    AccountAtAll,
    /// Nothing is raised for a while where a lock was in vain.
    Rests,
    /// Whether it rests is asked again once a session has read what is granted.
    RestsAfterRead,
    /// API servers have a limited time to know of a raise.
    SettleTime,
    /// Grants are read before the raise.
    LiveGrants,
    UniqueMark,
}

/// A model of head-room.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// `spec.hard` and usage, by namespace and quota.
    pub quotas: Vec<Vec<(u8, u8)>>,
    /// Namespace and process of each target.
    pub targets: Vec<(usize, usize)>,
    pub need: u8,
    /// So much of it is KubeVirt's overhead, which the target has and its source has not.
    pub overhead: u8,
    /// What is granted above each quota; 0 is no grant at all.
    pub additional: u8,
    /// All namespaces share what is granted.
    pub is_pool: bool,
    /// Any of two replicas is asked about an attempt. Otherwise each migration has a process of its own.
    pub roams: bool,
    /// Namespaces rest. The watch of quotas shows each state, one after the other; otherwise it may leave some out.
    pub rests: bool,
    /// So many sweeps may be under way at once.
    pub sweeps: usize,
    pub servers: usize,
    pub tries: u8,
    /// Namespace and size of each pod of tenants.
    pub thieves: Vec<(usize, u8)>,
    /// The other webhook takes up to 10 s.
    pub slow_sibling: bool,
    pub ticks: u8,
    pub budget: Budget,
    /// What the administrator changes a spec to.
    pub edit: u8,
    /// Every refusal of a target by the quota counts, also where no room was promised.
    pub no_refusal: bool,
    pub without: Option<Without>,
    pub ends: EndWell,
}

impl Rules {
    pub fn lacks(&self, guard: Without) -> bool {
        self.without == Some(guard)
    }

    pub fn init(&self) -> World {
        let namespace = |quotas: &Vec<(u8, u8)>| {
            quotas.iter().map(|(spec, used)| Quota::new(*spec, *used)).collect::<Vec<_>>()
        };
        let quotas: Vec<Vec<Quota>> = self.quotas.iter().map(namespace).collect();
        let target = |&(namespace, process): &(usize, usize)| {
            let (stage, tries) = (Stage::Idle, self.tries);
            let fate = Fate::UnderWay;
            Target { namespace, process, stage, posted_at: 0, tries, promised: false, fate }
        };
        let thief =
            |&(namespace, size): &(usize, u8)| Thief { namespace, size, flight: Flight::Idle, since: None };
        let processes = self.targets.iter().map(|(_, process)| process + 1).max().unwrap_or(0);
        let processes = if self.roams { 2 } else { processes };
        let (seen, granted) = (vec![false; self.targets.len()], self.additional > 0);
        let process = Process {
            quotas: quotas.clone(),
            seen,
            granted,
            rests: Rests::default(),
            events: VecDeque::new(),
            restarted: false,
        };
        World {
            clock: 0,
            caches: vec![quotas.clone(); self.servers],
            processes: vec![process; processes],
            targets: self.targets.iter().map(target).collect(),
            thieves: self.thieves.iter().map(thief).collect(),
            actual: self.quotas.iter().map(|quotas| quotas.first().map_or(0, |(_, used)| *used)).collect(),
            locks: vec![(None, None); quotas.len()],
            quotas,
            runs: Vec::new(),
            sweeping: Vec::new(),
            orphans: Vec::new(),
            granted,
            budget: self.budget,
            sessions: 0,
            taken: 0,
            wrong: None,
        }
    }
}
