//! How long a target waits for an API server that does not know of a raise, by the clock of the test.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;
use sluice_api::names;
use sluice_engine::Uid;
use sluice_engine::headroom::Need;
use sluice_runtime::api_servers::Servers;
use sluice_runtime::client::ClientOptions;
use sluice_runtime::clock::ServerClock;
use sluice_runtime::metrics::ApiWrites;
use tokio::sync::oneshot;
use tokio::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

use super::super::Executor;
use crate::attempts::Attempts;
use crate::looks::Looks;
use crate::metrics::HeadroomMetrics;
use crate::observed_locks::ObservedLocks;
use crate::probes::Probes;
use crate::proofs::Proofs;
use crate::protocol::{Done, Ending, Look, WindowSession};
use crate::requests::Requests;
use crate::status_writer::StatusWriter;
use crate::target::{MigrationRef, Target};
use crate::tools::Tools;

/// KubeVirt creates no other target in the cluster meanwhile.
const MOST: Duration = Duration::from_secs(1);
/// The namespace of the installation, in which proofs are asked for.
const OWN: &str = "sluice";

/// What an API server does not answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hangs {
    Never,
    /// Only what goes through quota admission in the tenant's namespace.
    Tenant,
    Always,
}

/// An API server that enforces both policies, and what else it does.
fn server(hangs: &Arc<Mutex<Hangs>>) -> Client {
    let hangs = Arc::clone(hangs);
    let service = tower::service_fn(move |request: Request<Body>| {
        let hangs = *hangs.lock();
        async move {
            let is_own = request.uri().path().contains(&format!("/namespaces/{OWN}/"));
            if hangs == Hangs::Always || hangs == Hangs::Tenant && !is_own {
                pending::<()>().await;
            }
            let denial = match *request.method() {
                Method::PATCH => names::CHARGE_DENIED,
                _ => names::PROBE_DENIED,
            };
            let body = json!({ "kind": "Status", "code": 403, "reason": "Forbidden", "message": denial });
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(403).body(body).unwrap())
        }
    });
    Client::new(service, "default")
}

fn tools(client: &Client) -> Tools {
    let clock = Arc::new(ServerClock::default());
    let servers = Arc::new(Servers::new(client.clone(), ClientOptions::default()));
    let locks = ObservedLocks::new(Vec::new(), false);
    Tools {
        observed: Arc::clone(locks.observed()),
        locks,
        looks: Looks::default(),
        requests: Requests::new(client.clone(), Arc::clone(&clock)),
        writer: StatusWriter::new(client.clone(), client.clone(), Arc::clone(&clock), ApiWrites::default()),
        probes: Probes::new(Arc::clone(&servers), clock, OWN),
        proofs: Proofs::new(Arc::clone(&servers)),
        metrics: HeadroomMetrics::default(),
        servers,
        seed: 0,
    }
}

fn target() -> Target {
    let migration = MigrationRef {
        namespace: "tenant".into(),
        name: "migration".into(),
        uid: Uid::parse("m"),
        machine: "web".into(),
        machine_uid: Uid::parse("v"),
    };
    Target { pod: Uid::parse("p"), attaches: false, migration, need: Need::default() }
}

/// Proves the API server, lets it hang, and settles. Returns how that went, how long it took, and if it is not relied on any
/// more, how the look of a next session goes.
async fn settle(then: Hangs) -> (Done, Duration, Option<Done>) {
    let hangs = Arc::new(Mutex::new(Hangs::Never));
    let (tools, target) = (tools(&server(&hangs)), target());
    let cancel = CancellationToken::new();
    tools.proofs.keep(&tools.probes, || cancel.cancel(), cancel.clone()).await;
    assert_eq!(tools.unproven(), None);
    *hangs.lock() = then;
    let session = WindowSession::new(target.need.clone());
    let attempt = Attempts::default().begin(&target).unwrap();
    let mut executor = Executor::new(&tools, &target, Instant::now(), oneshot::channel().0, attempt);
    let start = Instant::now();
    let done = executor.settle(&session, 1).await;
    let took = start.elapsed();
    let start = Instant::now();
    let next = match tools.unproven() {
        Some(_) => Some(executor.look(&session, Look::Grants).await),
        None => None,
    };
    assert_eq!(start.elapsed(), Duration::ZERO, "nobody else waits for it");
    (done, took, next)
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_is_waited_for_once_and_not_for_long() {
    let (done, took, next) = settle(Hangs::Always).await;
    assert!(matches!(done, Done::Ended(Ending::Unproven(_))), "{done:?}");
    assert!(took <= MOST, "{took:?}");
    assert!(matches!(next, Some(Done::Ended(Ending::Unproven(_)))), "{next:?}");
}

/// Its tenant keeps the queue of its quota admission busy: that is no reason to stop raising elsewhere.
#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_busy_is_waited_for_as_long_and_doubts_no_server() {
    let (done, took, next) = settle(Hangs::Tenant).await;
    assert!(matches!(done, Done::Ended(Ending::Unsettled(_))), "{done:?}");
    assert!(took <= MOST, "{took:?}");
    assert_eq!(next, None);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_knows_of_the_raise_is_not_waited_for() {
    assert_eq!(settle(Hangs::Never).await, (Done::Settled, Duration::ZERO, None));
}
