//! What a process says of itself in its metrics: which version it is, whether it leads, and when certificates end.

use std::fmt::{self, Formatter};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::lease::WriteToken;
use crate::tls::Validity;

type Read = Box<dyn Fn() -> Option<Validity> + Send + Sync>;

/// Reports this at each scrape: `sluice_build_info{component,version}`, `sluice_leader{component}` and
/// `sluice_certificate_…_timestamp_seconds{which}`.
pub struct About {
    component: &'static str,
    version: &'static str,
    leads: Option<WriteToken>,
    certificates: Vec<(&'static str, Read)>,
}

impl fmt::Debug for About {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("About").field("component", &self.component).finish_non_exhaustive()
    }
}

impl About {
    /// `component` is the subcommand, such as `controller`.
    #[must_use]
    pub const fn new(component: &'static str, version: &'static str) -> Self {
        Self { component, version, leads: None, certificates: Vec::new() }
    }

    /// The process leads while `token` is held.
    #[must_use]
    pub fn leading(self, token: WriteToken) -> Self {
        Self { leads: Some(token), ..self }
    }

    /// The process has a certificate, as `read` says; `None` while there is none.
    #[must_use]
    pub fn certificate(
        mut self,
        which: &'static str,
        read: impl Fn() -> Option<Validity> + Send + Sync + 'static,
    ) -> Self {
        self.certificates.push((which, Box::new(read)));
        self
    }
}

impl Collector for About {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let component = ("component", self.component);
        let text = "1, for the version of the program";
        let mut build = encoder.encode_descriptor("sluice_build_info", text, None, MetricType::Gauge)?;
        let labels = [component, ("version", self.version)];
        ConstGauge::new(1_i64).encode(build.encode_family(&labels)?)?;
        if let Some(token) = &self.leads {
            let text = "1 if this replica holds the lease, else 0";
            let mut leader = encoder.encode_descriptor("sluice_leader", text, None, MetricType::Gauge)?;
            ConstGauge::new(i64::from(token.is_held())).encode(leader.encode_family(&[component])?)?;
        }
        let known: Vec<_> =
            self.certificates.iter().filter_map(|(which, read)| Some((*which, read()?))).collect();
        let ends: (&str, &str, fn(&Validity) -> i64) = (
            "sluice_certificate_expiry_timestamp_seconds",
            "End of a certificate, in seconds since the epoch",
            |valid| valid.until.as_second(),
        );
        let begins: (&str, &str, fn(&Validity) -> i64) = (
            "sluice_certificate_issue_timestamp_seconds",
            "Beginning of a certificate, in seconds since the epoch",
            |valid| valid.from.as_second(),
        );
        for (name, text, moment) in [ends, begins] {
            if known.is_empty() {
                return Ok(());
            }
            let mut family = encoder.encode_descriptor(name, text, None, MetricType::Gauge)?;
            for (which, valid) in &known {
                ConstGauge::new(moment(valid)).encode(family.encode_family(&[("which", *which)])?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    fn text(about: About) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(about));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn version_leadership_and_certificates_are_told() {
        let moment = |second| Timestamp::from_second(second).unwrap();
        let valid = Validity { from: moment(100), until: moment(700) };
        let about = About::new("webhook", "1.2.3")
            .certificate("serving", move || Some(valid))
            .certificate("authority", || None);
        let served = text(about);
        for line in [
            "sluice_build_info{component=\"webhook\",version=\"1.2.3\"} 1",
            "sluice_certificate_expiry_timestamp_seconds{which=\"serving\"} 700",
            "sluice_certificate_issue_timestamp_seconds{which=\"serving\"} 100",
        ] {
            assert!(served.lines().any(|is| is == line), "{line}: {served}");
        }
        assert!(!served.contains("authority") && !served.contains("sluice_leader"), "{served}");
    }

    #[tokio::test]
    async fn it_leads_while_the_lease_is_held() {
        let token = WriteToken::new();
        let served = || text(About::new("controller", "1").leading(token.clone()));
        assert!(served().contains("sluice_leader{component=\"controller\"} 0\n"), "{}", served());
        token.hold_until(token.now() + std::time::Duration::from_secs(60));
        assert!(served().contains("sluice_leader{component=\"controller\"} 1\n"), "{}", served());
        assert!(!served().contains("certificate"), "there is none");
    }
}
