//! The audit: the sums of a namespace's quotas made anew from its pods, to compare; what differs is put right.

use std::sync::Arc;

use sluice_engine::{PodId, QuotaId};
use sluice_index::NamespaceId;

use super::State;
use crate::config::Moment;

/// Pods that are compared before others get at the state.
const PODS: usize = 1_000;

/// Where the audit of a namespace goes on.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditCursor {
    pods: usize,
    quotas: usize,
}

/// What a part of an audit found.
#[derive(Debug, PartialEq, Eq)]
pub enum AuditFinding {
    /// So far nothing, but there is more.
    More,
    /// The namespace is as it should be.
    Right,
    /// Something was wrong, and everything of the namespace is made anew.
    Repaired {
        /// A pod whose record and whose charge disagree.
        pod: Option<Box<str>>,
        /// A quota whose sums are not those of its pods.
        quota: Option<Arc<str>>,
    },
}

impl State {
    /// Audits one more part of a namespace: its pods, some at a time, then the sums of its quotas, one at a time.
    pub fn audit(&mut self, namespace: NamespaceId, cursor: &mut AuditCursor, now: Moment) -> AuditFinding {
        let Some(known) = self.cluster.namespaces.get(namespace) else { return AuditFinding::Right };
        let (quotas, pods) = (known.quotas().to_vec(), known.pods().len());
        let is_unfinished = self.accounts.is_paused(namespace) || !self.accounts.are_machines_appraised();
        if quotas.is_empty() || is_unfinished {
            return AuditFinding::Right;
        }
        if cursor.pods < pods {
            let part: Vec<PodId> = known.pods().iter().skip(cursor.pods).take(PODS).copied().collect();
            cursor.pods += part.len();
            let Some(wrong) = part.into_iter().find(|id| !self.accounts.is_stage_right(&self.cluster, *id))
            else {
                return AuditFinding::More;
            };
            let pod = self.cluster.pods.get(wrong).map(|record| record.name.clone());
            return self.repair(&quotas, AuditFinding::Repaired { pod, quota: None }, now);
        }
        let Some(next) = quotas.get(cursor.quotas).copied() else { return AuditFinding::Right };
        cursor.quotas += 1;
        self.reporter.note_audit(false);
        if self.accounts.is_sum_right(&self.cluster, next, namespace) {
            return AuditFinding::More;
        }
        let wrong = next;
        let quota = self.cluster.quotas.get(wrong).map(|record| Arc::clone(&record.name));
        self.repair(&quotas, AuditFinding::Repaired { pod: None, quota }, now)
    }

    fn repair(&mut self, quotas: &[QuotaId], found: AuditFinding, now: Moment) -> AuditFinding {
        self.reporter.note_audit(true);
        self.renew_quotas(quotas, now);
        found
    }
}
