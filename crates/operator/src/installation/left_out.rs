//! Containers of `Evaluator`s with which the API server does not take the controller's Deployment: no `Evaluator` keeps the
//! controller from being written.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use sluice_runtime::retry::Failure;
use tokio::time::Instant;

/// After so long it is tried again: what refuses it may be a policy of the cluster.
const RETRY: Duration = Duration::from_secs(600);

/// By name.
#[derive(Clone, Debug, Default)]
pub(super) struct LeftOut(BTreeMap<String, Refused>);

#[derive(Clone, Debug)]
struct Refused {
    container: Value,
    why: String,
    /// When it is tried again.
    again: Instant,
}

impl LeftOut {
    /// Why this container is left out; `None`: it is not.
    pub(super) fn why(&self, container: &Value) -> Option<&str> {
        let refused = self.0.get(name(container))?;
        (refused.container == *container).then_some(&refused.why)
    }

    /// Those that are to be tried again. Until they are taken they stay left out.
    pub(super) fn due(&self, now: Instant) -> Vec<Value> {
        let due = self.0.values().filter(|refused| refused.again <= now);
        due.map(|refused| refused.container.clone()).collect()
    }

    /// When the first of them is tried again.
    pub(super) fn over(&self) -> Option<Instant> {
        self.0.values().map(|refused| refused.again).min()
    }

    /// This one too, because of `why`.
    pub(super) fn with(mut self, container: &Value, why: &str, now: Instant) -> Self {
        let refused = Refused { container: container.clone(), why: why.to_owned(), again: now + RETRY };
        self.0.insert(name(container).to_owned(), refused);
        self
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
    fn what_was_left_out_stays_so_until_it_is_taken_or_changes() {
        let container = |name: &str, image: &str| json!({ "name": name, "image": image });
        let (a, b, now) = (container("a", "i"), container("b", "i"), Instant::now());
        let left = LeftOut::default().with(&a, "words", now).with(&b, "words", now).but(&b);
        assert_eq!((left.why(&a), left.why(&b)), (Some("words"), None));
        assert_eq!(left.why(&container("a", "other")), None);
        let over = left.over().unwrap();
        assert!(left.due(over - Duration::from_secs(1)).is_empty());
        assert_eq!(
            (left.due(over), left.why(&a)),
            (vec![a.clone()], Some("words")),
            "while it is tried again"
        );
        let refused = left.with(&a, "others", over);
        assert_eq!((refused.why(&a), refused.due(over)), (Some("others"), vec![]));
        assert_eq!(refused.but(&a).over(), None);
    }
}
