//! Lets target pods in: the machine of [`crate::protocol`] with its I/O.

use std::sync::Arc;
use std::time::Duration;

use sluice_engine::headroom::{self as engine, NUDGE_KEY, sentence};
use sluice_engine::{Amount, Charge, Resource, Uid};
use sluice_index::{Cluster, LauncherRecord, Observed, VmiRecord};
use sluice_runtime::api_servers::Servers;
use sluice_runtime::backoff::process_seed;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::attempts::{Attempt, Attempts};
use crate::executor::{Executor, OTHERS_TIME, until_shown};
use crate::looks::Looks;
use crate::metrics::HeadroomMetrics;
use crate::observed_locks::ObservedLocks;
use crate::patches;
use crate::probes::Probes;
use crate::proofs::Proofs;
use crate::protocol::{Command, Ending, QuotaRef, WindowSession, at_once};
use crate::requests::Requests;
use crate::restore::Restorer;
use crate::session_turns::SessionTurns;
use crate::status_writer::{StatusWriter, Written};
use crate::target::{Outcome, Target};
use crate::told::Told;
use crate::tools::Tools;

/// What a [`Headroom`] works with.
#[derive(Debug)]
pub struct HeadroomSetup {
    /// What is known of the cluster, and of the locks in it.
    pub locks: ObservedLocks,
    pub requests: Requests,
    pub writer: StatusWriter,
    pub servers: Arc<Servers>,
    pub metrics: HeadroomMetrics,
    /// The namespace of the installation, which has the quota that proofs are about.
    pub namespace: String,
}

/// Opens and ends raises, one at a time in each namespace.
pub struct Headroom {
    tools: Tools,
    turns: SessionTurns,
    attempts: Attempts,
    proven: watch::Sender<Option<Arc<str>>>,
    known: Told,
    told: Box<dyn Fn(Outcome) + Send + Sync>,
    tasks: TaskTracker,
}

impl std::fmt::Debug for Headroom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Headroom").field("servers", &self.tools.servers).finish_non_exhaustive()
    }
}

impl Headroom {
    /// `told` hears of each session that raised something, was refused to, or lacks something.
    #[must_use]
    pub fn new(setup: HeadroomSetup, told: impl Fn(Outcome) + Send + Sync + 'static) -> Arc<Self> {
        let HeadroomSetup { locks, requests, writer, servers, metrics, namespace } = setup;
        let clock = Arc::clone(&requests.clock);
        let tools = Tools {
            observed: Arc::clone(locks.observed()),
            locks,
            looks: Looks::default(),
            requests,
            writer,
            probes: Probes::new(Arc::clone(&servers), clock, &namespace),
            proofs: Proofs::new(Arc::clone(&servers)),
            metrics,
            servers,
            seed: process_seed(),
        };
        Arc::new(Self {
            tools,
            turns: SessionTurns::default(),
            attempts: Attempts::default(),
            proven: watch::Sender::new(None),
            known: Told::default(),
            told: Box::new(told),
            tasks: TaskTracker::new(),
        })
    }

    /// What is known of the cluster.
    #[must_use]
    pub const fn observed(&self) -> &Arc<Observed> {
        &self.tools.observed
    }

    /// What is remembered of the locks of namespaces.
    #[must_use]
    pub const fn locks(&self) -> &ObservedLocks {
        &self.tools.locks
    }

    /// Reads of the API server.
    #[must_use]
    pub const fn requests(&self) -> &Requests {
        &self.tools.requests
    }

    /// Keeps asking whether the admission policies are in force, until `cancel`.
    pub async fn keep_proving(self: Arc<Self>, cancel: CancellationToken) {
        let asked = || {
            let unproven = self.unproven();
            let hidden = self.tools.hidden();
            let is_other =
                self.proven.send_if_modified(|known| std::mem::replace(known, unproven.clone()) != unproven);
            // What is missing at servers that can be asked the proofs tell.
            match (&hidden, is_other) {
                (Some(why), true) => tracing::warn!(%why, "no quota is raised: API servers cannot be asked"),
                (None, true) if unproven.is_none() => {
                    tracing::info!("quotas are raised where that is granted");
                }
                _ => {}
            }
            self.tools.metrics.servers(
                self.tools.proofs.counts(),
                hidden.is_some(),
                self.tools.writer.impersonates(),
            );
        };
        self.tools.proofs.keep(&self.tools.probes, asked, cancel).await;
    }

    /// Why nothing is raised, as it was when API servers were last asked; `None` at the start.
    #[must_use]
    pub fn proofs(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.proven.subscribe()
    }

    /// Why nothing is raised now; `None` if it can be.
    #[must_use]
    pub fn unproven(&self) -> Option<Arc<str>> {
        self.tools.unproven()
    }

    /// Lets a target in that the API server waits to create. Returns as soon as its creation may go on, at the latest
    /// after `patience`; what was raised is ended behind. The word says how it went so far.
    pub async fn admit(self: &Arc<Self>, target: Target, patience: Duration) -> &'static str {
        // A second attempt tells that the first one failed.
        let Some(attempt) = self.attempts.begin(&target) else { return self.leave("joined") };
        if !self.tools.observed.is_synced() {
            self.attempts.end(&target, &attempt);
            return self.leave("not_synced");
        }
        let known =
            self.tools.snapshot(target.namespace(), &self.tools.known_quotas(target.namespace()), None);
        if let Some(ending) = at_once(&target.need, &known) {
            self.attempts.end(&target, &attempt);
            let word = ending.word();
            self.report(Outcome { target, ending, raises: Vec::new(), raised_for: Duration::ZERO });
            return word;
        }
        if self.tools.locks.is_resting(target.namespace()) {
            self.attempts.end(&target, &attempt);
            return self.leave("resting");
        }
        let (admit, admitted) = oneshot::channel();
        let this = Arc::clone(self);
        self.tasks.spawn(async move { this.open(target, admit, attempt).await });
        // An error means that the session ended without an answer: the target goes on all the same.
        let _ = timeout(patience, admitted).await;
        "opened"
    }

    fn leave(&self, word: &'static str) -> &'static str {
        self.tools.metrics.ended(word);
        word
    }

    async fn open(self: Arc<Self>, target: Target, admit: oneshot::Sender<()>, attempt: Arc<Attempt>) {
        let namespace = Arc::clone(target.namespace());
        let others_until = Instant::now() + OTHERS_TIME;
        let turn = timeout(OTHERS_TIME, self.turns.take(&namespace)).await;
        let mut session = WindowSession::new(target.need.clone());
        let mut executor = Executor::new(&self.tools, &target, others_until, admit, Arc::clone(&attempt));
        let ending = match turn {
            Ok(_) if self.tools.locks.is_resting(&namespace) => Ending::Resting,
            Ok(_) => loop {
                match session.command() {
                    Command::Stop(ending) => break ending,
                    command => {
                        let outcome = executor.carry_out(&session, command).await;
                        session.on_done(outcome);
                    }
                }
            },
            Err(_) => Ending::Busy,
        };
        let (raised_at, raises) = (executor.raised_at, std::mem::take(&mut executor.raises));
        let ended = std::mem::take(&mut executor.ended);
        if let Some(took) =
            executor.confirmed_in.filter(|_| ending.is_refusal() || matches!(ending, Ending::Failed(_)))
        {
            self.tools.looks.in_vain(&namespace, took);
        }
        drop(executor);
        self.attempts.end(&target, &attempt);
        self.report(Outcome {
            target,
            ending,
            raises,
            raised_for: raised_at.map(|at| at.elapsed()).unwrap_or_default(),
        });
        until_shown(self.observed(), &namespace, &ended).await;
        drop(turn);
    }

    fn report(&self, outcome: Outcome) {
        let Outcome { target, ending, raises, raised_for } = &outcome;
        self.tools.metrics.ended(ending.word());
        match ending {
            Ending::Forbidden(_) => self.tools.locks.refused(target.namespace()),
            Ending::Taken => self.tools.locks.taken(target.namespace()),
            _ => {}
        }
        let was_written = !raises.is_empty() || matches!(ending, Ending::Forbidden(_));
        if was_written {
            self.tools.metrics.restored(*raised_for);
            tracing::info!(
                namespace = %target.namespace(),
                migration = %target.migration.name,
                vmi = %target.migration.machine,
                quotas = raises.len(),
                raised_ms = u64::try_from(raised_for.as_millis()).unwrap_or(u64::MAX),
                ending = ?ending,
                "raise ended"
            );
        }
        if was_written || lasting(&outcome).is_some_and(|why| self.known.is_news(&target.migration.uid, &why))
        {
            (self.told)(outcome);
        }
    }

    /// What is found among all pods of a namespace, not from a cache; its machines and migrations are learnt beside, for
    /// pods are judged by them. `None` too where nothing was found a moment ago: a namespace may not be read all the time.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn find_live<T>(
        &self,
        namespace: &Arc<str>,
        find: impl FnOnce(&Cluster, &[LauncherRecord]) -> Option<T>,
    ) -> kube::Result<Option<T>> {
        if self.tools.looks.are_spared(namespace) {
            return Ok(None);
        }
        let started = Instant::now();
        let pods = self.tools.pods(namespace).await;
        let found = pods.as_ref().ok().and_then(|pods| self.tools.observed.read(|index| find(index, pods)));
        if found.is_none() {
            self.tools.looks.in_vain(namespace, started.elapsed());
        }
        pods.map(|_| found)
    }

    /// Restores a quota that is left raised. `raised_ms`: for how long it has been seen raised without a mark.
    pub async fn sweep(&self, namespace: &str, quota: &QuotaRef, raised_ms: u64) -> Written {
        let now = match self.tools.requests.clock().await {
            Ok(now) => now.as_millisecond(),
            Err(error) => {
                return Written::Failed(format!("asking for the API server's clock: {error}").into());
            }
        };
        Restorer { requests: &self.tools.requests, writer: &self.tools.writer, namespace }
            .sweep(quota, now, raised_ms)
            .await
    }

    /// Writes a quota without changing what it says, which wakes virt-controller: it tries every rejected migration of a
    /// namespace again when one of its quotas changes (`pkg/virt-controller/watch/migration/migration.go`).
    pub async fn nudge(&self, namespace: &Arc<str>, name: &Arc<str>, uid: &Uid) -> Written {
        let record = self.tools.observed.read(|index| index.resource_quotas.record(namespace, name).cloned());
        let Some(record) = record.filter(|record| record.uid == *uid) else { return Written::Conflict };
        let nudges = record.raw().used.get(NUDGE_KEY).and_then(|text| text.parse::<u32>().ok());
        let next = nudges.map_or(1, |count| count.wrapping_add(1));
        self.tools.writer.write(namespace, name, &patches::nudge(&record, next)).await
    }

    /// The API server's clock, as reckoned from its last answer; milliseconds since the epoch.
    #[must_use]
    pub fn server_now_ms(&self) -> i64 {
        self.tools.server_now_ms()
    }

    /// Why no target of this machine would be let in if it got this size, where head-room is granted: it grows by more than
    /// before, and that does not fit a quota. In the words of quota admission;
    /// `None` where there is room, or where that is not known.
    #[must_use]
    pub fn outgrown(&self, before: &VmiRecord, machine: &VmiRecord) -> Option<String> {
        if !self.tools.observed.is_synced() {
            return None;
        }
        let namespace = &machine.namespace;
        let records = self.tools.known_quotas(namespace);
        let snapshot = self.tools.snapshot(namespace, &records, None);
        if snapshot.budget.grants.is_empty() {
            return None;
        }
        let now = snapshot.now_ms.div_euclid(1000);
        let (mut need, known, account) = self.tools.observed.read(|index| {
            let known = index.next_need(before, now).map(|need| need.growth).unwrap_or_default();
            Some((index.need_after(before, machine, now)?, known, index.account(namespace, None, now)))
        })?;
        // An update that takes growth back, or is about another resource, stands in no one's way.
        let is_more = |(resource, amount): &&(Resource, Amount)| {
            known.get(resource).is_none_or(|known| *amount > known)
        };
        need.growth = Charge::from_pairs(need.growth.iter().filter(is_more).cloned());
        let refusals = account.outgrown(&need, &snapshot.quotas);
        let words: Vec<String> = refusals.iter().filter_map(engine::quota_words).collect();
        (!words.is_empty()).then(|| words.join("; "))
    }

    /// Waits until every raise of this process is ended. New ones can still be made.
    pub async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }
}

/// What keeps a target from its room until something else is changed, as it is told; `None` of what passes by itself.
fn lasting(outcome: &Outcome) -> Option<String> {
    let migration = &outcome.target.migration;
    match &outcome.ending {
        Ending::NotEnough(lacking) => Some(sentence(&migration.name, &migration.machine, lacking)),
        Ending::Refused(refusals) => engine::lasting(refusals),
        _ => None,
    }
}
