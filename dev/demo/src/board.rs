//! What was observed: pods with their states and times, the quota, and whether the promise was kept.
//!
//! Everything here is computed from what the API server showed us; times are since the start of the story.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1;
use sluice_api::names;
use sluice_e2e::objects::is_held;
use sluice_engine::{Format, Quantity};

use crate::follow::Change;

/// Amounts by key of a quota.
pub type Amounts = BTreeMap<String, Quantity>;

/// Where a pod is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Behind the gate.
    Held,
    /// The gate is gone; a node is looked for or starts it.
    Released,
    /// Runs.
    Running,
    /// Has ended.
    Completed,
    Deleted,
}

impl State {
    /// The word in the table.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Held => "Held",
            Self::Released => "Released",
            Self::Running => "Running",
            Self::Completed => "Completed",
            Self::Deleted => "Deleted",
        }
    }

    fn of(pod: &Pod) -> Self {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        match phase {
            Some("Succeeded" | "Failed") => Self::Completed,
            _ if is_held(pod) => Self::Held,
            Some("Running") => Self::Running,
            _ => Self::Released,
        }
    }

    /// Whether such a pod takes from the quota.
    const fn counts(self) -> bool {
        matches!(self, Self::Released | Self::Running)
    }
}

/// One pod.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    pub priority: i32,
    /// What it asks for, by key of a quota.
    pub asks: Amounts,
    /// Where it is.
    pub state: State,
    pub since: Duration,
    /// When it was first seen.
    pub arrived: Duration,
    /// When it was first seen without the gate.
    pub released: Option<Duration>,
    /// Why it was held: what Sluice told last.
    pub told: Option<String>,
}

impl Row {
    /// How long it was behind the gate.
    pub fn waited(&self) -> Option<Duration> {
        Some(self.released?.saturating_sub(self.arrived))
    }
}

/// A quota and the most that was in use under it.
#[derive(Clone, Debug)]
pub struct Peak {
    pub limits: Amounts,
    /// The most that was seen in use of each.
    pub most: Amounts,
}

/// Everything that was observed.
#[derive(Clone, Debug, Default)]
pub struct Board {
    /// The name of the cluster quota, if the act is about one: the names of its namespaces begin with it.
    pub cluster: Option<String>,
    rows: BTreeMap<String, Row>,
    told: BTreeMap<String, String>,
    /// The quota's `status` in one line ([`crate::quota_line`]).
    pub quota: Option<String>,
    /// One entry per limits that were in force.
    pub peaks: Vec<Peak>,
    /// Every time that more was in use than allowed.
    pub breaches: Vec<String>,
}

impl Board {
    /// The pods, oldest first.
    pub fn rows(&self) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self.rows.values().collect();
        rows.sort_by(|a, b| (a.arrived, &a.name).cmp(&(b.arrived, &b.name)));
        rows
    }

    /// The pods whose name is `name` or starts with `name-`.
    pub fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Row> {
        let belongs = move |row: &&Row| {
            row.name.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        self.rows.values().filter(belongs)
    }

    /// Whether there are `count` pods of this name and all are in one of the states.
    pub fn all(&self, name: &str, count: usize, states: &[State]) -> bool {
        self.of(name).count() == count && self.of(name).all(|row| states.contains(&row.state))
    }

    /// Whether there are `count` pods of this name, and all are held and were told why.
    pub fn held(&self, name: &str, count: usize) -> bool {
        self.all(name, count, &[State::Held]) && self.of(name).all(|row| row.told.is_some())
    }

    /// The limits that hold from now on. To be called before the quota is changed, for only raises are told here:
    /// a release that is seen before the answer to the change must not look like a breach.
    pub fn allow(&mut self, limits: Amounts) {
        self.peaks.push(Peak { limits, most: Amounts::new() });
        self.weigh();
    }

    /// A pod as it is now; the line to tell if its state is new.
    pub fn pod(&mut self, at: Duration, pod: &Pod) -> Option<String> {
        let uid = pod.metadata.uid.clone()?;
        let state = State::of(pod);
        let known = self.rows.contains_key(&uid);
        let told = self.told.get(&uid).cloned();
        let name = self.name(pod);
        let row = self.rows.entry(uid).or_insert_with(|| Row {
            name,
            priority: 0,
            asks: Amounts::new(),
            state,
            since: at,
            arrived: at,
            released: None,
            told,
        });
        row.priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
        row.asks = asks(pod);
        let changed = row.state != state;
        if changed {
            (row.state, row.since) = (state, at);
        }
        if state != State::Held && row.released.is_none() {
            row.released = Some(at);
        }
        // A pod that fits is behind the gate for milliseconds: told only if there is a reason, which may have come first.
        let worth = state != State::Held || row.told.is_some();
        let line = (changed || (!known && worth)).then(|| line(row));
        self.weigh();
        line
    }

    /// With what tells its namespace from the others, if there are several.
    fn name(&self, pod: &Pod) -> String {
        let name = pod.metadata.name.clone().unwrap_or_default();
        match &self.cluster {
            Some(cluster) => {
                let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                format!("{}/{name}", short(cluster, namespace))
            }
            None => name,
        }
    }

    fn gone(&mut self, at: Duration, uid: &str) -> Option<String> {
        let row = self.rows.get_mut(uid).filter(|row| row.state != State::Deleted)?;
        let ended = row.state == State::Completed;
        (row.state, row.since) = (State::Deleted, at);
        let line = (!ended).then(|| line(row));
        self.weigh();
        line
    }

    /// Something became of the pods; lines for what is new.
    pub fn pods(&mut self, at: Duration, change: Change<Pod>) -> Vec<String> {
        let gone = change.gone(self.rows.keys());
        let mut lines: Vec<String> = gone.iter().filter_map(|uid| self.gone(at, uid)).collect();
        lines.extend(change.present().iter().filter_map(|pod| self.pod(at, pod)));
        lines
    }

    /// Something became of the events; lines for what Sluice, and no other component, tells on pods.
    pub fn events(&mut self, _: Duration, change: Change<v1::Event>) -> Vec<String> {
        let told = change.present().into_iter().filter_map(|event| {
            let ours = event.reporting_controller.as_deref() == Some(names::EVENT_COMPONENT);
            let regarding = event.regarding.filter(|it| ours && it.kind.as_deref() == Some("Pod"))?;
            // What to do is for those who read the events.
            self.told(regarding.uid.as_deref()?, event.note.as_deref()?.split("; ").next()?)
        });
        told.collect()
    }

    /// Sluice told on a pod.
    pub fn told(&mut self, uid: &str, note: &str) -> Option<String> {
        let before = self.told.insert(uid.to_owned(), note.to_owned());
        let row = self.rows.get_mut(uid)?;
        row.told = Some(note.to_owned());
        (before.as_deref() != Some(note) && row.state == State::Held).then(|| line(row))
    }

    /// Something became of the quota; what there is to say of it now, if that is new.
    pub fn quotas<K>(&mut self, change: Change<K>, line: fn(&K) -> Option<String>) -> Vec<String> {
        let news = change.present().into_iter().filter_map(|quota| line(&quota)).filter_map(|line| {
            let changed = self.quota.as_ref() != Some(&line);
            self.quota = Some(line.clone());
            changed.then(|| format!("{:<20} {line}", "quota"))
        });
        news.collect()
    }

    /// The promise, from what was observed.
    ///
    /// # Errors
    /// When more was in use at any time than allowed.
    pub fn kept(&self) -> anyhow::Result<()> {
        let breaches = self.breaches.join("; ");
        ensure!(breaches.is_empty(), "the promise was broken: {breaches}");
        Ok(())
    }

    /// Compares what is in use with what is allowed.
    fn weigh(&mut self) {
        let Some(peak) = self.peaks.last_mut() else { return };
        for (key, limit) in &peak.limits {
            let counted = self.rows.values().filter(|row| row.state.counts());
            let used = counted.filter_map(|row| row.asks.get(key)).fold(Quantity::ZERO, |a, b| sum(a, *b));
            let most = peak.most.entry(key.clone()).or_default();
            if used > *most {
                *most = used;
                if used > *limit {
                    self.breaches.push(format!("{key}: {used} in use, {limit} allowed"));
                }
            }
        }
    }
}

/// What tells this namespace of a cluster quota from its others.
pub fn short<'n>(cluster: &str, namespace: &'n str) -> &'n str {
    namespace.strip_prefix(cluster).and_then(|rest| rest.strip_prefix('-')).unwrap_or(namespace)
}

fn line(row: &Row) -> String {
    let word = row.state.word();
    let more = match (row.state, &row.told) {
        (State::Held, Some(told)) => told.clone(),
        (State::Released, _) => match row.waited() {
            Some(Duration::ZERO) => "had no gate".to_owned(),
            Some(waited) => format!("after {:.1} s", waited.as_secs_f32()),
            None => String::new(),
        },
        _ => String::new(),
    };
    format!("{:<20} {word:<10} {more}", row.name).trim_end().to_owned()
}

/// The sum of what the containers request (the examples need no more), and one pod.
fn asks(pod: &Pod) -> Amounts {
    let mut asks = Amounts::from([("pods".to_owned(), Quantity::from_units(1, Format::DecimalSi))]);
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let requests =
        containers.filter_map(|container| container.resources.as_ref()?.requests.as_ref()).flatten();
    for (name, amount) in requests {
        let amount = Quantity::parse(&amount.0).unwrap_or_default();
        let entry = asks.entry(format!("requests.{name}")).or_default();
        *entry = sum(*entry, amount);
    }
    asks
}

fn sum(a: Quantity, b: Quantity) -> Quantity {
    a.checked_add(b).unwrap_or(b)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;
    use sluice_engine::Quantity;

    use super::{Amounts, Board, State};
    use crate::follow::Change;

    fn pod(name: &str, cpu: &str, held: bool, phase: &str) -> Pod {
        let gates = if held { json!([{"name": "ApplicationAwareQuotaGate"}]) } else { json!([]) };
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": format!("uid-of-{name}")},
            "spec": {"schedulingGates": gates, "containers": [
                {"name": "main", "resources": {"requests": {"cpu": cpu}}},
            ]},
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    fn cpus(amount: &str) -> Amounts {
        Amounts::from([("requests.cpu".to_owned(), Quantity::parse(amount).unwrap())])
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_pod_is_followed_from_gate_to_end() {
        let mut board = Board::default();
        board.allow(cpus("1"));
        assert_eq!(board.pod(at(1), &pod("a", "1", true, "Pending")), None, "held for milliseconds perhaps");
        assert_eq!(board.told("uid-of-a", "because").unwrap(), "a                    Held       because");
        assert_eq!(board.told("uid-of-a", "because"), None, "the same again");
        let line = board.pod(at(4), &pod("a", "1", false, "Pending")).unwrap();
        assert_eq!(line, "a                    Released   after 3.0 s");
        board.pod(at(5), &pod("a", "1", false, "Running")).unwrap();
        assert!(board.all("a", 1, &[State::Running]));
        board.pod(at(6), &pod("a", "1", false, "Succeeded")).unwrap();
        assert_eq!(board.gone(at(7), "uid-of-a"), None, "had ended before");
        assert_eq!(board.rows()[0].waited(), Some(at(3)));
        let line = board.pod(at(8), &pod("b", "1", false, "Pending")).unwrap();
        assert_eq!(line, "b                    Released   had no gate");
        assert!(board.breaches.is_empty());
        assert_eq!(board.peaks[0].most, cpus("1"));
    }

    #[test]
    fn a_reason_may_be_seen_before_its_pod() {
        let mut board = Board::default();
        assert_eq!(board.told("uid-of-a", "because"), None, "its pod is not known yet");
        let line = board.pod(at(1), &pod("a", "1", true, "Pending")).unwrap();
        assert_eq!(line, "a                    Held       because");
        assert_eq!(board.pod(at(2), &pod("a", "1", true, "Pending")), None, "the same again");
    }

    #[test]
    fn more_in_use_than_allowed_is_a_breach() {
        let mut board = Board::default();
        board.allow(cpus("1500m"));
        board.pod(at(1), &pod("a", "1", false, "Running"));
        board.pod(at(1), &pod("held", "1", true, "Pending"));
        board.pod(at(1), &pod("ended", "1", false, "Failed"));
        assert!(board.breaches.is_empty());
        board.pod(at(2), &pod("b", "600m", false, "Pending"));
        assert_eq!(board.breaches, ["requests.cpu: 1600m in use, 1500m allowed"]);
    }

    #[test]
    fn a_raise_allows_more() {
        let mut board = Board::default();
        board.allow(cpus("1"));
        board.pod(at(1), &pod("a", "1", false, "Running"));
        board.allow(cpus("2"));
        board.pod(at(2), &pod("b", "1", false, "Running"));
        assert!(board.breaches.is_empty());
        assert_eq!(
            board.peaks.iter().map(|peak| peak.most.clone()).collect::<Vec<_>>(),
            [cpus("1"), cpus("2")]
        );
    }

    #[test]
    fn a_new_list_tells_who_is_gone() {
        let mut board = Board::default();
        board.pod(at(1), &pod("web-1", "1", false, "Running"));
        board.pod(at(1), &pod("webs", "1", false, "Running"));
        let lines = board.pods(at(2), Change::All(vec![pod("webs", "1", false, "Running")]));
        assert_eq!(lines, ["web-1                Deleted"]);
        assert!(board.all("web", 1, &[State::Deleted]), "webs does not belong to web");
    }
}
