//! What `AAQ` and `MTQ` ask of the operator's own process: no Deployment says it.

use kube::Client;
use serde_json::Value;
use sluice_api::AskedLifetimes;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::observe::{Sources, World};
use crate::troubles::AdmissionTroubles;

/// What is asked, by the `AAQ` or without one by the `MTQ`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Of the certificates.
    pub lifetimes: AskedLifetimes,
    /// Of servers: `spec.tlsSecurityProfile`, null without one. An `MTQ` has no such field.
    pub tls_profile: Value,
}

impl Asked {
    /// `None` as long as something was not looked for.
    pub(super) fn by(world: &World) -> Option<Self> {
        world.aaqs.as_ref()?;
        // Whether there is an `MTQ` is no matter beside an `AAQ` of a user.
        let order = match world.users_aaq() {
            Some(aaq) => Some(aaq),
            None => world.mtqs.as_ref().map(|_| world.mtq())?,
        };
        let spec = order.map(|order| &order.spec);
        Some(Self {
            lifetimes: AskedLifetimes::of(spec.map_or(&Value::Null, |spec| &spec.cert_config)),
            tls_profile: spec.map_or(Value::Null, |spec| spec.tls_security_profile.clone()),
        })
    }
}

/// Keeps `asked` current until `cancel`. Every replica does that, for all of them serve.
pub async fn follow_asked(client: Client, asked: watch::Sender<Option<Asked>>, cancel: CancellationToken) {
    let (seen, mut world) = watch::channel(World::default());
    let (_, no_troubles) = watch::channel(AdmissionTroubles::default());
    let sources = Sources::new(client, "", no_troubles, seen);
    let publishing = async {
        while world.changed().await.is_ok() {
            let now = Asked::by(&world.borrow_and_update());
            asked.send_if_modified(|before| {
                let is_news = *before != now;
                *before = now;
                is_news
            });
        }
    };
    tokio::select! {
        () = sources.follow_orders(&cancel) => {}
        () = publishing => {}
    }
}
