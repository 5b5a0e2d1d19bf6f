//! An API server is upgraded under a running operator, and with its version changes who gates pods.
//!
//! The operator ends then and gives its lease back. Its kubelet starts it again, and it begins with what the new version
//! can do. Pods are gated meanwhile: the webhook gates at every version, what the admission policy has not gated already.

use std::time::Duration;

use kube::Client;
use sluice_manifests::Gating;
use sluice_runtime::client::ServerVersion;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::gating::gating_at;

/// The version is asked for so often.
const FRESH: Duration = Duration::from_secs(30);

/// Cancels `cancel` when two answers in a row are of a version at which pods are gated otherwise than at the version
/// `at_start`: behind one address there may be several API servers. `wanted` is what was chosen.
pub(crate) async fn end_when_gated_otherwise(
    client: Client,
    wanted: Gating,
    at_start: ServerVersion,
    cancel: CancellationToken,
) {
    let now = gating_at(&at_start, wanted);
    let other = async {
        let mut before = false;
        loop {
            sleep(FRESH).await;
            let Ok(version) = ServerVersion::fetch(&client).await else { continue };
            // 0 stands for a text that is no number.
            let is_other = version.minor > 0 && gating_at(&version, wanted) != now;
            if is_other && before {
                return version;
            }
            before = is_other;
        }
    };
    if let Some(version) = cancel.run_until_cancelled(other).await {
        let server = format!("{}.{}", version.major, version.minor);
        tracing::info!(%server, "stopping: this version of the API server has another way to gate pods");
        cancel.cancel();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    /// Whether the process ends while the API server, which was at `from`, answers with these minor versions and then with
    /// the last of them for ever; 0 is no answer.
    async fn ends(wanted: Gating, from: u32, answers: &'static [u32]) -> bool {
        let asked = Arc::new(AtomicUsize::new(0));
        let service = tower::service_fn(move |_: Request<Body>| {
            let count = asked.fetch_add(1, SeqCst);
            let minor = *answers.get(count).or_else(|| answers.last()).unwrap();
            async move {
                let info = serde_json::json!({
                    "major": "1", "minor": format!("{minor}+"), "gitVersion": "", "gitCommit": "", "gitTreeState": "",
                    "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
                });
                let code = if minor == 0 { 503 } else { 200 };
                let answer = Response::builder().status(code).body(Body::from(info.to_string().into_bytes()));
                Ok::<_, Infallible>(answer.unwrap())
            }
        });
        let client = Client::new(service, "default");
        let cancel = CancellationToken::new();
        let at_start = ServerVersion { major: 1, minor: from };
        let following = end_when_gated_otherwise(client, wanted, at_start, cancel.clone());
        let patience = FRESH * u32::try_from(answers.len() + 3).unwrap();
        tokio::time::timeout(patience, following).await.is_ok() && cancel.is_cancelled()
    }

    #[tokio::test(start_paused = true)]
    async fn the_process_ends_when_another_way_of_gating_is_possible_and_not_before() {
        let cases: [(Gating, u32, &'static [u32], bool); 7] = [
            (Gating::Policy, 35, &[35, 36], true),
            (Gating::Policy, 36, &[0, 35], true),
            (Gating::Policy, 36, &[37], false),
            (Gating::Policy, 34, &[35], false),
            (Gating::Webhook, 35, &[36], false),
            (Gating::Policy, 35, &[36, 35, 36, 35], false),
            (Gating::Policy, 36, &[0], false),
        ];
        for (wanted, from, answers, expected) in cases {
            assert_eq!(ends(wanted, from, answers).await, expected, "{wanted:?} from 1.{from}: {answers:?}");
        }
    }
}
