//! Lifetimes as the `AAQ` says, and renewals that somebody asks for by an annotation, while pods are reviewed.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use sluice_e2e::objects::apply_aaq;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::*;

/// Who asks for a renewal has it within this time.
const RENEWED: Duration = Duration::from_secs(60);
/// The shortest lifetimes that there can be: certificates are renewed every two minutes.
const SHORTEST: &str = r#"{"lifetime":"5m0s","refresh":"2m0s"}"#;
/// How often both certificates are rotated: twice, or as often as this variable of the environment says.
const ROTATIONS: &str = "SLUICE_ROTATIONS";

fn rotations() -> u32 {
    std::env::var(ROTATIONS).map_or(2, |text| text.parse().unwrap())
}

/// 200 reviews a second take most of two processors: few where other tests run too.
fn between_reviews() -> Duration {
    Duration::from_millis(if std::env::var(ROTATIONS).is_ok() { 5 } else { 100 })
}

fn annotation(secret: &Secret, key: &str) -> String {
    secret.annotations().get(key).cloned().unwrap_or_default()
}

async fn until(client: &Client, name: &str, what: &str, reached: impl Fn(&Secret) -> bool) -> Secret {
    let reached = |secret: Option<&Secret>| secret.is_some_and(&reached);
    wait::wait_for(&secrets(client), name, RENEWED, what, reached).await.unwrap().unwrap()
}

/// Creates pods in dry runs, each at its time whatever became of those before; what failed.
struct Reviews {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<(u32, Vec<String>)>,
}

impl Reviews {
    fn start(pods: Api<Pod>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let (mut ticks, mut under_way) = (interval(between_reviews()), JoinSet::new());
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            while !stopped.load(Ordering::Relaxed) {
                ticks.tick().await;
                let pods = pods.clone();
                under_way.spawn(async move {
                    let dry = PostParams { dry_run: true, ..PostParams::default() };
                    match pods.create(&dry, &objects::pod("reviewed", &[])).await {
                        Ok(pod) if is_held(&pod) => None,
                        Ok(_) => Some("a pod without gate".to_owned()),
                        Err(error) => Some(error.to_string()),
                    }
                });
            }
            let outcomes = under_way.join_all().await;
            (u32::try_from(outcomes.len()).unwrap(), outcomes.into_iter().flatten().collect())
        });
        Self { stop, task }
    }

    async fn stop(self) -> (u32, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

/// Writes another end of both certificates, as application-aware-quota's own test does, and waits for others.
async fn rotate(client: &Client) {
    let mut old = Vec::new();
    for name in [names::CA_SECRET, names::SERVING_SECRET] {
        let secret = secrets(client).get(name).await.unwrap();
        let issued: Timestamp = annotation(&secret, names::CERT_NOT_BEFORE).parse().unwrap();
        let end = (issued + SignedDuration::from_secs(1)).to_string();
        let edit = json!({ "metadata": { "annotations": { names::CERT_NOT_AFTER: end } } });
        secrets(client).patch(name, &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
        old.push((name, secret, end));
    }
    for (name, old, edited) in old {
        let renewed = |secret: &Secret| {
            entry(secret, names::TLS_KEY) != entry(&old, names::TLS_KEY)
                && annotation(secret, names::CERT_NOT_AFTER) != edited
        };
        until(client, name, "another certificate", renewed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rotations_of_both_fail_no_review() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    // Where a policy gates, no pod would meet the webhook.
    let setup = Setup { webhook_alone: true, ..Setup::default() };
    let Running { installation, controller, webhook, .. } = Running::on(&bed, setup).await.unwrap();
    let client = bed.admin().unwrap();
    let namespace = bed.namespace("reviewed", TARGETED).await.unwrap();
    let reviews = Reviews::start(Api::namespaced(client.clone(), &namespace.name));
    let from = Instant::now();

    let shortest = json!({ "duration": "5m", "renewBefore": "3m" });
    let spec = json!({ "certConfig": { "ca": shortest, "server": shortest } });
    let applied = || async { apply_aaq(&client, spec.clone()).await.ok() };
    wait::eventually(SOON, applied, "the AAQ to be applied").await.unwrap();
    for name in [names::CA_SECRET, names::SERVING_SECRET] {
        let secret = until(&client, name, "the lifetime that the AAQ asks for", |secret| {
            annotation(secret, names::CERT_CONFIG) == SHORTEST
        })
        .await;
        let at = |key| annotation(&secret, key).parse::<Timestamp>().unwrap();
        let life = at(names::CERT_NOT_AFTER).duration_since(at(names::CERT_NOT_BEFORE));
        assert!(
            life <= SignedDuration::from_mins(5) && life >= SignedDuration::from_mins(4),
            "{name}: {life:#}"
        );
    }
    for _ in 0..rotations() {
        rotate(&client).await;
    }
    let serving = secrets(&client).get(names::SERVING_SECRET).await.unwrap();
    until_served(&client, &installation.webhook_address(), &serving).await;

    let took = from.elapsed();
    let (reviewed, failed) = reviews.stop().await;
    println!("{reviewed} reviews in {took:?}, {} failed", failed.len());
    assert_eq!(failed, Vec::<String>::new(), "of {reviewed} in {took:?}");
    assert!(reviewed > 0);
    if std::env::var_os(ROTATIONS).is_some() {
        // Where nothing runs beside it.
        let per_s = reviewed as f64 / took.as_secs_f64();
        assert!(per_s >= 0.95 / between_reviews().as_secs_f64(), "{per_s} reviews a second");
    }
    assert!(controller.program.is_running() && webhook.program.is_running(), "without a restart");
}
