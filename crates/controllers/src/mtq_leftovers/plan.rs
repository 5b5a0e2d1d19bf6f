//! From what was read to what is left, and the commands that repair it.
//!
//! A command contains names and keys that the API server has validated, and amounts as they were parsed. Other text of a
//! record, which a tenant may have written, does not reach the terminal.

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use kube::ResourceExt as _;
use serde::Serialize;
use serde_json::{Value, json};
use sluice_api::{OriginalResourceQuota, VirtualMachineMigrationResourceQuota as Vmmrq};
use sluice_engine::Quantity;

/// Everything that was read.
pub(super) struct Seen {
    pub(super) locks: Vec<ValidatingWebhookConfiguration>,
    pub(super) records: Vec<Vmmrq>,
    pub(super) quotas: Vec<ResourceQuota>,
}

/// Everything that is left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Leftovers(pub Vec<Leftover>);

/// An object that managed-tenant-quota left as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Leftover {
    /// The namespace that is locked, or has the object.
    pub namespace: String,
    /// Kind and name, as kubectl takes them.
    pub object: String,
    /// What is wrong with it.
    pub state: String,
    /// What repairs it; `None` if that is for an administrator to decide.
    pub command: Option<String>,
}

/// What is left, by namespace, in the order in which the commands have to run: a lock refuses updates of quotas, and a
/// record has the limits that are restored.
pub(super) fn plan(seen: &Seen) -> Leftovers {
    let mut left: Vec<_> = seen.locks.iter().filter_map(lock).collect();
    for record in &seen.records {
        let originals = record.status.iter().flat_map(|status| &status.original_blocking_resource_quotas);
        left.extend(originals.filter_map(|original| raised(record, original, &seen.quotas)));
    }
    left.extend(seen.records.iter().filter_map(stale));
    left.sort_by(|a, b| a.namespace.cmp(&b.namespace));
    Leftovers(left)
}

fn lock(lock: &ValidatingWebhookConfiguration) -> Option<Leftover> {
    let name = lock.name_any();
    let namespace = name.strip_prefix("lock.")?.strip_suffix(".com")?.to_owned();
    let since = lock.creation_timestamp().map(|time| format!(" since {}", time.0)).unwrap_or_default();
    Some(Leftover {
        namespace,
        object: format!("validatingwebhookconfiguration/{name}"),
        state: format!("locks the namespace{since}"),
        command: Some(format!("kubectl delete validatingwebhookconfiguration {name}")),
    })
}

/// A quota whose limits differ from the recorded ones. Only limits that are exactly as managed-tenant-quota raised them are
/// lowered: all others have been changed since, or the record is not true.
fn raised(record: &Vmmrq, original: &OriginalResourceQuota, quotas: &[ResourceQuota]) -> Option<Leftover> {
    let (namespace, name) = (record.namespace()?, &original.name);
    let quota = quotas.iter().find(|quota| {
        quota.metadata.name.as_ref() == Some(name) && quota.namespace().as_ref() == Some(&namespace)
    })?;
    let limits = quota.spec.as_ref()?.hard.as_ref()?;
    let added = &record.status.as_ref()?.additional_migration_resources;
    let (mut states, mut patch) = (Vec::new(), Vec::new());
    for key in original.spec.hard.iter().flat_map(BTreeMap::keys) {
        let amount = |map: &BTreeMap<String, Text>| Quantity::parse(&map.get(key)?.0).ok();
        let (Some(now), Some(before)) = (amount(limits), original.spec.hard.as_ref().and_then(amount)) else {
            continue;
        };
        let raised = amount(added).and_then(|more| before.checked_add(more).ok());
        if now == before {
            continue;
        }
        states.push(if now < before {
            format!("{key} is {now}, below the recorded {before}: not restored")
        } else if raised == Some(now) {
            patch.extend(lower(key, now, before));
            format!("{key} is raised from {before} to {now}")
        } else {
            format!("{key} is {now}, changed since {before} was recorded: not restored")
        });
    }
    if states.is_empty() {
        return None;
    }
    let command = (!patch.is_empty()).then(|| {
        let patch = Value::Array(patch);
        format!("kubectl patch resourcequota {name} --namespace {namespace} --type json --patch '{patch}'")
    });
    Some(Leftover { namespace, object: format!("resourcequota/{name}"), state: states.join("; "), command })
}

/// Applies only to the limit that was listed.
fn lower(key: &str, from: Quantity, to: Quantity) -> [Value; 2] {
    let path = format!("/spec/hard/{}", key.replace('/', "~1"));
    [
        json!({ "op": "test", "path": path, "value": from.to_string() }),
        json!({ "op": "replace", "path": path, "value": to.to_string() }),
    ]
}

/// A status that still says what is being raised.
fn stale(record: &Vmmrq) -> Option<Leftover> {
    let (status, namespace, name) = (record.status.as_ref()?, record.namespace()?, record.name_any());
    let (quotas, migrations) =
        (status.original_blocking_resource_quotas.len(), status.migrations_to_blocking_resource_quotas.len());
    if quotas == 0 && migrations == 0 {
        return None;
    }
    let kind = "virtualmachinemigrationresourcequota";
    let patch = json!([
        { "op": "add", "path": "/status/originalBlockingResourceQuotas", "value": [] },
        { "op": "add", "path": "/status/migrationsToBlockingResourceQuotas", "value": {} },
    ]);
    let command = format!(
        "kubectl patch {kind} {name} --namespace {namespace} --subresource status --type json --patch '{patch}'"
    );
    Some(Leftover {
        namespace,
        object: format!("{kind}/{name}"),
        state: format!("quotas recorded: {quotas}, migrations recorded: {migrations}"),
        command: Some(command),
    })
}
