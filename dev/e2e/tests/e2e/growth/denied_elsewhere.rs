//! A resize that Sluice has let in and another webhook refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sluice_e2e::objects::is_held;
use sluice_e2e::simulated_webhook::{SimulatedWebhook, Verdict, WebhookOptions, rule};
use sluice_testbed::wait;

use super::{Refusal, denied, pending};
use crate::context::SOON;
use crate::team::Team;

const OTHER: &str = "resizes.simulated.test";
const WHY: &str = "not during office hours";

/// An API server works on a request that changes something for so long at most
/// (`k8s.io/apiserver/pkg/endpoints/handlers/rest.go`): for Sluice the resize could still be done.
const UNDER_WAY: Duration = Duration::from_secs(34);
/// So long after it was asked for, what was never done is charged no longer.
const CHARGED: Duration = Duration::from_secs(35);

/// A resize of `a` that the other webhook refuses, and that Sluice has let in, as what is used shows. The answer of Sluice
/// may be late on a busy machine and nothing charged; then it is asked for again.
async fn refused_but_charged(team: &Team, cpu: &str, used: &str) {
    let refused: Refusal = Some((403, format!("admission webhook \"{OTHER}\" denied the request: {WHY}")));
    let charged = || async {
        assert_eq!(team.decided("a", &[("cpu", cpu)]).await, refused);
        (team.used("compute", "requests.cpu").await.as_deref() == Some(used)).then_some(())
    };
    wait::eventually(SOON, charged, "what another webhook refuses to be charged").await.unwrap();
}

/// The API server asks all validating webhooks at once, waits for the answers of all of them and gives the client one of the
/// refusals (`k8s.io/apiserver/pkg/admission/plugin/webhook/validating/dispatcher.go`). So a resize is charged, or refused
/// by Sluice, whichever webhook answers first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_webhook_refuses_is_charged_until_it_cannot_be_done_any_more() {
    let bed = pending().await;
    let team = Team::plain(bed, "denied").await;
    team.quota("compute", &[("requests.cpu", "1")]).await;
    team.running("a", &[("cpu", "200m")]).await;
    team.running("b", &[("cpu", "100m")]).await;
    let denies = Arc::new(AtomicBool::new(true));
    let (is_denying, rules) = (Arc::clone(&denies), vec![rule(&["UPDATE"], &["pods/resize"])]);
    let options = WebhookOptions::new(OTHER, &team.namespace.name, rules);
    let other = SimulatedWebhook::start(bed, options, move |review| {
        let refuses = review.text("/name") == "a" && is_denying.load(Ordering::SeqCst);
        if refuses { Verdict::deny(403, WHY) } else { Verdict::allow() }
    });
    let other = other.await.unwrap();

    refused_but_charged(&team, "700m", "800m").await;
    let words = "exceeded quota: compute, requested: requests.cpu=201m, used: requests.cpu=800m, limited: requests.cpu=1";
    assert_eq!(team.decided("b", &[("cpu", "301m")]).await, denied(403, words));

    // Of both together, 500m and 400m more, there would be no room: the larger is charged, and then what was done.
    denies.store(false, Ordering::SeqCst);
    assert_eq!(team.decided("a", &[("cpu", "600m")]).await, None);
    team.until_used("compute", "requests.cpu", "700m").await;

    denies.store(true, Ordering::SeqCst);
    let asked = Instant::now();
    refused_but_charged(&team, "900m", "1").await;
    assert!(other.denials() >= 2, "each was refused by the other webhook");
    // As long as that is charged, there is room neither for a resize nor for a pod that would fit beside what is there.
    let words = "exceeded quota: compute, requested: requests.cpu=100m, used: requests.cpu=1, limited: requests.cpu=1";
    assert_eq!(team.decided("b", &[("cpu", "200m")]).await, denied(403, words));
    team.pod("c", &[("cpu", "150m")]).await;
    let what = "the room of what was never done";
    let released =
        wait::wait_for(&team.pods, "c", CHARGED + SOON, what, |pod| pod.is_some_and(|pod| !is_held(pod)));
    released.await.unwrap();
    let after = asked.elapsed();
    assert!(after >= UNDER_WAY, "the resize was charged for {after:?} only");
    // What it was before, and the pod that has waited for the room.
    team.until_used("compute", "requests.cpu", "850m").await;
}
