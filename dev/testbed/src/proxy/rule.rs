//! Rules: which requests, which misbehaviour, how often.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use http::{Method, StatusCode};
use regex::Regex;
use tokio::sync::Notify;

/// What happens to a request.
#[derive(Clone, Debug)]
pub enum Action {
    /// The request does not reach the API server; this status is answered (as `metav1.Status`).
    Answer {
        /// HTTP status, e.g. 409, 429, 500.
        status: StatusCode,
        /// Seconds of a `Retry-After` header.
        retry_after: Option<u32>,
    },
    /// The request does not reach the API server; this object is answered.
    AnswerWith(serde_json::Value),
    /// The connection is closed before the request reaches the API server.
    DropBefore,
    /// The API server handles the request; then the connection is closed without an answer.
    ApplyThenLoseResponse,
    /// The request is forwarded later.
    Delay(Duration),
    /// The request is forwarded once the notification came.
    HoldUntil(Arc<Notify>),
    /// A watch is cut in the middle of the stream after this many events.
    CutWatch {
        /// Events that still pass.
        after_events: usize,
    },
    /// A watch ends with an ERROR event 410 after this many events.
    WatchError410 {
        /// Events that still pass.
        after_events: usize,
    },
    /// The request passes; for rules that only count or call.
    Pass,
}

impl Action {
    /// Every way in which a write can fail, with a name for messages.
    #[must_use]
    pub fn failures() -> Vec<(&'static str, Self)> {
        let answer = |status, retry_after| Self::Answer { status, retry_after };
        vec![
            ("409", answer(StatusCode::CONFLICT, None)),
            ("422", answer(StatusCode::UNPROCESSABLE_ENTITY, None)),
            ("429", answer(StatusCode::TOO_MANY_REQUESTS, Some(1))),
            ("500", answer(StatusCode::INTERNAL_SERVER_ERROR, None)),
            ("503", answer(StatusCode::SERVICE_UNAVAILABLE, None)),
            ("lost request", Self::DropBefore),
            ("lost answer", Self::ApplyThenLoseResponse),
        ]
    }
}

/// A request as the proxy saw it.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// HTTP method.
    pub method: Method,
    /// Path without query.
    pub path: String,
    /// Query, empty without one.
    pub query: String,
    /// Body, as far as it is JSON.
    pub body: Option<serde_json::Value>,
}

impl Recorded {
    /// True for POST, PUT, PATCH and DELETE.
    #[must_use]
    pub fn is_write(&self) -> bool {
        matches!(self.method, Method::POST | Method::PUT | Method::PATCH | Method::DELETE)
    }

    /// True for a watch.
    #[must_use]
    pub fn is_watch(&self) -> bool {
        self.query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"))
    }
}

type Predicate = Arc<dyn Fn(&Recorded) -> bool + Send + Sync>;
type Hook = Arc<dyn Fn(&Recorded) + Send + Sync>;

/// One rule. Without further calls it applies to every request it matches.
#[derive(Clone)]
pub struct Rule {
    method: Option<Method>,
    path: Option<Regex>,
    predicate: Option<Predicate>,
    from: usize,
    count: usize,
    action: Action,
    hook: Option<Hook>,
}

impl Rule {
    /// A rule that applies to all requests.
    #[must_use]
    pub fn new(action: Action) -> Self {
        Self { method: None, path: None, predicate: None, from: 1, count: usize::MAX, action, hook: None }
    }

    /// A rule that answers with a status, without `Retry-After`.
    ///
    /// # Errors
    /// When the number is no HTTP status.
    pub fn answer(status: u16) -> anyhow::Result<Self> {
        let status = StatusCode::from_u16(status).with_context(|| format!("{status} is no HTTP status"))?;
        Ok(Self::new(Action::Answer { status, retry_after: None }))
    }

    /// Only this method.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.method = Some(method);
        self
    }

    /// Only paths (without query) in which the regular expression is found.
    ///
    /// # Errors
    /// When the expression is not one.
    pub fn path(mut self, expression: &str) -> anyhow::Result<Self> {
        self.path = Some(Regex::new(expression).context("path of a proxy rule")?);
        Ok(self)
    }

    /// Only requests for which this is true.
    #[must_use]
    pub fn when(mut self, predicate: impl Fn(&Recorded) -> bool + Send + Sync + 'static) -> Self {
        self.predicate = Some(Arc::new(predicate));
        self
    }

    /// Only the nth match, counted from 1.
    #[must_use]
    pub const fn nth(mut self, n: usize) -> Self {
        (self.from, self.count) = (n, 1);
        self
    }

    /// Only so many matches.
    #[must_use]
    pub const fn times(mut self, count: usize) -> Self {
        self.count = count;
        self
    }

    /// Called when the rule applies, while the request is in the proxy: before it is forwarded,
    /// or with [`Action::ApplyThenLoseResponse`] after the API server answered. This is the
    /// place to kill a process at an exact write.
    #[must_use]
    pub fn then(mut self, hook: impl Fn(&Recorded) + Send + Sync + 'static) -> Self {
        self.hook = Some(Arc::new(hook));
        self
    }
}

/// Handle of a rule that was added; counts its applications.
#[derive(Clone, Debug)]
pub struct RuleId(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    matched: AtomicUsize,
    applied: AtomicUsize,
    changed: Notify,
}

impl PartialEq for RuleId {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl RuleId {
    /// How often the rule acted.
    #[must_use]
    pub fn applied(&self) -> usize {
        self.0.applied.load(Ordering::SeqCst)
    }

    /// Waits until the rule has acted at least so often.
    ///
    /// # Errors
    /// When the deadline passes.
    pub async fn wait_applied(&self, count: usize, deadline: Duration) -> anyhow::Result<()> {
        let reached = async {
            loop {
                let mut changed = std::pin::pin!(self.0.changed.notified());
                changed.as_mut().enable();
                if self.applied() >= count {
                    return;
                }
                changed.await;
            }
        };
        let waited = tokio::time::timeout(deadline, reached).await;
        waited.map_err(|_| {
            anyhow::anyhow!(
                "waited {deadline:?} in vain for a proxy rule to act {count} times; it acted {} times",
                self.applied()
            )
        })
    }
}

/// A rule with its counters.
pub(super) struct ActiveRule {
    rule: Rule,
    counters: Arc<Counters>,
}

/// What a rule wants of a request.
pub(super) struct Verdict {
    pub action: Action,
    hook: Option<Hook>,
    counters: Arc<Counters>,
}

impl Verdict {
    /// Calls the hook, then counts: who waits for the count finds the hook's work done.
    pub(super) async fn call(&self, request: &Recorded) {
        let counters = Arc::clone(&self.counters);
        let count = move || {
            counters.applied.fetch_add(1, Ordering::SeqCst);
            counters.changed.notify_waiters();
        };
        let Some(hook) = self.hook.clone() else { return count() };
        let request = request.clone();
        // A hook may block for some milliseconds (killing a process). If it kills the client, the connection ends and
        // with it this future: what is counted must not depend on it.
        let called = tokio::task::spawn_blocking(move || {
            hook(&request);
            count();
        });
        let _ = called.await;
    }
}

impl ActiveRule {
    pub(super) fn new(rule: Rule) -> Self {
        Self { rule, counters: Arc::default() }
    }

    pub(super) fn id(&self) -> RuleId {
        RuleId(Arc::clone(&self.counters))
    }

    /// Counts the request if it matches; `Some` if the rule acts on it.
    pub(super) fn consider(&self, request: &Recorded) -> Option<Verdict> {
        let rule = &self.rule;
        let watches_only = matches!(rule.action, Action::CutWatch { .. } | Action::WatchError410 { .. });
        let matches = rule.method.as_ref().is_none_or(|method| *method == request.method)
            && rule.path.as_ref().is_none_or(|path| path.is_match(&request.path))
            && (!watches_only || request.is_watch())
            && rule.predicate.as_ref().is_none_or(|predicate| predicate(request));
        if !matches {
            return None;
        }
        let number = self.counters.matched.fetch_add(1, Ordering::SeqCst) + 1;
        let acts = number >= rule.from && number - rule.from < rule.count;
        acts.then(|| Verdict {
            action: rule.action.clone(),
            hook: rule.hook.clone(),
            counters: Arc::clone(&self.counters),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Method, path: &str, query: &str) -> Recorded {
        Recorded { method, path: path.into(), query: query.into(), body: None }
    }

    #[test]
    fn acts_on_the_nth_match_only() {
        let rule = Rule::new(Action::DropBefore).method(Method::PATCH).path("/pods/[^/]+$").unwrap().nth(2);
        let active = ActiveRule::new(rule);
        let patch = request(Method::PATCH, "/api/v1/namespaces/a/pods/b", "");
        assert!(active.consider(&patch).is_none());
        assert!(active.consider(&request(Method::GET, &patch.path, "")).is_none());
        assert!(active.consider(&request(Method::PATCH, "/api/v1/namespaces/a/pods/b/status", "")).is_none());
        assert!(active.consider(&patch).is_some());
        assert!(active.consider(&patch).is_none());
    }

    #[test]
    fn watch_actions_leave_other_requests_alone() {
        let active = ActiveRule::new(Rule::new(Action::CutWatch { after_events: 0 }).times(1));
        assert!(active.consider(&request(Method::GET, "/api/v1/pods", "limit=1")).is_none());
        assert!(active.consider(&request(Method::GET, "/api/v1/pods", "limit=1&watch=true")).is_some());
        assert!(active.consider(&request(Method::GET, "/api/v1/pods", "watch=1")).is_none());
    }

    #[test]
    fn predicate_sees_the_body() {
        let rule =
            Rule::answer(500).unwrap().when(|r| r.body.as_ref().is_some_and(|body| body["kind"] == "Pod"));
        let active = ActiveRule::new(rule);
        let mut post = request(Method::POST, "/", "");
        assert!(active.consider(&post).is_none());
        post.body = Some(serde_json::json!({"kind": "Pod"}));
        assert!(active.consider(&post).is_some());
    }
}
