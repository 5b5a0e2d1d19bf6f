//! The rules of charging follow the version of the API servers, also when these are upgraded under a running process.

use std::sync::Arc;
use std::time::Duration;

use sluice_engine::ChargeRules;
use sluice_runtime::api_servers::{ApiServer, ByServer, Pace, PerServer, Round, Servers};
use sluice_runtime::client::ServerVersion;
use tokio::sync::watch::Sender;
use tokio_util::sync::CancellationToken;

/// The versions are asked for so often, and when API servers come or go. One that is upgraded in place does neither.
const FRESH: Duration = Duration::from_secs(60);

/// Keeps `rules` those of the oldest API server: in the middle of an upgrade nothing is refused or kept by a rule that some
/// of them do not know yet. Others hold when all have answered twice: behind one address there may be several API servers.
pub(crate) async fn follow_versions(
    servers: Arc<Servers>,
    rules: Sender<ChargeRules>,
    cancel: CancellationToken,
) {
    let versions = PerServer::new(servers, Pace::every(FRESH));
    let ask = |server: ApiServer| async move { ServerVersion::fetch(&server.client).await.ok() };
    let mut before = None;
    let asked = |_: &ByServer<_>| {
        let oldest = oldest(&versions.known());
        if let Some(version) = oldest.filter(|_| oldest == before) {
            take(version, &rules);
        }
        before = oldest;
        Round::Settled
    };
    versions.keep(ask, |_, version| version, asked, cancel).await;
}

/// The version of the oldest API server, if all of them tell theirs.
fn oldest(versions: &ByServer<Option<ServerVersion>>) -> Option<ServerVersion> {
    let versions: Option<Vec<_>> = versions.values().copied().collect();
    // 0 stands for a text that is no number.
    versions?.into_iter().min().filter(|version| version.minor > 0)
}

fn take(version: ServerVersion, rules: &Sender<ChargeRules>) {
    let now = ChargeRules::for_minor(version.minor);
    let is_new = rules.send_if_modified(|rules| std::mem::replace(rules, now) != now);
    if is_new {
        let server = format!("{}.{}", version.major, version.minor);
        tracing::info!(%server, "other rules of charging");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use http::{Request, Response};
    use kube::client::Body;
    use sluice_runtime::client::ClientOptions;
    use tokio::sync::watch;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_upgrade_of_the_api_server_changes_the_rules() {
        let minor = Arc::new(AtomicU32::new(36));
        let served = Arc::clone(&minor);
        let service = tower::service_fn(move |_: Request<Body>| {
            let minor = served.load(Relaxed);
            async move {
                let info = serde_json::json!({
                    "major": "1", "minor": minor.to_string(), "gitVersion": "", "gitCommit": "", "gitTreeState": "",
                    "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
                });
                let code = if minor == 0 { 503 } else { 200 };
                let answer = Response::builder().status(code).body(Body::from(info.to_string().into_bytes()));
                Ok::<_, std::convert::Infallible>(answer.unwrap())
            }
        });
        let servers = Arc::new(Servers::new(kube::Client::new(service, "default"), ClientOptions::default()));
        let (sender, mut rules) = watch::channel(ChargeRules::for_minor(36));
        let following = tokio::spawn(follow_versions(servers, sender, CancellationToken::new()));
        for (served, expected) in [(0, None), (37, Some(37)), (37, None), (34, Some(34))] {
            minor.store(served, Relaxed);
            let changed = tokio::time::timeout(3 * FRESH, rules.changed()).await;
            assert_eq!(changed.is_ok(), expected.is_some(), "version {served}");
            if let Some(minor) = expected {
                assert!(*rules.borrow_and_update() == ChargeRules::for_minor(minor));
            }
        }
        following.abort();
    }
}
