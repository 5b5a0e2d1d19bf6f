//! The plan, case by case, and what is recognised as managed-tenant-quota's.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use serde_json::{Value, json};
use sluice_engine::Quantity;
use sluice_runtime::retry::Failure;

use super::plan::{Alive, Left, Leftovers, Lock, Quota, Record, Seen, Step, Verdict, plan};
use super::read;

fn amounts(pairs: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    pairs.iter().map(|(key, amount)| ((*key).to_owned(), Quantity::parse(amount).unwrap())).collect()
}

fn lock() -> Lock {
    let created = Some("2026-01-01T00:00:00Z".parse().unwrap());
    Lock { name: "lock.shop.com".to_owned(), uid: "l".to_owned(), genuine: true, created }
}

fn record() -> Record {
    Record {
        name: "mtq".to_owned(),
        uid: "r".to_owned(),
        text: json!("recorded"),
        originals: [("rq".to_owned(), amounts(&[("requests.memory", "1Gi"), ("pods", "4")]))].into(),
        additional: amounts(&[("requests.memory", "512Mi")]),
    }
}

fn quota(spec: &str, status: &str) -> Quota {
    Quota {
        name: "rq".to_owned(),
        uid: "q".to_owned(),
        spec: amounts(&[("requests.memory", spec), ("pods", "4")]),
        status: amounts(&[("requests.memory", status), ("pods", "4")]),
    }
}

/// As it is after a crash in the middle of a migration.
fn left() -> Left {
    Left {
        namespace: "shop".to_owned(),
        exists: true,
        lock: Some(lock()),
        records: vec![record()],
        quotas: vec![quota("1536Mi", "1536Mi")],
    }
}

fn steps(left: &Left) -> Vec<String> {
    super::plan::steps(left).iter().map(ToString::to_string).collect()
}

const LOWER: &str = "lower status.hard of quota rq: requests.memory from 1536Mi to 1Gi";
const UNLOCK: &str = "delete the lock lock.shop.com";
const RESTORE: &str = "restore spec.hard of quota rq: requests.memory from 1536Mi to 1Gi";
const CLEAR: &str = "clear the record of mtq";

#[test]
fn a_crash_after_each_step_is_ended() {
    // In the order of managed-tenant-quota's effects: lock, record, raise, (restore), clear, unlock.
    let locked = Left { records: vec![], quotas: vec![quota("1Gi", "1Gi")], ..left() };
    assert_eq!(steps(&locked).last().map(String::as_str), Some(UNLOCK));
    assert_eq!(steps(&locked).len(), 2, "and it is said that nothing is known of the quotas");
    let recorded = Left { quotas: vec![quota("1Gi", "1Gi")], ..left() };
    assert_eq!(steps(&recorded), [UNLOCK, CLEAR]);
    let raised = Left { quotas: vec![quota("1536Mi", "1Gi")], ..left() };
    assert_eq!(steps(&raised), [UNLOCK, RESTORE, CLEAR], "kube-controller-manager had not seen it yet");
    assert_eq!(steps(&left()), [LOWER, UNLOCK, RESTORE, CLEAR]);
    let restored = Left { quotas: vec![quota("1Gi", "1536Mi")], ..left() };
    assert_eq!(steps(&restored), [UNLOCK, CLEAR], "kube-controller-manager is about to see it");
    let unlocked = Left { lock: None, ..left() };
    assert_eq!(steps(&unlocked), [LOWER, RESTORE, CLEAR]);
    assert_eq!(steps(&Left { lock: None, records: vec![], ..left() }), [""; 0]);
}

#[test]
fn a_crash_of_ours_after_each_step_is_continued() {
    let lowered = Left { quotas: vec![quota("1536Mi", "1Gi")], ..left() };
    assert_eq!(steps(&lowered), [UNLOCK, RESTORE, CLEAR]);
    let unlocked = Left { lock: None, ..lowered };
    assert_eq!(steps(&unlocked), [RESTORE, CLEAR]);
    let restored = Left { quotas: vec![quota("1Gi", "1Gi")], ..unlocked };
    assert_eq!(steps(&restored), [CLEAR]);
}

#[test]
fn what_an_administrator_changed_is_left_and_said() {
    let edited = Left { quotas: vec![quota("3Gi", "3Gi")], ..left() };
    assert_eq!(
        steps(&edited),
        ["quota rq was changed since and is left as it is in requests.memory", UNLOCK, CLEAR]
    );
    let mut partly = left();
    partly.quotas[0].spec.insert("pods".to_owned(), Quantity::parse("9").unwrap());
    assert_eq!(
        steps(&partly),
        ["quota rq was changed since and is left as it is in pods", LOWER, UNLOCK, RESTORE, CLEAR]
    );
    let gone = Left { quotas: vec![], ..left() };
    assert_eq!(steps(&gone), ["quota rq does not exist any more; nothing is restored", UNLOCK, CLEAR]);
}

#[test]
fn the_lock_of_a_namespace_that_is_gone_is_deleted() {
    let gone = Left { exists: false, records: vec![], quotas: vec![], ..left() };
    assert_eq!(steps(&gone), [UNLOCK]);
}

#[test]
fn somebody_elses_lock_is_left_alone_and_so_is_what_it_protects() {
    let foreign = Left { lock: Some(Lock { genuine: false, ..lock() }), ..left() };
    assert_eq!(steps(&foreign), ["lock.shop.com is not what managed-tenant-quota creates and is left alone"]);
}

fn configuration() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "lock.shop.com", "labels": { "mtq-lock-server": "mtq-lock-server" } },
        "webhooks": [{
            "name": "lock.shop.com", "admissionReviewVersions": ["v1", "v1beta1"], "sideEffects": "None",
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "shop" } },
            "clientConfig": { "service": { "namespace": "mtq", "name": "mtq-lock", "path": "/validate-pods" } },
        }],
    })
}

#[test]
fn only_exactly_a_lock_is_taken_for_one() {
    let genuine = |object: Value| {
        let object: ValidatingWebhookConfiguration = serde_json::from_value(object).unwrap();
        read::lock(&object).genuine
    };
    assert!(genuine(configuration()));
    for (pointer, other) in [
        ("/metadata/name", json!("lock.other.com")),
        ("/metadata/labels", json!({ "mtq-lock-server": "no" })),
        ("/webhooks/0/name", json!("lock.other.com")),
        (
            "/webhooks/0/namespaceSelector",
            json!({ "matchLabels": { "kubernetes.io/metadata.name": "other" } }),
        ),
        ("/webhooks/0/namespaceSelector", json!({})),
        ("/webhooks/0/clientConfig", json!({ "url": "https://192.0.2.1/validate-pods" })),
        ("/webhooks/0/clientConfig/service/path", json!("/other")),
        ("/webhooks", json!([])),
    ] {
        let mut object = configuration();
        *object.pointer_mut(pointer).unwrap() = other;
        assert!(!genuine(object), "{pointer}");
    }
    let mut two = configuration();
    let webhook = two["webhooks"][0].clone();
    two["webhooks"].as_array_mut().unwrap().push(webhook);
    assert!(!genuine(two), "two webhooks");
}

#[test]
fn who_holds_a_lease_is_alive_until_its_duration_is_over() {
    let lease = |holder: &str, renewed: &str| {
        json!({
            "metadata": { "namespace": "mtq", "name": "mtq-controller" },
            "spec": { "holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15 },
        })
    };
    assert_eq!(read::holder(&[]), None);
    assert_eq!(read::holder(&[lease("", "2026-01-01T00:00:00.000000Z")]), None, "released");
    assert_eq!(read::holder(&[json!({ "spec": {} })]), None);
    let two = [lease("b", "2026-01-01T00:00:10.000000Z"), lease("a", "2026-01-01T00:00:00.000000Z")];
    let holder = read::holder(&two).unwrap();
    assert_eq!(holder.to_string(), "b holds the lease mtq/mtq-controller until 2026-01-01T00:00:25Z");
    let found = |now: &str| {
        let now = now.parse().unwrap();
        plan(&Seen { now, holder: Some(holder.clone()), left: vec![] }, SignedDuration::ZERO).alive
    };
    assert_eq!(found("2026-01-01T00:00:25Z"), Some(holder.clone()));
    assert_eq!(found("2026-01-01T00:00:26Z"), None);
}

#[test]
fn a_young_lock_is_waited_for_and_holds_nothing_else_up() {
    let foreign =
        Left { namespace: "foreign".to_owned(), lock: Some(Lock { genuine: false, ..lock() }), ..left() };
    let unlocked = Left { namespace: "unlocked".to_owned(), lock: None, ..left() };
    let seen = |now: &str| Seen {
        now: now.parse().unwrap(),
        holder: None,
        left: vec![left(), foreign.clone(), unlocked.clone()],
    };
    let verdicts = |now: &str| {
        let found = plan(&seen(now), SignedDuration::from_secs(60)).namespaces;
        found.into_iter().map(|each| each.verdict).collect::<Vec<_>>()
    };
    let young = Verdict::Young(SignedDuration::from_secs(20));
    assert_eq!(verdicts("2026-01-01T00:00:40Z"), [young, Verdict::Foreign, Verdict::Due]);
    assert_eq!(verdicts("2026-01-01T00:01:00Z"), [Verdict::Due, Verdict::Foreign, Verdict::Due]);
}

#[test]
fn only_the_status_may_be_refused() {
    let steps = super::plan::steps(&left());
    let dispensable =
        |failure| -> Vec<bool> { steps.iter().map(|step| step.is_dispensable(failure)).collect() };
    assert!(matches!(steps[0], Step::LowerStatus(_)));
    for refused in [Failure::Forbidden, Failure::Other(400)] {
        assert_eq!(dispensable(refused), [true, false, false, false]);
    }
    for other in [Failure::Invalid, Failure::Unknown, Failure::Conflict, Failure::Server(500)] {
        assert_eq!(dispensable(other), [false; 4], "{other:?}");
    }
}

#[test]
fn what_is_left_is_printed_for_people_and_for_scripts() {
    let now: Timestamp = "2026-01-01T03:00:00Z".parse().unwrap();
    let unlocked = Left { namespace: "unlocked-shop".to_owned(), lock: None, ..left() };
    let foreign =
        Left { namespace: "foreign".to_owned(), lock: Some(Lock { genuine: false, ..lock() }), ..left() };
    let seen = Seen { now, holder: None, left: vec![left(), unlocked, foreign] };
    let mut found = plan(&seen, SignedDuration::ZERO);
    insta::assert_snapshot!(found, @"
    NAMESPACE      LOCKED    TO DO
    shop           3h        lower status.hard of quota rq: requests.memory from 1536Mi to 1Gi
                             delete the lock lock.shop.com
                             restore spec.hard of quota rq: requests.memory from 1536Mi to 1Gi
                             clear the record of mtq
    unlocked-shop  no        lower status.hard of quota rq: requests.memory from 1536Mi to 1Gi
                             restore spec.hard of quota rq: requests.memory from 1536Mi to 1Gi
                             clear the record of mtq
    foreign        3h        lock.shop.com is not what managed-tenant-quota creates and is left alone
    Something is left in 3 namespaces; nothing was changed. --clean ends it.
    ");
    found.alive = Some(Alive { lease: "mtq/l".to_owned(), holder: "h".to_owned(), until: now });
    found.namespaces.truncate(1);
    insta::assert_snapshot!(found, @"
    A managed-tenant-quota is alive (h holds the lease mtq/l until 2026-01-01T03:00:00Z): what follows may be its work in progress.
    NAMESPACE  LOCKED    TO DO
    shop       3h        lower status.hard of quota rq: requests.memory from 1536Mi to 1Gi
                         delete the lock lock.shop.com
                         restore spec.hard of quota rq: requests.memory from 1536Mi to 1Gi
                         clear the record of mtq
    Something is left in 1 namespaces; nothing was changed. --clean ends it.
    ");
    insta::assert_snapshot!(format!("{:#}", found.json()), @r#"
    {
      "alive": {
        "holder": "h",
        "lease": "mtq/l",
        "until": "2026-01-01T03:00:00Z"
      },
      "namespaces": [
        {
          "leftAlone": false,
          "lockedForSeconds": 10800,
          "namespace": "shop",
          "steps": [
            "lower status.hard of quota rq: requests.memory from 1536Mi to 1Gi",
            "delete the lock lock.shop.com",
            "restore spec.hard of quota rq: requests.memory from 1536Mi to 1Gi",
            "clear the record of mtq"
          ]
        }
      ]
    }
    "#);
    insta::assert_snapshot!(Leftovers { alive: None, namespaces: vec![] }, @"Nothing is left of a managed-tenant-quota.");
}

#[test]
fn a_record_is_read_as_it_is_written() {
    let object = json!({
        "metadata": { "name": "mtq", "uid": "r" },
        "status": {
            "additionalMigrationResources": { "requests.memory": "512Mi" },
            "originalBlockingResourceQuotas": [{ "name": "rq", "spec": { "hard": { "pods": 4, "cpu": "?" } } }],
        },
    });
    let record = read::record(&object).unwrap();
    assert_eq!(record.originals["rq"], amounts(&[("pods", "4")]));
    assert_eq!(record.additional, amounts(&[("requests.memory", "512Mi")]));
    assert_eq!(read::record(&json!({ "status": { "originalBlockingResourceQuotas": [] } })), None);
    assert_eq!(read::record(&json!({})), None);
    assert_eq!(read::locked_namespace("lock.a.b.com"), Some("a.b"));
    assert_eq!(read::locked_namespace("lock.com"), None);
}
