//! The API servers of the cluster, each by its own address.
//!
//! What one API server knows and enforces says nothing of another one, so each is asked.

use std::sync::Arc;

use arc_swap::ArcSwap;
use futures::future::try_join_all;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use tokio::sync::watch as signal;

mod discovery;
mod per_server;

pub use discovery::{follow_identities, follow_servers};
pub use per_server::{ByServer, Pace, PerServer, Round};

use crate::client::{ClientError, ClientOptions, Server, connect};

/// One API server.
#[derive(Clone)]
pub struct ApiServer {
    /// Its address, for people.
    pub name: Arc<str>,
    /// Asks this one and no other.
    pub client: Client,
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ApiServer").field(&self.name).finish()
    }
}

/// An API server's Lease counts for so long after it was renewed, which happens every 10 s.
const LEASE_TIME: SignedDuration = SignedDuration::from_secs(60);

/// All API servers.
#[derive(Debug)]
pub struct Servers {
    options: ClientOptions,
    any: ApiServer,
    known: ArcSwap<(Vec<Server>, Vec<ApiServer>)>,
    /// When the Leases were renewed with which API servers announce themselves.
    renewed: ArcSwap<Vec<Timestamp>>,
    /// Each address is asked so often; more than once where it is that of a balancer.
    proofs: u32,
    changed: signal::Sender<u64>,
}

impl Servers {
    /// Starts with the address that `client` was made for. `options` are those of `client`.
    #[must_use]
    pub fn new(client: Client, options: ClientOptions) -> Self {
        let any = ApiServer { name: "the configured address".into(), client };
        Self {
            options,
            any,
            known: ArcSwap::default(),
            renewed: ArcSwap::default(),
            proofs: 0,
            changed: signal::Sender::new(0),
        }
    }

    /// Behind some address there are several API servers: each address is asked `proofs` times, and that is trusted.
    #[must_use]
    pub const fn trusting_balancers(mut self, proofs: u32) -> Self {
        self.proofs = proofs;
        self
    }

    /// How often each address is to be asked.
    #[must_use]
    pub fn proofs(&self) -> u32 {
        self.proofs.max(1)
    }

    /// Changes whenever the API servers do, or the number of those that announce themselves.
    #[must_use]
    pub fn changes(&self) -> signal::Receiver<u64> {
        self.changed.subscribe()
    }

    /// These are the times at which API servers have renewed their Leases.
    pub fn announced(&self, renewed: Vec<Timestamp>) {
        // Each set is dated by its newest renewal, so the clock of this machine does not matter.
        let alive_then =
            |renewed: &[Timestamp]| renewed.iter().max().map_or(0, |newest| alive(renewed, *newest));
        let now_alive = alive_then(&renewed);
        let before = self.renewed.swap(Arc::new(renewed));
        if alive_then(&before) != now_alive {
            self.changed.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    /// If there are more API servers than addresses, and that was not declared to be fine: what is wrong. `now` is the API
    /// servers' clock.
    #[must_use]
    pub fn hidden(&self, now: Timestamp) -> Option<String> {
        let (addresses, alive) = (self.each().len(), alive(&self.renewed.load(), now));
        (self.proofs == 0 && alive > addresses).then(|| {
            format!(
                "{alive} API servers have a current Lease in kube-system, but only {addresses} can be addressed: \
                 name each with --api-server, or set --balancer-proofs"
            )
        })
    }

    /// The servers to ask: every API server, or the one that answers at the configured address while there is only one.
    #[must_use]
    pub fn each(&self) -> Vec<ApiServer> {
        let known = self.known.load();
        if known.1.len() > 1 { known.1.clone() } else { vec![self.any.clone()] }
    }

    /// These are all API servers now. Connections to those that stay are kept.
    ///
    /// # Errors
    /// When an address cannot be used; the servers known before stay then.
    pub async fn set(&self, servers: Vec<Server>) -> Result<(), ClientError> {
        let known = self.known.load_full();
        if known.0 == servers {
            return Ok(());
        }
        let connected = servers.iter().map(|server| {
            let old = known.0.iter().position(|other| other == server).and_then(|at| known.1.get(at));
            let old = old.cloned();
            async move {
                match old {
                    Some(server) => Ok(server),
                    None => self.connect(server).await,
                }
            }
        });
        let connected = try_join_all(connected).await?;
        self.known.store(Arc::new((servers, connected)));
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
        Ok(())
    }

    async fn connect(&self, server: &Server) -> Result<ApiServer, ClientError> {
        let options = ClientOptions { server: Some(server.clone()), ..self.options.clone() };
        Ok(ApiServer { name: server.url.to_string().into(), client: connect(&options).await? })
    }
}

/// How many Leases count.
fn alive(renewed: &[Timestamp], now: Timestamp) -> usize {
    renewed.iter().filter(|at| now.duration_since(**at) < LEASE_TIME).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers() -> Servers {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let options = ClientOptions::default();
        let client = crate::client::client_from(config, &options).unwrap();
        Servers::new(client, options)
    }

    #[tokio::test]
    async fn another_api_server_is_told_at_once_and_renewals_of_the_same_ones_are_not() {
        let (servers, start) = (servers(), "2026-01-01T00:10:00Z".parse::<Timestamp>().unwrap());
        let at = |seconds: i64| start.checked_add(SignedDuration::from_secs(seconds)).unwrap();
        let mut changes = servers.changes();
        let mut is_told = |renewed: &[i64]| {
            changes.mark_unchanged();
            servers.announced(renewed.iter().copied().map(at).collect());
            changes.has_changed().unwrap()
        };
        assert!(is_told(&[0]));
        assert!(!is_told(&[10]), "it renewed its Lease");
        assert!(is_told(&[10, 12]), "a second one");
        assert!(!is_told(&[20, 12]));
        assert!(is_told(&[80, 12]), "the second one stopped renewing");
        assert!(is_told(&[80, 81]), "and is back");
        assert!(is_told(&[80]), "its Lease was deleted");
    }

    #[tokio::test]
    async fn more_leases_than_addresses_are_told_unless_balancers_are_trusted() {
        let servers = servers();
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        let gone: Timestamp = "2026-01-01T00:08:00Z".parse().unwrap();
        servers.announced(vec![now, gone]);
        assert_eq!(servers.hidden(now), None);
        servers.announced(vec![now, gone, now]);
        assert!(servers.hidden(now).unwrap().starts_with("2 API servers"));
        let servers = servers.trusting_balancers(5);
        assert_eq!((servers.hidden(now), servers.proofs()), (None, 5));
    }
}
