//! What was written and what the watch shows of it.

use sluice_index::{Cluster, Observed, ResourceQuotaRecord};

use super::SETTLE_TIME;

/// Waits until the watch shows that these raises are over, for as long as a raise may take to be seen. What rests is
/// decided by what the watch shows, and the next session of the namespace has to know that this one was in vain.
pub(crate) async fn until_shown(observed: &Observed, namespace: &str, ended: &[ResourceQuotaRecord]) {
    let shown = |index: &Cluster| ended.iter().all(|ended| is_shown(index, namespace, ended)).then_some(());
    let _ = observed.until(SETTLE_TIME, shown).await;
}

/// Whether the watch shows the quota as it was written, or a later version of it.
pub(super) fn is_shown(index: &Cluster, namespace: &str, written: &ResourceQuotaRecord) -> bool {
    let known = index.resource_quotas.record(namespace, &written.name);
    known.is_none_or(|known| !known.version.is_older_than(written.version))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use serde_json::json;
    use sluice_index::ResourceQuotaWire;
    use sluice_runtime::watch::Event;

    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    fn quota(version: &str) -> ResourceQuotaWire {
        let metadata = json!({ "name": "rq", "namespace": "ns", "uid": "uid", "resourceVersion": version });
        let status = json!({ "hard": { "pods": version } });
        serde_json::from_value(json!({ "metadata": metadata, "status": status })).unwrap()
    }

    async fn waits(observed: &Observed, version: &str) -> Duration {
        let started = Instant::now();
        until_shown(observed, "ns", &[ResourceQuotaRecord::read(&quota(version))]).await;
        started.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_left_when_the_watch_shows_the_end_or_is_late() {
        let observed = Observed::new(Vec::new(), false);
        observed.apply(&Event::Apply(quota("5")));
        assert_eq!(waits(&observed, "5").await, Duration::ZERO);
        assert_eq!(waits(&observed, "6").await, SETTLE_TIME, "the watch shows nothing");
        let shown = async {
            tokio::time::sleep(Duration::from_millis(30)).await;
            observed.apply(&Event::Apply(quota("6")));
        };
        let (waited, ()) = tokio::join!(waits(&observed, "6"), shown);
        assert_eq!(waited, Duration::from_millis(30));
        observed.apply(&Event::Delete(quota("7")));
        assert_eq!(waits(&observed, "9").await, Duration::ZERO, "the quota is gone");
    }
}
