//! A histogram as `/metrics` shows it.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use sluice_e2e::metrics::Samples;

/// Observations by upper bound (nanoseconds; `u64::MAX` is +Inf), not cumulative.
#[derive(Debug, Default)]
pub(super) struct Histogram(BTreeMap<u64, u64>);

impl Histogram {
    /// The sum over the label values of the histogram `name` with at least these labels.
    pub(super) fn read(samples: &Samples, name: &str, labels: &[(&str, &str)]) -> anyhow::Result<Self> {
        let mut cumulative: BTreeMap<u64, u64> = BTreeMap::new();
        for bucket in samples.matching(&format!("{name}_bucket"), labels) {
            let bound = bucket.labels.get("le").with_context(|| format!("{bucket:?} has no bound"))?;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let count = bucket.value as u64;
            *cumulative.entry(nanos(bound)?).or_default() += count;
        }
        ensure!(!cumulative.is_empty(), "the metrics have no histogram {name} with {labels:?}");
        let mut below = 0;
        let own = cumulative
            .into_iter()
            .map(|(bound, count)| (bound, count - std::mem::replace(&mut below, count)));
        Ok(Self(own.collect()))
    }

    /// What was observed since `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let before = |bound| earlier.0.get(bound).copied().unwrap_or(0);
        Self(self.0.iter().map(|(bound, count)| (*bound, count.saturating_sub(before(bound)))).collect())
    }

    pub(super) fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// The quantile in milliseconds, taking observations to be spread evenly within their bucket.
    pub(super) fn quantile_ms(&self, q: f64) -> f64 {
        self.find(q).map_or(f64::NAN, |(lower, upper, share)| lower + (upper - lower) * share)
    }

    /// The upper bound of the bucket that the quantile is in, in milliseconds.
    pub(super) fn bound_ms(&self, q: f64) -> f64 {
        self.find(q).map_or(f64::NAN, |(_, upper, _)| upper)
    }

    /// Bounds in milliseconds of the bucket of the quantile, and where in it the quantile is.
    #[allow(clippy::cast_precision_loss)]
    fn find(&self, q: f64) -> Option<(f64, f64, f64)> {
        let rank = self.count() as f64 * q;
        let (mut below, mut lower) = (0.0, 0.0);
        for (bound, count) in &self.0 {
            let upper = if *bound == u64::MAX { f64::INFINITY } else { *bound as f64 / 1e6 };
            let count = *count as f64;
            if count > 0.0 && below + count >= rank {
                return Some((lower, upper, (rank - below) / count));
            }
            below += count;
            lower = upper;
        }
        None
    }

    #[allow(clippy::cast_precision_loss)]
    pub(super) fn json(&self) -> Value {
        let bound = |nanos: &u64| if *nanos == u64::MAX { json!("+Inf") } else { json!(*nanos as f64 / 1e6) };
        self.0.iter().map(|(nanos, count)| json!({"le_ms": bound(nanos), "count": count})).collect()
    }
}

fn nanos(bound: &str) -> anyhow::Result<u64> {
    if bound == "+Inf" {
        return Ok(u64::MAX);
    }
    let seconds: f64 = bound.parse()?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok((seconds * 1e9).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# TYPE t histogram
t_sum{endpoint="a"} 0.1
t_bucket{le="0.001",endpoint="a"} 10
t_bucket{le="0.002",endpoint="a"} 30
t_bucket{le="+Inf",endpoint="a"} 30
t_bucket{endpoint="b",le="0.001"} 10
t_bucket{endpoint="b",le="0.002"} 10
t_bucket{endpoint="b",le="+Inf"} 10
"#;

    #[test]
    fn quantiles_of_all_endpoints_together() {
        let all = Histogram::read(&Samples::parse(TEXT).unwrap(), "t", &[]).unwrap();
        assert_eq!(all.count(), 40);
        assert!((all.quantile_ms(0.5) - 1.0).abs() < 1e-9);
        assert!((all.quantile_ms(0.75) - 1.5).abs() < 1e-9);
        assert!((all.bound_ms(0.99) - 2.0).abs() < 1e-9);
        assert_eq!(all.since(&all).count(), 0);
    }
}
