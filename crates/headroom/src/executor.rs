//! Carries out the commands of one session.

mod arrival;
mod settle;
mod shown;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use sluice_engine::Uid;
use sluice_engine::headroom::Raise;
use sluice_index::{Cluster, ResourceQuotaRecord};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::attempts::Attempt;
use crate::patches;
use crate::protocol::{Command, Done, Ending, Look, QuotaRef, RENEWAL_MS, WindowSession, is_over};
use crate::restore::Restorer;
use crate::status_writer::Written;
use crate::target::Target;
use crate::tools::{LOCK_SECONDS, Tools};
use shown::is_shown;
pub(crate) use shown::until_shown;

/// [`LOCK_SECONDS`] as a time.
const LOCK_TIME: Duration = Duration::from_secs(LOCK_SECONDS.unsigned_abs());
/// How long API servers get to know of a raise: some milliseconds are usual. KubeVirt's controller holds a lock for the
/// whole cluster while it creates a target (`migrationStartLock` in `pkg/virt-controller/watch/migration/migration.go`), so
/// this is what the targets of all other namespaces wait for, too.
const SETTLE_TIME: Duration = Duration::from_millis(800);
/// How long a session waits for another one of its namespace, whose raise ends within milliseconds but on a busy API
/// server. The rest of the second that a target waits at most is for its own raise.
pub(crate) const OTHERS_TIME: Duration = Duration::from_millis(700);

/// The state of the I/O of one session.
pub(crate) struct Executor<'h> {
    tools: &'h Tools,
    target: &'h Target,
    /// When waiting for other sessions ends.
    others_until: Instant,
    admit: Option<oneshot::Sender<()>>,
    attempt: Arc<Attempt>,
    /// The quotas as they were last seen.
    records: HashMap<Arc<str>, Arc<ResourceQuotaRecord>>,
    /// The first raise, if one was sent.
    pub(crate) raised_at: Option<Instant>,
    /// When the API server was told to create the target.
    let_in_at: Option<Instant>,
    /// When the lock ends for sure.
    lock_end: Instant,
    pub(crate) raises: Vec<Raise>,
    /// For how long the namespace was read to confirm that the target gets no room.
    pub(crate) confirmed_in: Option<Duration>,
    /// The quotas as they were when their raises were ended.
    pub(crate) ended: Vec<ResourceQuotaRecord>,
    /// The pods of the migration that were there before its room was made.
    before: HashSet<Uid>,
}

impl<'h> Executor<'h> {
    pub(crate) fn new(
        tools: &'h Tools,
        target: &'h Target,
        others_until: Instant,
        admit: oneshot::Sender<()>,
        attempt: Arc<Attempt>,
    ) -> Self {
        let before = tools.observed.read(|index| {
            index.launchers.of_migration(&target.migration.uid).map(|pod| pod.uid.clone()).collect()
        });
        Self {
            before,
            tools,
            target,
            others_until,
            admit: Some(admit),
            attempt,
            records: HashMap::new(),
            raised_at: None,
            let_in_at: None,
            lock_end: Instant::now(),
            raises: Vec::new(),
            confirmed_in: None,
            ended: Vec::new(),
        }
    }

    pub(crate) async fn carry_out(&mut self, session: &WindowSession, command: Command) -> Done {
        match command {
            Command::Look(Look::Raised) => self.look_at_raised(session).await,
            Command::Look(look) => self.look(session, look).await,
            Command::WaitForOther => self.wait_for_other(session).await,
            Command::Clear => self.clear(session).await,
            Command::Raise { raise, mark } => self.raise(raise, mark).await,
            Command::Settle(mark) => self.settle(session, mark).await,
            Command::LetIn => self.let_in(),
            Command::Await => self.await_target(session).await,
            Command::Renew => self.renew(session).await,
            Command::Restore => self.restore(session).await,
            Command::Confirm => self.confirm(session).await,
            Command::Stop(ending) => Done::Ended(ending),
        }
    }

    async fn look(&mut self, session: &WindowSession, look: Look) -> Done {
        if !session.confirms() {
            return self.read(session, look).await;
        }
        if self.tools.looks.are_spared(self.target.namespace()) {
            return Done::Spared;
        }
        let started = Instant::now();
        let seen = self.read(session, look).await;
        self.confirmed_in = Some(started.elapsed());
        seen
    }

    async fn read(&mut self, session: &WindowSession, look: Look) -> Done {
        let (requests, namespace) = (&self.tools.requests, self.target.namespace());
        if let Some(why) = self.tools.unproven() {
            return Done::Ended(Ending::Unproven(why));
        }
        let grants = self.tools.observed.read(|index| index.grant_names(namespace));
        match requests.grants(namespace, grants).await {
            Ok(grants) => self.tools.observed.learn(namespace, &grants),
            Err(error) => return failed("reading what is granted", &error),
        }
        if let Err(error) = requests.clock().await {
            return failed("asking for the API server's clock", &error);
        }
        let records = match look {
            Look::Live => match self.tools.quotas(namespace).await {
                Ok(records) => records,
                Err(error) => return failed("reading quotas", &error),
            },
            Look::Grants | Look::Raised => self.tools.known_quotas(namespace),
        };
        self.records = records.iter().map(|record| (Arc::clone(&record.name), Arc::clone(record))).collect();
        // While this was read the watch may have shown that a raise of another session was in vain.
        if session.raised().is_empty() && self.tools.locks.is_resting(namespace) {
            return Done::Ended(Ending::Resting);
        }
        let is_above = records.iter().any(|record| !record.native().overdraft().is_empty());
        // After the quotas: every pod that they have counted is there by now, or is none.
        let pods = match look {
            Look::Live if is_above => match self.tools.pods(namespace).await {
                Ok(pods) => Some(pods),
                Err(error) => return failed("reading pods, machines and migrations", &error),
            },
            _ => None,
        };
        Done::Seen(self.tools.snapshot(namespace, &records, pods.as_deref()))
    }

    /// The mark of another session: until the watch shows that none is left. It may have been in vain.
    async fn wait_for_other(&self, session: &WindowSession) -> Done {
        let namespace = self.target.namespace();
        let left = self.others_until.saturating_duration_since(Instant::now());
        let free = |index: &Cluster| {
            let marks = index
                .resource_quotas
                .raised_in(namespace)
                .filter_map(|key| index.quota(namespace, &key.name)?.mark());
            let mut foreign = marks.filter(|mark| !session.is_own(*mark));
            foreign.next().is_none().then_some(())
        };
        let found = self.tools.observed.until(left, free).await;
        match found {
            Some(()) if self.tools.locks.is_resting(namespace) => Done::Ended(Ending::Resting),
            Some(()) => Done::Free,
            None => Done::Ended(Ending::Busy),
        }
    }

    async fn raise(&mut self, raise: Raise, mark: i64) -> Done {
        let Some(record) = self.records.get(&raise.quota) else { return Done::Conflict };
        let patch = patches::raise(record, &raise.keys, mark);
        let sent = Instant::now();
        self.raised_at.get_or_insert(sent);
        let written = self.tools.writer.write(self.target.namespace(), &raise.quota, &patch).await;
        if matches!(written, Written::Done(..)) {
            self.tools.metrics.raise();
            self.raises.push(raise);
        }
        self.lock_written(written)
    }

    /// A quota that has changed may have been charged for the target.
    async fn renew(&mut self, session: &WindowSession) -> Done {
        for quota in session.raised() {
            let known = self.tools.observed.read(|index| self.newest(index, quota));
            let Some(record) = known else { continue };
            let Some(own) = record.native().mark().filter(|mark| session.is_own(*mark)) else { continue };
            let patch = patches::raise(&record, &[], own + RENEWAL_MS);
            let written = self.tools.writer.write(self.target.namespace(), &quota.name, &patch).await;
            if !matches!(self.lock_written(written), Done::Written | Done::Conflict) {
                return Done::Ended(Ending::NotSeen);
            }
        }
        Done::Written
    }

    fn lock_written(&mut self, written: Written) -> Done {
        match written {
            Written::Done(record, date) => {
                if let (Some(mark), Some(date)) = (record.native().mark(), date) {
                    // The date is up to a second old.
                    let left = mark.saturating_sub(date.as_millisecond()).saturating_sub(1000);
                    self.lock_end = Instant::now() + Duration::from_millis(u64::try_from(left).unwrap_or(0));
                }
                self.records.insert(Arc::clone(&record.name), Arc::new(*record));
                Done::Written
            }
            Written::Conflict => Done::Conflict,
            Written::Unanswered(_) => {
                self.lock_end = self.lock_end.max(Instant::now() + LOCK_TIME);
                Done::Unanswered
            }
            Written::Refused(why) => Done::Refused(why),
            Written::Failed(why) => Done::Ended(Ending::Failed(why)),
        }
    }

    /// What is known once the watch shows every raise of this session.
    async fn look_at_raised(&self, session: &WindowSession) -> Done {
        let (tools, namespace) = (self.tools, self.target.namespace());
        let written: Vec<_> =
            session.raised().iter().filter_map(|quota| self.records.get(&quota.name)).collect();
        let shown = |index: &Cluster| {
            let are_shown = written.iter().all(|written| is_shown(index, namespace, written));
            are_shown.then(|| index.resource_quotas.records_in(namespace).to_vec())
        };
        let Some(records) = tools.observed.until(SETTLE_TIME, shown).await else {
            return unproven("the watch of quotas does not show the raise".to_owned());
        };
        Done::Seen(tools.snapshot(namespace, &records, None))
    }

    fn let_in(&mut self) -> Done {
        self.let_in_at.get_or_insert_with(Instant::now);
        self.attempt.let_in();
        if let Some(admit) = self.admit.take() {
            // The webhook's request is over when the API server has given up; then the target is not seen.
            let _ = admit.send(());
        }
        Done::LetIn
    }

    async fn clear(&self, session: &WindowSession) -> Done {
        let now_ms = self.tools.server_now_ms();
        for record in self.records.values() {
            if record.native().mark().is_none_or(|mark| session.is_own(mark)) {
                continue;
            }
            let quota = QuotaRef { name: Arc::clone(&record.name), uid: record.uid.clone() };
            match self.end(&quota, |mark| is_over(mark, now_ms), Instant::now()).await {
                Written::Done(..) | Written::Conflict => {}
                Written::Refused(why) => return Done::Ended(Ending::Forbidden(why)),
                Written::Failed(why) | Written::Unanswered(why) => return Done::Ended(Ending::Failed(why)),
            }
        }
        Done::Written
    }

    async fn restore(&mut self, session: &WindowSession) -> Done {
        let until = self.lock_end.max(Instant::now() + Duration::from_millis(500));
        let each = session.raised().iter().map(async |quota| {
            match self.end(quota, |mark| session.is_own(mark), until).await {
                Written::Done(record, _) => return Some(*record),
                Written::Conflict => {}
                written => {
                    self.tools.metrics.left();
                    let (namespace, quota) = (self.target.namespace(), &quota.name);
                    tracing::warn!(%namespace, %quota, ?written, "quota left raised until its lock ends");
                }
            }
            None
        });
        self.ended = join_all(each).await.into_iter().flatten().collect();
        Done::Written
    }

    async fn end(&self, quota: &QuotaRef, is_own: impl Fn(i64) -> bool, until: Instant) -> Written {
        let tools = self.tools;
        let known = tools.observed.read(|index| self.newest(index, quota));
        let (requests, writer) = (&tools.requests, &tools.writer);
        let restorer = Restorer { requests, writer, namespace: self.target.namespace() };
        let time = until.saturating_duration_since(Instant::now()) + Duration::from_secs(4);
        let written = timeout(time, restorer.end(quota, known, is_own, until)).await;
        written.unwrap_or_else(|_| Written::Unanswered("no answer in time".into()))
    }

    /// The quota as it was written or shown last.
    fn newest(&self, index: &Cluster, quota: &QuotaRef) -> Option<Arc<ResourceQuotaRecord>> {
        let written = self.records.get(&quota.name).filter(|record| record.uid == quota.uid);
        match (written, shown(index, self.target.namespace(), quota)) {
            (Some(written), Some(shown)) if shown.version.is_older_than(written.version) => Some(written),
            (written, shown) => shown.or(written),
        }
        .cloned()
    }
}

fn shown<'i>(index: &'i Cluster, namespace: &str, quota: &QuotaRef) -> Option<&'i Arc<ResourceQuotaRecord>> {
    index.resource_quotas.record(namespace, &quota.name).filter(|record| record.uid == quota.uid)
}

fn failed(what: &str, error: &kube::Error) -> Done {
    Done::Ended(Ending::Failed(format!("{what}: {error}").into()))
}

fn unproven(why: String) -> Done {
    Done::Ended(Ending::Unproven(why.into()))
}
