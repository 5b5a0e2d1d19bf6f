//! Containers of `Evaluator`s with which the API server does not take the controller's Deployment: no `Evaluator` keeps the
//! controller from being written.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use sluice_runtime::retry::Failure;
use tokio::time::Instant;

/// After so long it is tried again: what refuses it may be a policy of the cluster.
const RETRY: Duration = Duration::from_secs(600);

/// By name, with the container and why it was refused.
#[derive(Clone, Debug, Default)]
pub(super) struct LeftOut(BTreeMap<String, (Value, String, Instant)>);

impl LeftOut {
    /// Why this container is left out; `None`: it is not.
    pub(super) fn why(&self, container: &Value) -> Option<&str> {
        let (refused, why, _) = self.0.get(name(container))?;
        (refused == container).then_some(why)
    }

    /// Forgets what is to be tried again.
    pub(super) fn keep(&mut self, now: Instant) {
        self.0.retain(|_, (_, _, since)| now < *since + RETRY);
    }

    /// When the first of them is tried again.
    pub(super) fn over(&self) -> Option<Instant> {
        self.0.values().map(|(_, _, since)| *since + RETRY).min()
    }

    /// These too, because of `why`.
    pub(super) fn with(&self, containers: &[Value], why: &str, now: Instant) -> Self {
        let further = containers.iter().map(|it| (name(it).to_owned(), (it.clone(), why.to_owned(), now)));
        Self(self.0.clone().into_iter().chain(further).collect())
    }

    /// All but this one.
    pub(super) fn but(&self, container: &Value) -> Self {
        let mut fewer = self.clone();
        fewer.0.remove(name(container));
        fewer
    }
}

/// Whether another content may be taken.
pub(super) const fn is_refusal(failure: &Failure) -> bool {
    matches!(failure, Failure::Invalid | Failure::Forbidden | Failure::Other(400 | 413))
}

fn name(container: &Value) -> &str {
    container.get("name").and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_left_out_is_tried_again_when_it_changes_or_later() {
        let container = |name: &str, image: &str| json!({ "name": name, "image": image });
        let (a, b, now) = (container("a", "i"), container("b", "i"), Instant::now());
        let mut left = LeftOut::default().with(&[a.clone(), b.clone()], "words", now).but(&b);
        assert_eq!((left.why(&a), left.why(&b)), (Some("words"), None));
        assert_eq!(left.why(&container("a", "other")), None);
        let over = left.over().unwrap();
        left.keep(over - Duration::from_secs(1));
        assert!(left.why(&a).is_some());
        left.keep(over);
        assert!(left.why(&a).is_none() && left.over().is_none());
    }
}
