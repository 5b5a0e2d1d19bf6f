//! What happened, as plain numbers: the caller of the gate turns them into metrics.

/// Counts since the last time they were taken.
#[derive(Debug, Default)]
pub struct Stats {
    /// Pods that were released.
    pub released: u64,
    /// How long each of them was held, in seconds since it was seen.
    pub waits_s: Vec<f64>,
    /// Charges that were taken back because the release did not happen.
    pub reverted: u64,
    /// How often another overwrote the status of a quota.
    pub overwritten: u64,
    /// Pods that waited and were released by another.
    pub released_by_others: u64,
    /// Pods that were counted natively because evaluators did not work.
    pub counted_natively: u64,
    /// Quotas whose sums were made anew from the pods to compare.
    pub audited: u64,
    /// How often an audit found a difference, and everything of a namespace was made anew.
    pub audit_differences: u64,
}

impl Stats {
    /// A pod was released that was held for so many milliseconds; `None`: that is not known.
    pub(super) fn note_release(&mut self, waited_ms: Option<u64>) {
        self.released += 1;
        #[allow(clippy::cast_precision_loss, reason = "exact for 285,000 years")]
        self.waits_s.extend(waited_ms.map(|waited_ms| waited_ms as f64 / 1000.0));
    }
}
