//! The metrics of a program, as monitoring reads them.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use sluice_api::names;

use crate::probe::get;

/// One line of the metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Of the series.
    pub name: String,
    /// By key.
    pub labels: BTreeMap<String, String>,
    /// In the unit of the series.
    pub value: f64,
}

/// All samples of one scrape.
#[derive(Clone, Debug)]
pub struct Samples(Vec<Sample>);

impl Samples {
    /// Those of the program with its probes at `admin`.
    ///
    /// # Errors
    /// When there is no answer, or one that is no complete text of metrics.
    pub async fn of(admin: &str) -> anyhow::Result<Self> {
        let (code, text) = get(admin, names::PATH_METRICS).await?;
        ensure!(code == 200 && text.ends_with("# EOF\n"), "the metrics at {admin} answered {code}: {text}");
        Self::parse(&text)
    }

    /// Reads the text format. Values of Sluice's labels contain no quotes and no commas.
    ///
    /// # Errors
    /// When a line is no sample.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples
            .map(|line| sample(line).with_context(|| format!("no sample: {line}")))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The samples of a series with at least these labels.
    #[must_use]
    pub fn matching(&self, name: &str, labels: &[(&str, &str)]) -> Vec<&Sample> {
        let has = |sample: &&Sample| {
            labels.iter().all(|(key, value)| sample.labels.get(*key).is_some_and(|label| label == value))
        };
        self.0.iter().filter(|sample| sample.name == name).filter(has).collect()
    }

    /// Their sum; `None` if there are none.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let found = self.matching(name, labels);
        (!found.is_empty()).then(|| found.iter().map(|sample| sample.value).sum())
    }
}

fn sample(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let pairs = labels.trim_end_matches('}').split(',').filter(|pair| !pair.is_empty());
    let labels = pairs.map(|pair| {
        let (key, value) = pair.split_once('=')?;
        Some((key.to_owned(), value.trim_matches('"').to_owned()))
    });
    Some(Sample { name: name.to_owned(), labels: labels.collect::<Option<_>>()?, value: value.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::Samples;

    #[test]
    fn samples_are_found_by_labels_and_summed() {
        let text = "# TYPE a counter\na_total{x=\"1\",y=\"2\"} 3\na_total{x=\"2\"} 4\nb 0.5\n# EOF\n";
        let samples = Samples::parse(text).unwrap();
        assert_eq!(samples.sum("a_total", &[]), Some(7.0));
        assert_eq!(samples.sum("a_total", &[("x", "1")]), Some(3.0));
        assert_eq!(samples.sum("a_total", &[("x", "3")]), None);
        assert_eq!(samples.sum("b", &[]), Some(0.5));
        assert!(Samples::parse("nonsense").is_err());
    }
}
