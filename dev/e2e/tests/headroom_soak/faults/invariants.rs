//! What the audit log says of a namespace, and what it must not say.
//!
//! Versions of objects are etcd's revisions: they order the writes of all objects, whatever API server did them.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sluice_api::names;
use sluice_e2e::audit::{AuditEventExt as _, is_sluice};
use sluice_engine::headroom::MARK;
use sluice_engine::{Amount, Charge, ChargeRules, Quantity, Resource};
use sluice_index::PodWire;
use sluice_testbed::Bed;
use sluice_testbed::audit::AuditEvent;
use sluice_testbed::kubevirt::CONTROLLER;

type Amounts = BTreeMap<String, Amount>;

/// The most that a mark may lie ahead, where clocks of API servers differ by five seconds; their times are whole seconds.
const LONGEST: SignedDuration = SignedDuration::from_secs(16);
/// What may be added to the mark that an API server is asked for: another quota, a renewal, both.
const VARIANTS: [i64; 4] = [0, 1, 7_000, 7_001];
/// Quota admission charges as this user.
const ADMISSION: &str = "system:apiserver";

/// Everything of interest that was done in one namespace.
#[derive(Debug, Default)]
pub struct Invariants {
    namespace: String,
    /// Denials of probes by the admission policy, and by quota admission: when they were asked for, and the mark.
    proofs: [Vec<(Timestamp, i64)>; 2],
    /// By the quota's uid, in order.
    quotas: BTreeMap<String, Vec<Write>>,
    /// What the target pods take, of which some were created.
    targets: Vec<(bool, Charge)>,
    /// Other pods that were created: asked for, answered.
    others: Vec<(Timestamp, Timestamp)>,
    /// Writes of quotas other than their status, by Sluice.
    spec_writes: usize,
}

/// A write of a quota.
#[derive(Debug)]
struct Write {
    version: u64,
    received: Timestamp,
    answered: Timestamp,
    user: String,
    name: String,
    mark: Option<i64>,
    /// Amounts of `status.hard` that were asked for.
    wanted: Amounts,
    /// The largest that the spec said so far.
    largest: Amounts,
    spec: Amounts,
    hard: Amounts,
    used: Amounts,
}

impl Invariants {
    /// What was done up to now.
    pub async fn of(bed: &Bed, namespace: &str) -> Self {
        let mut invariants = Self { namespace: namespace.to_owned(), ..Self::default() };
        let mut events = bed.audit_events_with(namespace).await.unwrap();
        events.retain(|event| {
            event.namespace == namespace && (!event.is_dry_run() || event.resource == names::HEADROOM_PROBES)
        });
        for event in &events {
            match event.resource.as_str() {
                names::HEADROOM_PROBES => invariants.note_probe(event),
                "resourcequotas" | "resourcequotas/status" => invariants.note_quota(event),
                "pods" if event.verb == "create" => invariants.note_pod(event),
                _ => {}
            }
        }
        for writes in invariants.quotas.values_mut() {
            writes.sort_by_key(|write| write.version);
            let mut largest = Amounts::new();
            for write in writes {
                for (key, amount) in &write.spec {
                    let known = largest.entry(key.clone()).or_insert(*amount);
                    *known = (*known).max(*amount);
                }
                write.largest.clone_from(&largest);
            }
        }
        invariants
    }

    fn writes(&self) -> impl Iterator<Item = &Write> {
        self.quotas.values().flatten()
    }

    /// How often a quota was raised.
    pub fn raises(&self) -> usize {
        self.writes().filter(|write| write.is_raise()).count()
    }

    /// How often a quota of this name was raised.
    pub fn raises_of(&self, name: &str) -> usize {
        self.writes().filter(|write| write.is_raise() && write.name == name).count()
    }

    /// The version and the usage above the spec of each write of a quota of this name.
    pub fn overdrafts(&self, name: &str, key: &str) -> impl Iterator<Item = (u64, Amount)> {
        self.writes().filter(move |write| write.name == name).map(move |write| {
            let above = amount_of(&write.used, key).saturating_sub(amount_of(&write.spec, key));
            (write.version, above.max(Amount::ZERO))
        })
    }

    /// Asserts what always has to hold where a mark is proven at so many API servers before a target is let in. Without a
    /// proof (0) a target gets in when its webhook is killed after the raise:
    /// the API server does not wait for an answer then.
    pub fn holds(&self, servers: usize) {
        assert_eq!(self.spec_writes, 0, "{}: a quota was written, not only its status", self.namespace);
        for writes in self.quotas.values() {
            for write in writes {
                self.stays_within_need(write);
                if write.is_raise() {
                    self.is_exact(write);
                    let ahead = time(write.mark.unwrap()).duration_since(write.received);
                    assert!(ahead <= LONGEST, "{ahead}: {write:#?}");
                }
            }
            for two in writes.windows(2) {
                self.is_followed_by(&two[0], &two[1], servers);
            }
        }
        self.let_nothing_else_in();
    }

    /// What may happen to a quota with a mark.
    fn is_followed_by(&self, before: &Write, after: &Write, servers: usize) {
        let Some(mark) = before.mark else { return };
        let apart: Vec<&String> = before
            .hard
            .iter()
            .filter(|(key, to)| differs(&before.spec, key, **to))
            .map(|(key, _)| key)
            .collect();
        let live = after.received < time(mark - mark.rem_euclid(1000));
        if after.user == ADMISSION && live {
            for key in &apart {
                let (was, is) = (amount_of(&before.used, key), amount_of(&after.used, key));
                assert!(
                    is == was || is == amount_of(&before.hard, key),
                    "a charge of {key}: {before:#?} {after:#?}"
                );
                assert!(is == was || self.proofs_of(mark, after.answered) >= servers, "unproven: {after:#?}");
            }
        } else if after.user == ADMISSION {
            for key in &apart {
                let (was, is) = (amount_of(&before.used, key), amount_of(&after.used, key));
                assert!(
                    is <= was || is <= amount_of(&after.spec, key),
                    "a charge of {key} above the spec: {before:#?} {after:#?}"
                );
            }
        }
        if after.is_ours() && after.mark.is_none() {
            for (key, to) in &after.wanted {
                assert!(apart.contains(&key), "{key} was not raised: {before:#?} {after:#?}");
                let spec = [before, after].map(|write| amount_of(&write.spec, key));
                assert!(spec.contains(to), "{key} was not restored: {after:#?}");
            }
        }
    }

    /// At how many API servers the mark was proven: each of them gives one proof of a kind.
    fn proofs_of(&self, mark: i64, until: Timestamp) -> usize {
        let known = |proof: &&(Timestamp, i64)| proof.0 < until && VARIANTS.contains(&(mark - proof.1));
        self.proofs.iter().map(|kind| kind.iter().filter(known).count()).max().unwrap_or_default()
    }

    /// A raise leaves room for one target and nothing else.
    fn is_exact(&self, raise: &Write) {
        for (key, to) in &raise.wanted {
            let fits =
                |charge: &Charge| amount_of(&raise.used, key).saturating_add(amount_in(charge, key)) == *to;
            assert!(self.targets.iter().any(|(_, charge)| fits(charge)), "{key} fits no target: {raise:#?}");
        }
    }

    /// No quota ever holds more than its spec and what the targets took that exist.
    fn stays_within_need(&self, write: &Write) {
        for (key, used) in write.used.iter().filter(|(key, _)| write.largest.contains_key(*key)) {
            let created = self.targets.iter().filter(|(created, _)| *created);
            let need = created
                .map(|(_, charge)| amount_in(charge, key))
                .fold(Amount::default(), Amount::saturating_add);
            let most = amount_of(&write.largest, key).saturating_add(need);
            assert!(*used <= most, "{key} is used by more than the targets: {write:#?}");
        }
    }

    /// From the proof to the end of a lock no other pod is created.
    fn let_nothing_else_in(&self) {
        for writes in self.quotas.values() {
            for (n, write) in writes.iter().enumerate().filter(|(_, write)| write.is_raise()) {
                let mark = write.mark.unwrap();
                let proofs =
                    self.proofs.iter().flatten().filter(|proof| VARIANTS.contains(&(mark - proof.1)));
                let Some(from) = proofs.map(|proof| proof.0).max() else { continue };
                let unlock = writes[n..].iter().find(|write| write.mark.is_none());
                let to = time(mark - mark.rem_euclid(1000))
                    .min(unlock.map_or(Timestamp::MAX, |write| write.received));
                let within = |pod: &&(Timestamp, Timestamp)| pod.0 > from && pod.1 < to;
                let entered = self.others.iter().find(within);
                assert_eq!(entered, None, "{}: another pod while locked: {write:#?}", self.namespace);
            }
        }
    }

    fn note_probe(&mut self, event: &AuditEvent) {
        let (said, at) = (&event.message, event.received);
        if event.code != 403 {
            return;
        }
        if said.contains(names::PROBE_DENIED) {
            self.proofs[0].push((at, event.request["spec"]["mark"].as_i64().unwrap()));
        } else if let Some((_, limit)) = said.split_once(&format!("limited: {MARK}=")) {
            let mark = limit.split(',').next().unwrap();
            self.proofs[1].push((at, mark.parse().unwrap()));
        }
    }

    fn note_quota(&mut self, event: &AuditEvent) {
        let object = &event.response;
        if event.code >= 300 || object["kind"] != "ResourceQuota" {
            return;
        }
        self.spec_writes += usize::from(event.is_ours() && event.resource == "resourcequotas");
        let mark = object["status"]["hard"][MARK].as_str().and_then(|mark| mark.parse().ok());
        self.quotas.entry(text(object, "/metadata/uid").to_owned()).or_default().push(Write {
            version: text(object, "/metadata/resourceVersion").parse().unwrap(),
            received: event.received,
            answered: event.answered,
            user: event.user.clone(),
            name: text(object, "/metadata/name").to_owned(),
            mark,
            wanted: amounts(&event.request["status"]["hard"]),
            largest: Amounts::new(),
            spec: amounts(&object["spec"]["hard"]),
            hard: amounts(&object["status"]["hard"]),
            used: amounts(&object["status"]["used"]),
        });
    }

    fn note_pod(&mut self, event: &AuditEvent) {
        let object = &event.request;
        let created = event.code == 201;
        let is_target = !object["metadata"]["labels"][names::MIGRATION_JOB_LABEL].is_null();
        if is_target && event.user == CONTROLLER {
            let pod = if created { &event.response } else { object };
            let wire: PodWire = serde_json::from_value(pod.clone()).unwrap();
            let need = sluice_index::need_of(&wire, ChargeRules::for_minor(35)).unwrap();
            self.targets.push((created, need.charge));
        } else if created {
            self.others.push((event.received, event.answered));
        }
    }
}

impl Write {
    fn is_ours(&self) -> bool {
        is_sluice(&self.user)
    }

    fn is_raise(&self) -> bool {
        self.is_ours() && self.mark.is_some() && !self.wanted.is_empty()
    }
}

fn time(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap()
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The amounts of a map; the mark is none.
fn amounts(map: &Value) -> Amounts {
    let pairs = map.as_object().into_iter().flatten().filter(|(key, _)| *key != MARK);
    let amount = |text: &Value| Amount::from(Quantity::parse(text.as_str().unwrap()).unwrap());
    pairs.map(|(key, text)| (key.clone(), amount(text))).collect()
}

fn differs(spec: &Amounts, key: &str, to: Amount) -> bool {
    spec.get(key).is_some_and(|wanted| *wanted != to)
}

fn amount_of(amounts: &Amounts, key: &str) -> Amount {
    amounts.get(key).copied().unwrap_or_default()
}

fn amount_in(charge: &Charge, key: &str) -> Amount {
    charge.get(&Resource::from_quota_key(key)).unwrap_or_default()
}
