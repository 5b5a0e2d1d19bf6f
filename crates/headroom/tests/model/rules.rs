//! What is modelled: amounts, budgets, and which guard of the protocol is taken away.

use stateright::{Model, Property};

use crate::fair::EndWell;
use crate::world::{
    Budget, Item, Namespace, Quota, Replica, SERVERS, Stage, SweepStep, Target, World, Wrong, granted, need,
};
use sluice_engine::headroom::{Plan, plan};
use sluice_headroom::protocol::Command;

/// A guard that is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Without {
    Proof,
    ProofEverywhere,
    Drain,
    RestoreBeforeUnlock,
    RestoreBeforeGivingUp,
    TestOnUsed,
    TestOnSpecInRaise,
    TestOnSpecInRestore,
    TimeLeft,
    RestoreAtSweep,
    ExactFit,
    LookAtTimeBeforeClearing,
    PreconditionOfDelete,
    MemoryOfLostRaises,
    Mark,
    KeptStatus,
    /// A window that is refused because of the mark of another one is waited for, as one that exists.
    LockBesideMarks,
    /// The drain waits until no API server knows of the mark of an earlier window.
    DrainOfMarks,
    /// A sweep restores if the window is still the same after it has listed the quotas, and they are as they were then.
    LookBeforeRestoring,
}

/// A model of the window protocol.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// `spec.hard` and tenant usage, by namespace and quota.
    pub quotas: Vec<Vec<(u8, u8)>>,
    /// The namespace of each target.
    pub targets: Vec<usize>,
    pub need: u8,
    pub additional: u8,
    /// All namespaces share what is granted.
    pub is_pool: bool,
    pub replicas: usize,
    pub tries: u8,
    pub budget: Budget,
    /// What the administrator changes a spec to.
    pub edit: u8,
    /// API servers may know old quotas.
    pub lag: bool,
    /// Pods may be anywhere between policy and queue.
    pub gap: bool,
    /// A write of which the answer was lost may still land.
    pub late_writes: bool,
    /// kube-controller-manager may do everything: it writes the status of quotas in a window, too. Without it writes where an
    /// API server does not enforce the window that is there.
    pub privileged_manager: bool,
    /// Looks whether quota admission lets in every target that an opening has made room for.
    pub no_refusal: bool,
    pub without: Option<Without>,
    /// Only what comes of a wrong step counts, not the step.
    pub consequences: bool,
    /// Looks from each state whether things end well.
    pub no_stuck: bool,
    pub end_well: EndWell,
}

impl Rules {
    pub fn lacks(&self, guard: Without) -> bool {
        self.without == Some(guard)
    }

    pub fn init(&self) -> World {
        let namespace = |quotas: &Vec<(u8, u8)>| {
            let tenant = quotas.first().map_or(0, |(_, used)| *used);
            let quotas: Vec<_> = quotas.iter().map(|(spec, used)| Quota::new(*spec, *used)).collect();
            let known: Vec<_> = quotas.iter().map(Quota::snapshot).collect();
            Namespace {
                window: None,
                quotas,
                tenant,
                enforced: [None; SERVERS],
                known: [known.clone(), known],
                queues: [Vec::new(), Vec::new()],
                between: [0; SERVERS],
            }
        };
        World {
            namespaces: self.quotas.iter().map(namespace).collect(),
            targets: self
                .targets
                .iter()
                .map(|namespace| Target { namespace: *namespace, stage: Stage::Idle, tries: self.tries })
                .collect(),
            replicas: vec![Replica { alive: true, run: None, sweep: None }; self.replicas],
            orphans: Vec::new(),
            budget: self.budget,
            runs: 0,
            crashed: false,
            taken: 0,
            wrong: None,
        }
    }

    /// What a namespace may take beyond its quotas.
    pub fn granted(&self, world: &World, namespace: usize) -> sluice_engine::headroom::Budget {
        let others = world.namespaces.iter().enumerate().filter(|(other, _)| *other != namespace);
        let taken = others.map(|(_, other)| {
            let planned = other.window.as_ref().map_or(0, |window| window.planned);
            other.overdraft().max(planned)
        });
        granted(self.additional, self.is_pool.then(|| taken.sum()))
    }

    pub fn plan(&self, world: &World, namespace: usize) -> Plan {
        let quotas = world.namespaces[namespace].native();
        plan(&need(self.need), &quotas, &self.granted(world, namespace))
    }

    /// Nothing is left over, and nobody waits whom the budget allows.
    pub fn is_goal(&self, world: &World) -> bool {
        let clear = world.namespaces.iter().all(|namespace| {
            namespace.window.is_none()
                && namespace.quotas.iter().all(|quota| quota.hard == quota.spec && quota.mark.is_none())
        });
        clear
            && world.targets.iter().all(|target| {
                target.stage == Stage::Entered
                    || matches!(self.plan(world, target.namespace), Plan::NotEnough(_) | Plan::Refused(_))
            })
    }
}

fn is(world: &World, wrong: Wrong) -> bool {
    world.wrong == Some(wrong)
}

fn entered(world: &World) -> u8 {
    let count = world.targets.iter().filter(|target| target.stage == Stage::Entered).count();
    u8::try_from(count).expect("few targets")
}

impl Model for Rules {
    type State = World;
    type Action = crate::actions::Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.init()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Self::Action>) {
        if world.wrong.is_none() {
            self.possible(world, actions);
        }
    }

    fn next_state(&self, world: &World, action: Self::Action) -> Option<World> {
        let mut next = world.clone();
        self.act(&mut next, &action);
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("no tenant beyond the quota", |_, world| !is(world, Wrong::TenantBeyond)),
            Property::always("a left raise is an exact fit", |_, world| !is(world, Wrong::LeftTooMuch)),
            Property::always("raised only while proven", |_, world| !is(world, Wrong::RaisedUnproven)),
            Property::always("raised within the budget", |_, world| !is(world, Wrong::RaisedOverBudget)),
            Property::always("never unlocked while raised", |_, world| !is(world, Wrong::UnlockedRaised)),
            Property::always("never below spec", |_, world| !is(world, Wrong::LoweredBelowSpec)),
            Property::always("used is bounded", |rules: &Self, world: &World| {
                let pairs = rules.quotas.iter().zip(&world.namespaces);
                let most = u8::max(
                    rules.edit,
                    pairs.clone().flat_map(|(q, _)| q).map(|q| q.0.max(q.1)).max().unwrap_or(0),
                );
                let bound = most + rules.need * entered(world) + world.taken;
                world
                    .namespaces
                    .iter()
                    .flat_map(|namespace| &namespace.quotas)
                    .all(|quota| quota.used <= bound)
            }),
            Property::sometimes("a target enters a full quota", |_, world: &World| {
                entered(world) > 0 && world.namespaces.iter().any(|namespace| namespace.overdraft() > 0)
            }),
        ];
        if self.is_pool {
            properties.push(Property::always("the pool is enough for all", |rules: &Self, world: &World| {
                world.namespaces.iter().map(Namespace::overdraft).sum::<u8>()
                    <= rules.additional + world.taken
            }));
        }
        if self.no_refusal {
            properties.push(Property::always("no refusal after admit", |_, world| {
                !is(world, Wrong::RefusedAfterAdmit)
            }));
        }
        if self.no_stuck {
            properties.push(Property::always("no stuck state", |rules: &Self, world: &World| {
                !world.budget.is_used_up() || rules.ends_well(world)
            }));
        }
        if self.without.is_none() {
            self.sights(&mut properties);
        }
        properties
    }
}

impl Rules {
    /// What must be seen at least once, or the model shows nothing.
    fn sights(&self, properties: &mut Vec<Property<Self>>) {
        // A pool has room for one of two.
        if self.targets.len() > 1 && !self.is_pool {
            properties.push(Property::sometimes(
                "two targets, one after the other",
                |rules: &Self, world: &World| {
                    usize::from(entered(world)) == rules.targets.len() && world.runs > 1
                },
            ));
        }
        if self.budget.crashes > 0 {
            properties.push(Property::sometimes("a crash is swept", |_, world: &World| {
                world.crashed
                    && world.replicas.iter().filter_map(|replica| replica.sweep.as_ref()).any(|sweep| {
                        sweep.restored && sweep.found.is_some() && sweep.step == SweepStep::Delete
                    })
            }));
        }
        if self.budget.losses + self.budget.resyncs + self.budget.edits > 0 {
            properties.push(Property::sometimes("a conflict is retried", |_, world: &World| {
                world
                    .replicas
                    .iter()
                    .filter_map(|replica| replica.run.as_ref())
                    .any(|run| run.was_overtaken && matches!(run.machine.command(), Command::Raise(_)))
            }));
        }
        if self.budget.tenants > 0 {
            properties.push(Property::sometimes(
                "a tenant pod waits before the drain",
                |_, world: &World| {
                    world
                        .namespaces
                        .iter()
                        .flat_map(|namespace| &namespace.queues)
                        .any(|queue| matches!(queue.as_slice(), [Item::Tenant, Item::Drain(_), ..]))
                },
            ));
        }
    }
}
