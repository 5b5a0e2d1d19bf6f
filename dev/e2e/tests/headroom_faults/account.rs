//! What the audit log says of a namespace, and what it must not say.
//!
//! Versions of objects are etcd's revisions: they order the writes of all objects, whoever did them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_api::names;
use sluice_engine::{Amount, Charge, ChargeRules, Quantity, Resource};
use sluice_index::wire::PodWire;
use sluice_testbed::Bed;
use sluice_testbed::kubevirt::CONTROLLER;

type Amounts = BTreeMap<String, Amount>;

/// Everything of interest that was done in one namespace.
#[derive(Debug, Default)]
pub struct Account {
    namespace: String,
    /// Windows that were created, in order.
    pub windows: Vec<Window>,
    /// Denials of probes: when they were asked for, and the whole text.
    proofs: Vec<(String, String)>,
    /// By the quota's uid, in order.
    quotas: BTreeMap<String, Vec<Write>>,
    /// Names of quotas that were deleted, and when that was asked for.
    deleted: Vec<(String, String)>,
    /// What the target pods take, of which somebody tried to create one.
    targets: Vec<(bool, Charge)>,
    /// Writes of quotas other than their status, by Sluice.
    pub spec_writes: usize,
}

/// A window's life.
#[derive(Debug)]
pub struct Window {
    version: u64,
    uid: String,
    nonce: String,
    holder: String,
    /// When its successful deletion was asked for, and by whom.
    deleted: Option<(String, String)>,
}

/// A write of a quota.
#[derive(Debug)]
struct Write {
    version: u64,
    received: String,
    user: String,
    name: String,
    is_raise: bool,
    /// The largest that the spec said so far.
    spec: Amounts,
    hard: Amounts,
    used: Amounts,
}

impl Account {
    /// What was done up to now.
    pub async fn of(bed: &Bed, namespace: &str) -> Self {
        let mut account = Self { namespace: namespace.to_owned(), ..Self::default() };
        let mut events = bed.audit_events_with(namespace).await.unwrap();
        events.retain(|event| {
            event["objectRef"]["namespace"] == namespace && event["stage"] == "ResponseComplete"
        });
        events.sort_by(|a, b| text(a, "/requestReceivedTimestamp").cmp(text(b, "/requestReceivedTimestamp")));
        for event in &events {
            match text(event, "/objectRef/resource") {
                names::MIGRATION_WINDOWS => account.note_window(event),
                "resourcequotas" => account.note_quota(event),
                "pods" => account.note_pod(event),
                _ => {}
            }
        }
        account.windows.sort_by_key(|window| window.version);
        account.settle_deletions(&events);
        for writes in account.quotas.values_mut() {
            writes.sort_by_key(|write| write.version);
            let mut largest = Amounts::new();
            for write in writes {
                for (key, amount) in &write.spec {
                    let known = largest.entry(key.clone()).or_insert(*amount);
                    *known = (*known).max(*amount);
                }
                write.spec.clone_from(&largest);
            }
        }
        account
    }

    /// How often a quota was raised.
    pub fn raises(&self) -> usize {
        self.quotas.values().flatten().filter(|write| write.is_raise).count()
    }

    /// How often a quota of this name was raised.
    pub fn raises_of(&self, name: &str) -> usize {
        let writes = self.quotas.values().flatten();
        writes.filter(|write| write.is_raise && write.name == name).count()
    }

    /// From when to when a quota was raised under a lock: from each raise to the end of its window.
    pub fn raised_spans(&self) -> Vec<(&str, &str)> {
        let raises = self.quotas.values().flatten().filter(|write| write.is_raise);
        let span = |raise| {
            let window = self.is_in_window(raise, "a raise");
            Some((raise.received.as_str(), window.deleted.as_ref()?.0.as_str()))
        };
        raises.filter_map(span).collect()
    }

    /// How many processes have opened windows.
    pub fn holders(&self) -> usize {
        self.windows.iter().map(|window| &window.holder).collect::<std::collections::BTreeSet<_>>().len()
    }

    /// Asserts what always has to hold with one API server.
    pub fn holds(&self) {
        self.holds_with(1);
    }

    /// Asserts what always has to hold with so many API servers.
    pub fn holds_with(&self, servers: usize) {
        assert_eq!(self.spec_writes, 0, "{}: a quota was written, not only its status", self.namespace);
        for writes in self.quotas.values() {
            for (n, write) in writes.iter().enumerate() {
                let before = n.checked_sub(1).and_then(|n| writes.get(n));
                self.stays_within_need(write);
                if write.is_raise {
                    self.is_proven(write, servers);
                    self.is_exact(write, before);
                }
                if before.is_some_and(|before| overtakes(before, write)) {
                    self.is_in_window(write, "the quota took more than its spec");
                }
            }
            self.is_restored_before_unlock(writes);
        }
    }

    /// The window that is open at a write.
    fn is_in_window(&self, write: &Write, what: &str) -> &Window {
        let window = self.windows.iter().rfind(|window| window.version < write.version);
        let window = window.unwrap_or_else(|| panic!("{what} without a window: {write:#?}"));
        if let Some((deleted, _)) = &window.deleted {
            assert!(*deleted > write.received, "{what} after its window: {write:#?} {window:#?}");
        }
        window
    }

    fn is_proven(&self, raise: &Write, servers: usize) {
        let window = self.is_in_window(raise, "a raise");
        let mark = format!("(window {})", window.nonce);
        let before =
            self.proofs.iter().filter(|(at, said)| *at < raise.received && said.contains(&mark)).count();
        assert!(
            before >= servers,
            "{before} proofs before a raise, {servers} servers: {raise:#?} {window:#?}"
        );
    }

    /// A raise leaves room for one target and nothing else.
    fn is_exact(&self, raise: &Write, before: Option<&Write>) {
        for (key, to) in raise.hard.iter().filter(|(key, to)| raise.spec.get(*key) < Some(*to)) {
            let most =
                self.targets.iter().map(|(_, charge)| amount_in(charge, key)).max().unwrap_or_default();
            let fit = amount_of(&raise.used, key).saturating_add(most);
            let known = before.map(|before| amount_of(&before.hard, key)).unwrap_or_default();
            assert!(*to <= fit.max(known), "{key} was raised by more than a target takes: {raise:#?}");
        }
    }

    /// No quota ever holds more than its spec and what the targets took that exist.
    fn stays_within_need(&self, write: &Write) {
        for (key, used) in &write.used {
            let created = self.targets.iter().filter(|(created, _)| *created);
            let need = created
                .map(|(_, charge)| amount_in(charge, key))
                .fold(Amount::default(), Amount::saturating_add);
            let most = amount_of(&write.spec, key).saturating_add(need);
            assert!(*used <= most, "{key} is used by more than the targets: {write:#?}");
        }
    }

    fn is_restored_before_unlock(&self, writes: &[Write]) {
        for window in &self.windows {
            let Some((deleted, user)) = &window.deleted else { continue };
            let last = writes.iter().rfind(|write| write.received < *deleted);
            let is_gone = |last: &&Write| {
                let gone = |(name, at): &(String, String)| {
                    *name == last.name && *at > last.received && *at < *deleted
                };
                self.deleted.iter().any(gone)
            };
            // The namespace's own end asks nobody.
            if let Some(last) = last.filter(|last| is_ours(user) && !is_gone(last)) {
                let raised = last.hard.iter().find(|(key, hard)| last.spec.get(*key) < Some(*hard));
                assert!(raised.is_none(), "a window was closed over a raised quota: {window:#?} {last:#?}");
            }
        }
    }

    fn note_window(&mut self, event: &Value) {
        let (name, verb) = (text(event, "/objectRef/name"), text(event, "/verb"));
        let dry = text(event, "/requestURI").contains("dryRun=All");
        let code = code(event);
        if verb == "create" && dry && code == 403 {
            let said = text(event, "/responseStatus/message").to_owned();
            self.proofs.push((text(event, "/requestReceivedTimestamp").to_owned(), said));
        } else if verb == "create" && !dry && code == 201 {
            assert_eq!(name, names::WINDOW_NAME);
            self.windows.push(Window {
                version: version(&event["responseObject"]),
                uid: text(event, "/responseObject/metadata/uid").to_owned(),
                nonce: text(event, "/responseObject/spec/nonce").to_owned(),
                holder: text(event, "/responseObject/spec/holder").to_owned(),
                deleted: None,
            });
        }
    }

    /// By identity: of a server that is killed, not every answer is in the log.
    fn settle_deletions(&mut self, events: &[Value]) {
        let deletions = events.iter().filter(|event| {
            text(event, "/objectRef/resource") == names::MIGRATION_WINDOWS
                && text(event, "/verb").starts_with("delete")
                && code(event) == 200
        });
        for deletion in deletions {
            let uids = deleted_uids(&deletion["responseObject"]);
            let at = text(deletion, "/requestReceivedTimestamp");
            for window in self.windows.iter_mut().filter(|window| uids.contains(&window.uid.as_str())) {
                window.deleted = Some((at.to_owned(), text(deletion, "/user/username").to_owned()));
            }
        }
    }

    fn note_quota(&mut self, event: &Value) {
        let object = &event["responseObject"];
        let dry = text(event, "/requestURI").contains("dryRun=All");
        if code(event) == 200 && text(event, "/verb") == "delete" {
            let at = text(event, "/requestReceivedTimestamp").to_owned();
            self.deleted.push((text(event, "/objectRef/name").to_owned(), at));
            return;
        }
        if code(event) >= 300 || dry || object["kind"] != "ResourceQuota" {
            return;
        }
        let user = text(event, "/user/username");
        let status = text(event, "/objectRef/subresource") == "status";
        self.spec_writes += usize::from(is_ours(user) && !status);
        let tests_usage =
            |line: &Value| *line == json!({"op": "test", "path": "/status/used", "value": line["value"]});
        let patch = event["requestObject"].as_array();
        self.quotas.entry(text(object, "/metadata/uid").to_owned()).or_default().push(Write {
            version: version(object),
            received: text(event, "/requestReceivedTimestamp").to_owned(),
            user: user.to_owned(),
            name: text(object, "/metadata/name").to_owned(),
            is_raise: is_ours(user) && patch.is_some_and(|patch| patch.iter().any(tests_usage)),
            spec: amounts(&object["spec"]["hard"]),
            hard: amounts(&object["status"]["hard"]),
            used: amounts(&object["status"]["used"]),
        });
    }

    fn note_pod(&mut self, event: &Value) {
        let object = &event["requestObject"];
        let is_target = !object["metadata"]["labels"][names::MIGRATION_JOB_LABEL].is_null();
        let by_kubevirt = text(event, "/verb") == "create" && text(event, "/user/username") == CONTROLLER;
        if !by_kubevirt || !is_target || !text(event, "/objectRef/subresource").is_empty() {
            return;
        }
        let created = code(event) == 201;
        let pod = if created { &event["responseObject"] } else { object };
        let wire: PodWire = serde_json::from_value(pod.clone()).unwrap();
        let need = sluice_index::need_of(&wire, ChargeRules::for_minor(35)).unwrap();
        self.targets.push((created, need.charge));
    }
}

/// Quota admission let something in that the spec does not allow.
fn overtakes(before: &Write, write: &Write) -> bool {
    let grew = |(key, used): (&String, &Amount)| {
        *used > amount_of(&before.used, key) && *used > amount_of(&write.spec, key)
    };
    write.user == "system:apiserver" && write.used.iter().any(grew)
}

/// What an answer to a deletion names: one object, or each of a collection.
fn deleted_uids(answer: &Value) -> Vec<&str> {
    let items = answer["items"].as_array().into_iter().flatten();
    let each = items.map(|item| text(item, "/metadata/uid"));
    each.chain([text(answer, "/details/uid")]).filter(|uid| !uid.is_empty()).collect()
}

fn is_ours(user: &str) -> bool {
    user.starts_with(&format!("system:serviceaccount:{}:", names::INSTALL_NAMESPACE))
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn code(event: &Value) -> u64 {
    event["responseStatus"]["code"].as_u64().unwrap_or_default()
}

fn version(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().unwrap()
}

fn amounts(map: &Value) -> Amounts {
    let pairs = map.as_object().into_iter().flatten();
    pairs
        .map(|(key, text)| (key.clone(), Amount::from(Quantity::parse(text.as_str().unwrap()).unwrap())))
        .collect()
}

fn amount_of(amounts: &Amounts, key: &str) -> Amount {
    amounts.get(key).copied().unwrap_or_default()
}

fn amount_in(charge: &Charge, key: &str) -> Amount {
    charge.get(&Resource::from_quota_key(key)).unwrap_or_default()
}
