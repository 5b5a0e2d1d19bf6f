//! Notices other clients that write the status of quotas, and names them in an event.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_api::names;
use sluice_engine::QuotaId;

use super::State;
use crate::config::Moment;
use crate::recorder::is_status_right;

/// The field manager of application-aware-quota's own controller: its binary, or its image's name for it.
const UPSTREAM: [&str; 2] = ["aaq-controller", "aaq_controller"];

impl State {
    /// The status of a quota was written. If not by this controller, that is noted.
    pub(super) fn on_status_seen(&mut self, id: QuotaId, meta: &ObjectMeta, now: Moment) {
        if !self.is_leading()
            || is_status_right(&self.cluster, &self.accounts, id)
            || !self.is_contest_to_be_told(id, now)
        {
            return;
        }
        let by = match other_writer(meta) {
            Some(manager) if UPSTREAM.contains(&manager) => {
                format!("{manager}, the controller of application-aware-quota: one of the two has to go")
            }
            Some(manager) => manager.to_owned(),
            None => "a client that is not known".to_owned(),
        };
        self.reporter.tell_contest(&self.cluster, id, &format!("the status is written by another: {by}"));
    }

    /// The status of a quota was written, and is not what was written.
    pub(super) fn on_status_not_kept(&mut self, id: QuotaId, now: Moment) {
        if self.is_contest_to_be_told(id, now) {
            let what = "the status is not stored as it is written: the CustomResourceDefinition is of another version, an \
                admission plugin changes it, or another client does at once";
            self.reporter.tell_contest(&self.cluster, id, what);
        }
    }

    /// Notes that the status is not what was written last. Returns whether to tell that.
    fn is_contest_to_be_told(&mut self, id: QuotaId, now: Moment) -> bool {
        let Some(is_told) = self.recorder.note_overwritten(id, now) else { return false };
        self.reporter.note_overwritten();
        is_told
    }
}

/// Who else wrote the status, as its last field manager.
fn other_writer(meta: &ObjectMeta) -> Option<&str> {
    let entries = meta.managed_fields.iter().flatten();
    let of_status = entries.filter(|entry| entry.subresource.as_deref() == Some("status"));
    let others = of_status.filter(|entry| entry.manager.as_deref() != Some(names::CONTROLLER));
    others.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?.manager.as_deref()
}
