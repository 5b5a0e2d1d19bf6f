//! The API servers of the cluster, each by its own address.
//!
//! A lock that one API server knows says nothing of another one, so it is proven at each.

use std::sync::Arc;

use arc_swap::ArcSwap;
use futures::future::try_join_all;
use kube::Client;
use sluice_kube_ext::client::{ClientError, ClientOptions, Server, connect};

/// One API server.
#[derive(Clone)]
pub struct Peer {
    /// Its address, for people.
    pub name: Arc<str>,
    /// Asks this one and no other.
    pub client: Client,
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Peer").field(&self.name).finish()
    }
}

/// All API servers.
#[derive(Debug)]
pub struct Servers {
    options: ClientOptions,
    any: Peer,
    known: ArcSwap<(Vec<Server>, Vec<Peer>)>,
}

impl Servers {
    /// Starts with the address that `client` was made for. `options` are those of `client`.
    #[must_use]
    pub fn new(client: Client, options: ClientOptions) -> Self {
        let any = Peer { name: "the configured address".into(), client };
        Self { options, any, known: ArcSwap::default() }
    }

    /// Whom to ask: every API server, or whoever answers at the configured address while there is only one.
    #[must_use]
    pub fn each(&self) -> Vec<Peer> {
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
        let peers = servers.iter().map(|server| {
            let old = known.0.iter().position(|other| other == server).and_then(|at| known.1.get(at));
            let old = old.cloned();
            async move {
                match old {
                    Some(peer) => Ok(peer),
                    None => self.connect(server).await,
                }
            }
        });
        let peers = try_join_all(peers).await?;
        self.known.store(Arc::new((servers, peers)));
        Ok(())
    }

    async fn connect(&self, server: &Server) -> Result<Peer, ClientError> {
        let options = ClientOptions { server: Some(server.clone()), ..self.options.clone() };
        Ok(Peer { name: server.url.to_string().into(), client: connect(&options).await? })
    }
}
