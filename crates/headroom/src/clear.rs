//! Putting right what windows left behind: level-triggered, from live reads alone.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use sluice_api::MigrationWindow;
use sluice_index::headroom::NativeRecord;
use sluice_index::wire::NativeQuotaWire;
use sluice_kube_ext::retry::{Backoff, Failure, classify};
use tokio::time::{Instant, sleep};

use crate::hands::is_over;
use crate::protocol::QuotaRef;
use crate::window::Headroom;

/// Limit for restoring one quota outside of an opening.
const RESTORE_TIME: Duration = Duration::from_secs(10);

/// The part of a window in which its holder has stopped; see `Hands::await_target`.
const LAST: SignedDuration = SignedDuration::from_secs(1);

/// What [`Headroom::clear`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleared {
    /// Quotas that were restored.
    pub restored: Vec<Arc<str>>,
    /// An expired window was deleted.
    pub window: bool,
    /// A window is open until then, by the API server's clock: it was not touched.
    pub live_until: Option<Timestamp>,
}

/// Why a namespace is not clear.
#[derive(Debug, thiserror::Error)]
pub enum ClearError {
    /// A request failed.
    #[error("{tried} in namespace {namespace}: {source}")]
    Request {
        /// What was tried.
        tried: &'static str,
        /// Where.
        namespace: Arc<str>,
        /// What came.
        #[source]
        source: kube::Error,
    },
    /// It changed all the time.
    #[error("restoring quotas in namespace {namespace}: they or the window changed all the time")]
    Busy {
        /// Where.
        namespace: Arc<str>,
    },
    /// A quota could not be restored.
    #[error("restoring quota {quota} in namespace {namespace}: {why}")]
    Restore {
        /// The quota.
        quota: Arc<str>,
        /// Where.
        namespace: Arc<str>,
        /// Whether the write is refused as a matter of principle.
        forbidden: bool,
        /// What came.
        why: Arc<str>,
    },
}

impl Headroom {
    /// Restores every raised quota of a namespace and deletes its window, unless the window is open by the API server's
    /// clock. In the last second of a window its holder raises and waits no more; what is raised then is restored while
    /// the lock still holds.
    ///
    /// # Errors
    /// When a request fails. What is left is safe: the lock is over, and the raise is an exact fit.
    pub async fn clear(&self, namespace: &Arc<str>) -> Result<Cleared, ClearError> {
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(500), 0);
        let end = Instant::now() + RESTORE_TIME;
        let mut restored = Vec::new();
        loop {
            match self.try_clear(namespace, &mut restored).await {
                Ok(Some(cleared)) => return Ok(Cleared { restored, ..cleared }),
                Ok(None) if Instant::now() < end => sleep(backoff.failed()).await,
                Ok(None) => return Err(ClearError::Busy { namespace: Arc::clone(namespace) }),
                Err(error) => return Err(error),
            }
        }
    }

    /// `None` if something came between: what looks like a left raise may be that of a window that is younger than the look
    /// at the window. So the window must be the same after the quotas were listed, and a quota as it was listed when it is
    /// written.
    async fn try_clear(
        &self,
        namespace: &Arc<str>,
        restored: &mut Vec<Arc<str>>,
    ) -> Result<Option<Cleared>, ClearError> {
        let failed = |tried| {
            let namespace = Arc::clone(namespace);
            move |source| ClearError::Request { tried, namespace, source }
        };
        let look = || async { self.requests.window(namespace).await.map_err(failed("reading the window")) };
        let found = look().await?;
        let mut cleared = Cleared::default();
        if let Some((window, date)) = &found
            && !is_over(window, *date)
        {
            cleared.live_until = Some(window.spec.until.0);
            if !is_closing(window, *date) {
                return Ok(Some(cleared));
            }
        }
        let wires: Vec<NativeQuotaWire> =
            self.requests.quotas(namespace).await.map_err(failed("listing quotas"))?;
        let mut raised: Vec<_> = wires.iter().map(NativeRecord::read).collect();
        raised.retain(|record| record.native().is_raised());
        let uid = |found: &Option<(MigrationWindow, _)>| {
            found.as_ref().and_then(|(window, _)| window.metadata.uid.clone())
        };
        if !raised.is_empty() && uid(&look().await?) != uid(&found) {
            return Ok(None);
        }
        for record in raised {
            if !self.restore_unchanged(namespace, &record).await? {
                return Ok(None);
            }
            restored.push(record.name);
        }
        if let Some((window, _)) = found
            && cleared.live_until.is_none()
        {
            let (uid, version) = (window.metadata.uid, window.metadata.resource_version);
            let (uid, version) = (uid.unwrap_or_default(), version.unwrap_or_default());
            self.requests.delete(namespace, &uid, &version).await.map_err(failed("deleting the window"))?;
            cleared.window = true;
        }
        Ok(Some(cleared))
    }

    /// Whether the quota is restored, or gone. If it has changed since, it is not.
    async fn restore_unchanged(
        &self,
        namespace: &Arc<str>,
        record: &NativeRecord,
    ) -> Result<bool, ClearError> {
        let patch = crate::patches::restore_unchanged(record);
        let written: kube::Result<NativeQuotaWire> =
            self.requests.patch_quota_status(namespace, &record.name, &patch, false).await;
        let Err(error) = written else { return Ok(true) };
        match classify(&error) {
            Failure::NotFound => Ok(true),
            Failure::Invalid | Failure::Conflict => Ok(false),
            failure if failure.is_transient() => Ok(false),
            failure => Err(ClearError::Restore {
                quota: Arc::clone(&record.name),
                namespace: Arc::clone(namespace),
                forbidden: failure == Failure::Forbidden,
                why: error.to_string().into(),
            }),
        }
    }

    /// Writes `status.hard := spec.hard` until that is so, whatever changes meanwhile; until `end` at most. `known` is the
    /// quota as it was last read. Returns the quota, or `None` if it does not exist any more.
    pub(crate) async fn restore(
        &self,
        namespace: &str,
        quota: &QuotaRef,
        mut known: Option<NativeRecord>,
        end: Instant,
    ) -> Result<Option<NativeRecord>, Arc<str>> {
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(500), 0);
        loop {
            let tried = self.try_restore(namespace, quota, known.take()).await;
            let error = match tried {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            match classify(&error) {
                Failure::NotFound => return Ok(None),
                Failure::Forbidden => return Err(format!("{FORBIDDEN}: {error}").into()),
                failure => {
                    let stale =
                        matches!(failure, Failure::Invalid | Failure::Conflict) && backoff.failures() < 3;
                    let pause = if stale { Duration::ZERO } else { backoff.failed() };
                    if Instant::now() + pause >= end {
                        return Err(error.to_string().into());
                    }
                    if stale {
                        backoff.failed();
                    }
                    sleep(pause).await;
                }
            }
        }
    }

    async fn try_restore(
        &self,
        namespace: &str,
        quota: &QuotaRef,
        known: Option<NativeRecord>,
    ) -> kube::Result<Option<NativeRecord>> {
        let record = match known {
            Some(record) => record,
            None => {
                let wire = self.requests.quota::<NativeQuotaWire>(namespace, &quota.name).await?;
                let Some(record) = wire.as_ref().map(NativeRecord::read) else { return Ok(None) };
                if record.uid != quota.uid {
                    return Ok(None);
                }
                if !record.native().is_raised() {
                    return Ok(Some(record));
                }
                record
            }
        };
        let patch = crate::patches::restore(&record);
        let wire: NativeQuotaWire =
            self.requests.patch_quota_status(namespace, &quota.name, &patch, false).await?;
        Ok(Some(NativeRecord::read(&wire)))
    }
}

/// Whether the window was in its last second when the API server gave its answer.
fn is_closing(window: &MigrationWindow, date: Option<Timestamp>) -> bool {
    date.is_some_and(|date| window.spec.until.0.duration_since(date) <= LAST)
}

/// Begins the text of a refusal that will not change by itself.
const FORBIDDEN: &str = "writing the quota's status is forbidden";
