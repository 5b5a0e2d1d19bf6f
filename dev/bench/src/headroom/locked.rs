//! For how long a namespace was locked: the time in which one of its quotas had a mark, as the audit log tells.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sluice_e2e::audit::{AuditEventExt as _, MarkWrite};
use sluice_testbed::audit::AuditEvent;

use super::between_ms;

/// A stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
}

/// What the locks of a namespace came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Locked {
    /// Share of the time, 0..=1.
    pub(super) share: f64,
    /// The longest stretch without a moment's pause.
    pub(super) longest_ms: f64,
    /// How often a quota was raised.
    pub(super) raises: usize,
}

impl Span {
    /// Milliseconds.
    pub(super) fn ms(self) -> f64 {
        between_ms(self.from, self.to)
    }

    /// The part of it within another one.
    fn within(self, other: Self) -> Option<Self> {
        let (from, to) = (self.from.max(other.from), self.to.min(other.to));
        (from < to).then_some(Self { from, to })
    }
}

impl Locked {
    /// Of a namespace's requests, which are in the order in which they were answered, within a time.
    pub(super) fn read<'r>(requests: impl Iterator<Item = &'r AuditEvent>, time: Span) -> Self {
        let mut open: BTreeMap<&str, Span> = BTreeMap::new();
        let (mut spans, mut raises) = (Vec::new(), 0);
        for request in requests {
            let name = request.name.as_str();
            match request.done_mark() {
                Some(MarkWrite::Raise { end }) => {
                    raises += usize::from(request.answered >= time.from && request.answered < time.to);
                    // What is not restored ends by itself.
                    let to = end.unwrap_or(time.to);
                    let before = open.insert(name, Span { from: request.answered, to });
                    spans.extend(before.map(|it| Span { to: it.to.min(request.answered), ..it }));
                }
                Some(MarkWrite::Restore) => {
                    let raised = open.remove(name);
                    spans.extend(raised.map(|it| Span { to: it.to.min(request.answered), ..it }));
                }
                None => {}
            }
        }
        spans.extend(open.into_values());
        let spans = joined(spans.into_iter().filter_map(|span| span.within(time)).collect());
        let locked_ms = spans.iter().fold(0.0, |sum, span| sum + span.ms());
        let longest_ms = spans.iter().map(|span| span.ms()).fold(0.0, f64::max);
        Self { share: locked_ms / time.ms(), longest_ms, raises }
    }
}

/// The same time without overlaps.
fn joined(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by_key(|span| span.from);
    let mut apart: Vec<Span> = Vec::new();
    for span in spans {
        match apart.last_mut().filter(|last| last.to >= span.from) {
            Some(last) => last.to = last.to.max(span.to),
            None => apart.push(span),
        }
    }
    apart
}

#[cfg(test)]
mod tests {
    use sluice_e2e::audit::MarkWrite;
    use sluice_testbed::audit::AuditEvent;

    use super::super::tests::{moment, request, write};
    use super::{Locked, Span};

    fn raise(quota: &str, at: i64, end: i64) -> AuditEvent {
        write(MarkWrite::Raise { end: Some(moment(end)) }, quota, [at - 1, at])
    }

    fn restore(quota: &str, at: i64) -> AuditEvent {
        write(MarkWrite::Restore, quota, [at - 1, at])
    }

    fn read(log: &[AuditEvent]) -> (f64, f64, usize) {
        let locked = Locked::read(log.iter(), Span { from: moment(1_000), to: moment(2_000) });
        (locked.share, locked.longest_ms, locked.raises)
    }

    #[test]
    fn a_namespace_is_locked_from_a_raise_to_its_restore() {
        assert_eq!(read(&[]), (0.0, 0.0, 0));
        let log =
            [raise("a", 1_100, 9_000), restore("a", 1_120), raise("a", 1_500, 9_000), restore("a", 1_580)];
        assert_eq!(read(&log), (0.1, 80.0, 2));
        // Only what lies in the time counts, and what is restored without a raise is nothing.
        let log =
            [raise("a", 900, 9_000), restore("a", 1_050), restore("a", 1_060), raise("a", 1_950, 9_000)];
        assert_eq!(read(&log), (0.1, 50.0, 1));
    }

    #[test]
    fn a_lock_of_two_quotas_is_one_lock() {
        let log =
            [raise("a", 1_100, 9_000), raise("b", 1_110, 9_000), restore("a", 1_120), restore("b", 1_200)];
        assert_eq!(read(&log), (0.1, 100.0, 2));
    }

    #[test]
    fn a_lock_that_is_not_restored_ends_by_itself() {
        assert_eq!(read(&[raise("a", 1_100, 1_200)]), (0.1, 100.0, 1));
        assert_eq!(read(&[raise("a", 1_100, 1_200), restore("a", 1_900)]), (0.1, 100.0, 1));
        // The next one begins anew, but not one that is renewed in time.
        assert_eq!(read(&[raise("a", 1_100, 1_150), raise("a", 1_300, 1_350)]), (0.1, 50.0, 2));
        assert_eq!(read(&[raise("a", 1_100, 1_150), raise("a", 1_140, 1_200)]), (0.1, 100.0, 2));
    }

    #[test]
    fn what_others_do_locks_nothing() {
        let by_others = AuditEvent { user: "admin".to_owned(), ..raise("a", 1_100, 9_000) };
        let refused = AuditEvent { code: 409, ..raise("a", 1_100, 9_000) };
        let nudge = request("admin", "patch", "resourcequotas/status", "a", [1_200, 1_201]);
        assert_eq!(read(&[by_others, refused, nudge]), (0.0, 0.0, 0));
    }
}
