//! Audits one namespace after the other, for as long as the process decides.

use std::convert::Infallible;
use std::time::Duration;

use sluice_index::NamespaceId;

use super::handle::Gate;
use super::metrics::Work;
use super::state::{AuditCursor, AuditFinding};

/// All namespaces are audited in this time, one after the other.
const ROUND: Duration = Duration::from_secs(300);
/// Between two of them it is at most so long; so a small cluster is audited more often.
const PAUSE: Duration = Duration::from_secs(10);

/// Audits one namespace after the other.
pub(super) async fn audit_for_ever(gate: &Gate) -> Infallible {
    loop {
        let round: Vec<NamespaceId> = {
            let state = gate.state();
            let state = state.lock();
            let with_quotas = state.index().1.iter().filter(|(_, known)| !known.quotas().is_empty());
            with_quotas.map(|(id, _)| id).collect()
        };
        let many = u32::try_from(round.len()).unwrap_or(u32::MAX).max(1);
        let pause = (ROUND / many).min(PAUSE);
        // A cluster without quotas is looked at again after the pause.
        tokio::time::sleep(pause).await;
        for namespace in round {
            audit_namespace(gate, namespace).await;
            tokio::time::sleep(pause).await;
        }
    }
}

async fn audit_namespace(gate: &Gate, namespace: NamespaceId) {
    let mut cursor = AuditCursor::default();
    loop {
        let found = gate.locked(Work::Audit, |state, now| state.audit(namespace, &mut cursor, now));
        match found {
            AuditFinding::Right => return,
            AuditFinding::More => tokio::task::yield_now().await,
            AuditFinding::Repaired { pod, quota } => {
                tracing::error!(
                    ?pod,
                    ?quota,
                    "charges differed from the pods and were made anew: please report this"
                );
                gate.change(Work::Audit, |_, _| ());
                return;
            }
        }
    }
}
