//! A proxy between one client and the API server that misbehaves by rule.
//!
//! It speaks HTTPS (HTTP/1.1) with a certificate of the bed's CA. A client that shows a token
//! keeps its identity, for the token passes through; for an identity with a client certificate
//! the proxy shows that certificate upstream. Watches are streamed line by line, so that they
//! can be cut or ended with an error.

mod body;
mod rule;
mod serve;
mod stream;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use kube::config::AuthInfo;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use rule::ActiveRule;
pub use rule::{Action, Recorded, Rule, RuleId};

use crate::bed::{Bed, Identity};
use crate::kubeconfig;

/// A running proxy; it ends when dropped (with all its connections).
pub struct FaultProxy {
    shared: Arc<Shared>,
    kubeconfig: PathBuf,
    accepting: tokio::task::JoinHandle<()>,
}

/// What all connections share.
struct Shared {
    upstream: kube::Client,
    /// Token that the client must show when the proxy lends it an identity.
    required: Option<String>,
    rules: Mutex<Vec<ActiveRule>>,
    requests: Mutex<Vec<Recorded>>,
    /// Tells running watches to end; the number counts the orders.
    watches: watch::Sender<(u64, WatchOrder)>,
    /// The end of the path of the watches whose events are held back, if any are.
    held: watch::Sender<Option<&'static str>>,
    /// So many seconds the clock of the answers is ahead.
    ahead: AtomicI64,
    /// Set when the proxy is dropped: connections end.
    closed: watch::Sender<bool>,
}

/// What running watches are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchOrder {
    Cut,
    Expire,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FaultProxy {
    /// Starts a proxy for an identity. It belongs to the calling tokio runtime.
    ///
    /// # Errors
    /// When no port or certificate can be had.
    pub async fn start(bed: &Bed, identity: &Identity) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("binding the fault proxy")?;
        let port = listener.local_addr()?.port();
        let (cert, key) = bed.serving_certificate(&["127.0.0.1", "localhost"])?;
        let acceptor = TlsAcceptor::from(Arc::new(serve::tls(&cert, &key)?));

        let mut config = identity.config();
        config.default_retry = false;
        let namespace = config.default_namespace.clone();
        let (auth, required) = if config.auth_info.token.is_some() {
            (std::mem::take(&mut config.auth_info), None)
        } else {
            let token = format!("{:x}{:x}", crate::ports::random(), crate::ports::random());
            (
                AuthInfo { token: Some(token.clone().into()), ..AuthInfo::default() },
                Some(format!("Bearer {token}")),
            )
        };
        let user: String =
            identity.user().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let kubeconfig = bed.dir().join("kubeconfigs").join(format!("{user}-through-{port}.kubeconfig"));
        let url = format!("https://127.0.0.1:{port}");
        kubeconfig::write(&kubeconfig, &url, bed.ca_pem(), auth, Some(&namespace))?;
        let shared = Arc::new(Shared {
            upstream: kube::Client::try_from(config).context("making the proxy's client")?,
            required,
            rules: Mutex::default(),
            requests: Mutex::default(),
            watches: watch::Sender::new((0, WatchOrder::Cut)),
            held: watch::Sender::new(None),
            ahead: AtomicI64::new(0),
            closed: watch::Sender::new(false),
        });
        let accepting = tokio::spawn(serve::accept(listener, acceptor, Arc::clone(&shared)));
        Ok(Self { shared, kubeconfig, accepting })
    }

    /// A kubeconfig that leads through the proxy, with the identity it was started for.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A client that goes through the proxy and does not retry by itself.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn client(&self) -> anyhow::Result<kube::Client> {
        let file = kube::config::Kubeconfig::read_from(&self.kubeconfig)?;
        let mut config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await?;
        config.default_retry = false;
        Ok(kube::Client::try_from(config)?)
    }

    /// Adds a rule. Of the rules that apply to a request, the one added first acts.
    pub fn add(&self, rule: Rule) -> RuleId {
        let mut rules = lock(&self.shared.rules);
        let active = ActiveRule::new(rule);
        let id = active.id();
        rules.push(active);
        id
    }

    /// Removes a rule; requests it already holds stay held by it.
    pub fn remove(&self, id: &RuleId) {
        lock(&self.shared.rules).retain(|rule| rule.id() != *id);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        lock(&self.shared.rules).clear();
    }

    /// All requests so far, in order of arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        lock(&self.shared.requests).clone()
    }

    /// Number of requests so far that changed something (POST, PUT, PATCH, DELETE).
    #[must_use]
    pub fn writes(&self) -> usize {
        lock(&self.shared.requests).iter().filter(|request| request.is_write()).count()
    }

    /// Cuts all running watches in the middle of the stream.
    pub fn cut_watches(&self) {
        self.shared.watches.send_modify(|order| *order = (order.0 + 1, WatchOrder::Cut));
    }

    /// Ends all running watches with an ERROR event 410 (`Expired`).
    pub fn expire_watches(&self) {
        self.shared.watches.send_modify(|order| *order = (order.0 + 1, WatchOrder::Expire));
    }

    /// From now on the dates of answers are those of an API server whose clock is so much ahead.
    pub fn advance_dates(&self, seconds: i64) {
        self.shared.ahead.store(seconds, Ordering::SeqCst);
    }

    /// Holds back the events of all watches whose path ends so (`/pods`); the connections stay open.
    pub fn hold_watch_events(&self, path_end: &'static str) {
        self.shared.held.send_replace(Some(path_end));
    }

    /// Lets held events through.
    pub fn release_watch_events(&self) {
        self.shared.held.send_replace(None);
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.shared.closed.send_replace(true);
    }
}
