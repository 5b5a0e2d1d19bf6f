//! The fault proxy does what its rules say, and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use serde_json::json;
use sluice_testbed::proxy::{Action, FaultProxy, Rule};
use sluice_testbed::{Bed, TestNamespace};
use tokio::sync::Notify;

const SOON: Duration = Duration::from_secs(20);

struct Setup {
    bed: &'static Bed,
    namespace: TestNamespace,
    proxy: FaultProxy,
    maps: Api<ConfigMap>,
    direct: Api<ConfigMap>,
}

async fn setup() -> Setup {
    let bed = Bed::shared().await.unwrap();
    let namespace = bed.namespace("proxy", &[]).await.unwrap();
    let proxy = FaultProxy::start(bed, bed.admin_identity()).await.unwrap();
    let client: Client = proxy.client().await.unwrap();
    let maps = Api::namespaced(client, &namespace.name);
    let direct = Api::namespaced(bed.admin().unwrap(), &namespace.name);
    Setup { bed, namespace, proxy, maps, direct }
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

fn creates(action: Action) -> Rule {
    Rule::new(action).method(Method::POST).path("/configmaps$").unwrap()
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_and_counts() {
    let s = setup().await;
    let post = PostParams::default();
    let rule = creates(Action::Answer { status: http::StatusCode::TOO_MANY_REQUESTS, retry_after: Some(3) });
    let id = s.proxy.add(rule.nth(2));
    s.maps.create(&post, &map("one")).await.unwrap();
    let kube::Error::Api(refused) = s.maps.create(&post, &map("two")).await.unwrap_err() else { panic!() };
    assert_eq!((refused.code, refused.reason.as_str()), (429, "TooManyRequests"));
    assert_eq!(refused.details.unwrap().retry_after_seconds, 3);
    assert!(s.direct.get_opt("two").await.unwrap().is_none(), "a refused request reached the server");
    s.maps.create(&post, &map("two")).await.unwrap();
    assert_eq!((id.applied(), s.proxy.writes()), (1, 3));
    let requests = s.proxy.requests();
    let names: Vec<_> =
        requests.iter().map(|r| r.body.as_ref().unwrap()["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["one", "two", "two"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn drops_before_and_loses_after() {
    let s = setup().await;
    let post = PostParams::default();
    s.proxy.add(creates(Action::DropBefore).times(1));
    let error = s.maps.create(&post, &map("dropped")).await.unwrap_err();
    assert_eq!(code(&error), 0, "{error}");
    assert!(s.direct.get_opt("dropped").await.unwrap().is_none());

    let seen = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&seen);
    let hook = move |request: &sluice_testbed::proxy::Recorded| {
        assert!(request.is_write());
        counter.fetch_add(1, Ordering::SeqCst);
    };
    let id = s.proxy.add(creates(Action::ApplyThenLoseResponse).times(1).then(hook));
    let error = s.maps.create(&post, &map("lost")).await.unwrap_err();
    assert_eq!(code(&error), 0, "{error}");
    assert!(s.direct.get_opt("lost").await.unwrap().is_some());
    assert_eq!((id.applied(), seen.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn delays_and_holds() {
    let s = setup().await;
    let post = PostParams::default();
    s.proxy.add(creates(Action::Delay(Duration::from_millis(300))).times(1));
    let started = Instant::now();
    s.maps.create(&post, &map("late")).await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(300));

    let release = Arc::new(Notify::new());
    let id = s.proxy.add(creates(Action::HoldUntil(Arc::clone(&release))).times(1));
    let maps = s.maps.clone();
    let held = tokio::spawn(async move { maps.create(&PostParams::default(), &map("held")).await });
    id.wait_applied(1, SOON).await.unwrap();
    s.maps.create(&post, &map("overtakes")).await.unwrap();
    assert!(!held.is_finished());
    assert!(s.direct.get_opt("held").await.unwrap().is_none());
    release.notify_one();
    tokio::time::timeout(SOON, held).await.unwrap().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_stream_and_end_as_told() {
    let s = setup().await;
    let from = s.direct.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    for name in ["a", "b", "c"] {
        s.direct.create(&PostParams::default(), &map(name)).await.unwrap();
    }
    let selected = WatchParams::default();
    let watch = async |rule: Option<Action>| {
        s.proxy.clear();
        rule.map(|action| s.proxy.add(Rule::new(action)));
        Box::pin(s.maps.watch(&selected, &from).await.unwrap())
    };

    let events: Vec<_> =
        watch(Some(Action::WatchError410 { after_events: 2 })).await.try_collect().await.unwrap();
    assert!(
        matches!(&events[..], [WatchEvent::Added(_), WatchEvent::Added(_), WatchEvent::Error(e)] if e.code == 410)
    );

    let events: Vec<_> = watch(Some(Action::CutWatch { after_events: 1 })).await.collect().await;
    assert!(matches!(events.first(), Some(Ok(WatchEvent::Added(_)))));
    assert!(events.len() <= 2 && !events[1..].iter().any(Result::is_ok), "{events:?}");

    let mut running = watch(None).await;
    for _ in 0..3 {
        assert!(matches!(running.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    }
    s.proxy.hold_watch_events("/configmaps");
    s.direct.create(&PostParams::default(), &map("d")).await.unwrap();
    let held = tokio::time::timeout(Duration::from_millis(300), running.try_next()).await;
    assert!(held.is_err(), "an event passed though events were held");
    s.proxy.release_watch_events();
    let event = tokio::time::timeout(SOON, running.try_next()).await.unwrap().unwrap();
    assert!(matches!(event, Some(WatchEvent::Added(object)) if object.metadata.name.as_deref() == Some("d")));
    s.proxy.expire_watches();
    let event = tokio::time::timeout(SOON, running.try_next()).await.unwrap().unwrap();
    assert!(matches!(event, Some(WatchEvent::Error(e)) if e.code == 410));
}

#[tokio::test(flavor = "multi_thread")]
async fn identities_pass_through_and_strangers_do_not() {
    let s = setup().await;
    let account = s.bed.service_account(&s.namespace.name, "default").await.unwrap();
    let proxy = FaultProxy::start(s.bed, &account).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(proxy.client().await.unwrap(), &s.namespace.name);
    let error = maps.list(&ListParams::default()).await.unwrap_err();
    assert_eq!(code(&error), 403);
    assert!(error.to_string().contains(account.user()), "{error}");

    let mut config = account.config();
    let url = kube::config::Kubeconfig::read_from(s.proxy.kubeconfig()).unwrap();
    config.cluster_url = url.clusters[0].cluster.as_ref().unwrap().server.as_ref().unwrap().parse().unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(Client::try_from(config).unwrap(), &s.namespace.name);
    assert_eq!(code(&maps.list(&ListParams::default()).await.unwrap_err()), 401);
}
