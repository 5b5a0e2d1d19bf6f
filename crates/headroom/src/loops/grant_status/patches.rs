//! The status that what grants head-room should have.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};
use sluice_api::HeadroomPolicyStatus;
use sluice_index::{Stated, VmmrqStated};

use crate::loops::blocked_migrations::Summary;

/// Whether it is in force.
pub const READY: &str = "Ready";
/// Whether namespaces use more than their quotas.
pub const ABOVE_QUOTAS: &str = "AboveQuotas";
/// So many of them are named.
const NAMED: usize = 3;
const ONE_ABOVE: &str = "the namespace uses more than spec.hard of a ResourceQuota, and no migration is under way: a \
                         virtual machine that stops there would not start again: raise the quota";
/// Whether a migration lacks head-room.
pub const NOT_ENOUGH: &str = "NotEnough";

/// What a condition says.
struct Says {
    kind: &'static str,
    is: bool,
    reason: &'static str,
    message: String,
}

/// The merge patch that brings the status up to date; `None` if it is. `errors`: amounts that are ignored; `unproven`: why
/// nothing is raised anywhere; `above`: whether its namespace uses more than its quotas, `None` if that may pass.
#[must_use]
pub fn vmmrq_patch(
    object: &Stated<VmmrqStated>,
    errors: &[String],
    (summary, unproven): (&Summary, Option<&str>),
    (above, now): (Option<bool>, Timestamp),
) -> Option<Value> {
    let VmmrqStated { granted, status } = &object.status;
    let generation = object.generation;
    let above = above.map(above_of_one);
    let says = [ready(errors, summary, unproven), not_enough(summary)].into_iter().chain(above);
    let conditions = merged(&status.conditions, says, generation, now);
    let granted: BTreeMap<String, Quantity> =
        granted.iter().map(|(key, text)| (key.clone(), Quantity(text.clone()))).collect();
    let wanted = match status.original_blocking_resource_quotas.as_slice() {
        [] => &granted,
        // managed-tenant-quota raised quotas by what is there, which is needed to restore them.
        _ => &status.additional_migration_resources,
    };
    let same = status.additional_migration_resources == *wanted && status.observed_generation == generation;
    if same && conditions == status.conditions {
        return None;
    }
    let amounts = replaced(&status.additional_migration_resources, wanted);
    Some(json!({
        "metadata": { "resourceVersion": object.resource_version },
        "status": {
            "additionalMigrationResources": amounts, "observedGeneration": generation, "conditions": conditions,
        },
    }))
}

/// What a policy covers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Covered {
    /// How many namespaces.
    pub namespaces: i64,
    /// What they use above their quotas.
    pub used: BTreeMap<String, Quantity>,
    /// Those that use something above their quotas, sorted.
    pub above: Vec<Arc<str>>,
    /// What of the policy is ignored.
    pub errors: Vec<String>,
    /// In one of them writing the status of a quota is refused: what was said.
    pub forbidden: Option<Arc<str>>,
    /// Why nothing is raised anywhere.
    pub unproven: Option<Arc<str>>,
}

/// As [`vmmrq_patch`].
#[must_use]
pub fn policy_patch(
    object: &Stated<HeadroomPolicyStatus>,
    covered: &Covered,
    now: Timestamp,
) -> Option<Value> {
    let status = &object.status;
    let generation = object.generation;
    let summary = Summary { forbidden: covered.forbidden.clone(), ..Summary::default() };
    let says = [ready(&covered.errors, &summary, covered.unproven.as_deref()), above(&covered.above)];
    let conditions = merged(&status.conditions, says, generation, now);
    let same = status.namespaces == Some(covered.namespaces)
        && status.used == covered.used
        && status.observed_generation == generation;
    if same && conditions == status.conditions {
        return None;
    }
    Some(json!({
        "metadata": { "resourceVersion": object.resource_version },
        "status": {
            "namespaces": covered.namespaces, "used": replaced(&status.used, &covered.used),
            "observedGeneration": generation, "conditions": conditions,
        },
    }))
}

/// A merge patch of a map: keys that are not wanted are taken away.
fn replaced(is: &BTreeMap<String, Quantity>, wanted: &BTreeMap<String, Quantity>) -> Value {
    let gone = is.keys().filter(|key| !wanted.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let put = wanted.iter().map(|(key, amount)| (key.clone(), json!(amount)));
    Value::Object(gone.chain(put).collect())
}

fn ready(errors: &[String], summary: &Summary, unproven: Option<&str>) -> Says {
    let (is, reason, message) = if let Some(why) = unproven {
        (false, "NotProven", format!("no quota is raised: {why}"))
    } else if let Some(said) = &summary.forbidden {
        (false, "StatusForbidden", format!("a quota's status cannot be written: {said}"))
    } else if !errors.is_empty() {
        (false, "Invalid", errors.join("; "))
    } else if summary.opted_out {
        let message =
            "the namespace, or a quota that is exceeded, is excluded from head-room by an annotation";
        (false, "OptedOut", message.to_owned())
    } else {
        (true, "InForce", "live migrations may take these amounts".to_owned())
    };
    Says { kind: READY, is, reason, message }
}

fn above(namespaces: &[Arc<str>]) -> Says {
    if namespaces.is_empty() {
        let message = "no namespace uses more than its ResourceQuotas say".to_owned();
        return Says { kind: ABOVE_QUOTAS, is: false, reason: "WithinQuotas", message };
    }
    let named = namespaces.iter().take(NAMED).map(|name| &**name).collect::<Vec<_>>().join(", ");
    let others = match namespaces.len().saturating_sub(NAMED) {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    let message = format!(
        "these namespaces use more than spec.hard of a ResourceQuota: {named}{others}. Where no migration is under way, a \
        virtual machine that stops there would not start again: raise the quota"
    );
    Says { kind: ABOVE_QUOTAS, is: true, reason: "Outgrown", message }
}

/// As [`above`], of the namespace that the object is in.
fn above_of_one(is: bool) -> Says {
    let (reason, message) = match is {
        true => ("Outgrown", ONE_ABOVE),
        false => ("WithinQuotas", "the namespace uses no more than its ResourceQuotas say"),
    };
    Says { kind: ABOVE_QUOTAS, is, reason, message: message.to_owned() }
}

fn not_enough(summary: &Summary) -> Says {
    let (is, reason, message) = match &summary.not_enough {
        None => (false, "Enough", "no migration lacks head-room".to_owned()),
        Some((sentence, 1)) => (true, "NotEnoughHeadroom", sentence.to_string()),
        Some((sentence, count)) => {
            let others = count.saturating_sub(1);
            (true, "NotEnoughHeadroom", format!("{sentence}; {others} more wait behind it"))
        }
    };
    Says { kind: NOT_ENOUGH, is, reason, message }
}

/// Our conditions among those of others, in the order they have.
fn merged(
    old: &[Condition],
    says: impl IntoIterator<Item = Says>,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let mut conditions = old.to_vec();
    for says in says {
        let status = if says.is { "True" } else { "False" };
        let known = conditions.iter_mut().find(|condition| condition.type_ == says.kind);
        let since = known
            .as_ref()
            .filter(|known| known.status == status)
            .map(|known| known.last_transition_time.clone());
        let condition = Condition {
            type_: says.kind.to_owned(),
            status: status.to_owned(),
            reason: says.reason.to_owned(),
            message: says.message,
            observed_generation: generation,
            last_transition_time: since.unwrap_or_else(|| Time(whole_second(now))),
        };
        match known {
            Some(known) => *known = condition,
            None => conditions.push(condition),
        }
    }
    conditions
}

/// The API keeps whole seconds.
fn whole_second(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use sluice_api::VirtualMachineMigrationResourceQuota as Vmmrq;
    use sluice_index::{Vmmrqs, Watched as _};

    use super::*;

    const NOW: &str = "2026-01-01T00:00:07.5Z";

    fn vmmrq(status: Value) -> Vmmrq {
        serde_json::from_value(json!({
            "apiVersion": "mtq.kubevirt.io/v1alpha1", "kind": "VirtualMachineMigrationResourceQuota",
            "metadata": { "name": "a", "namespace": "shop", "generation": 2, "resourceVersion": "9" },
            "spec": { "additionalMigrationResources": { "requests.memory": "1Gi" } },
            "status": status,
        }))
        .unwrap()
    }

    /// As the watch shows the object.
    fn patch_of(object: &Vmmrq, errors: &[String], summary: &Summary, now: Timestamp) -> Option<Value> {
        let mut vmmrqs = Vmmrqs::default();
        vmmrqs.upsert(&serde_json::from_value(serde_json::to_value(object).unwrap()).unwrap());
        vmmrq_patch(
            vmmrqs.get("shop", "a").unwrap().stated.as_ref().unwrap(),
            errors,
            (summary, None),
            (None, now),
        )
    }

    fn patched(object: &Vmmrq, patch: &Value) -> Vmmrq {
        let mut value = serde_json::to_value(object).unwrap();
        json_patch::merge(&mut value, patch);
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_status_is_written_once() {
        let now: Timestamp = NOW.parse().unwrap();
        let object = vmmrq(json!({
            "additionalMigrationResources": { "pods": "1" },
        }));
        let patch = patch_of(&object, &[], &Summary::default(), now).unwrap();
        assert_eq!(patch["metadata"]["resourceVersion"], "9");
        let object = patched(&object, &patch);
        let status = object.status.clone().unwrap();
        assert_eq!(status.additional_migration_resources, object.spec.additional_migration_resources);
        let words: Vec<_> = status.conditions.iter().map(|c| (&*c.type_, &*c.status)).collect();
        assert_eq!(words, [("Ready", "True"), ("NotEnough", "False")]);
        assert_eq!(patch_of(&object, &[], &Summary::default(), now), None);
    }

    #[test]
    fn what_managed_tenant_quota_recorded_is_kept() {
        let object = vmmrq(json!({
            "additionalMigrationResources": { "pods": "1" },
            "originalBlockingResourceQuotas": [{ "name": "rq", "spec": { "hard": { "pods": "1" } } }],
        }));
        let patch = patch_of(&object, &[], &Summary::default(), NOW.parse().unwrap()).unwrap();
        let (before, after) = (object.status.clone().unwrap(), patched(&object, &patch).status.unwrap());
        assert_eq!(before.additional_migration_resources, after.additional_migration_resources);
        assert_eq!(before.original_blocking_resource_quotas, after.original_blocking_resource_quotas);
    }

    #[test]
    fn a_transition_has_its_time_and_a_new_sentence_has_not() {
        let now: Timestamp = NOW.parse().unwrap();
        let object = vmmrq(Value::Null);
        let object = patched(&object, &patch_of(&object, &[], &Summary::default(), now).unwrap());
        let later: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let lacks =
            |text: &str, count| Summary { not_enough: Some((text.into(), count)), ..Summary::default() };
        let object = patched(&object, &patch_of(&object, &[], &lacks("one", 1), later).unwrap());
        let condition = |object: &Vmmrq, kind: &str| {
            let conditions = object.status.clone().unwrap().conditions;
            conditions.into_iter().find(|condition| condition.type_ == kind).unwrap()
        };
        assert_eq!(condition(&object, NOT_ENOUGH).last_transition_time.0, later);
        assert_eq!(condition(&object, READY).last_transition_time.0.as_second(), now.as_second());
        let even_later: Timestamp = "2026-01-01T00:02:00Z".parse().unwrap();
        let object = patched(&object, &patch_of(&object, &[], &lacks("two", 3), even_later).unwrap());
        assert_eq!(condition(&object, NOT_ENOUGH).last_transition_time.0, later);
        assert!(condition(&object, NOT_ENOUGH).message.starts_with("two"));
    }

    /// `status`, reason and message of a condition.
    fn line(says: &Says) -> String {
        format!("{}={} {}: {}", says.kind, says.is, says.reason, says.message)
    }

    #[test]
    fn what_is_in_force_and_what_is_not_is_said() {
        let said = [
            ready(&[], &Summary::default(), None),
            ready(&["x".to_owned()], &Summary::default(), Some("API server b does not answer")),
            ready(&[], &Summary { forbidden: Some("immutable".into()), ..Summary::default() }, None),
            ready(
                &["pods: -1 is ignored".to_owned(), "cpu: x is ignored".to_owned()],
                &Summary::default(),
                None,
            ),
            ready(&[], &Summary { opted_out: true, ..Summary::default() }, None),
            above(&[]),
            above(&["shop".into()]),
            above(&["a", "b", "c", "d", "e"].map(Arc::from)),
            above_of_one(false),
            above_of_one(true),
            not_enough(&Summary::default()),
            not_enough(&Summary { not_enough: Some(("a lacks 1".into(), 1)), ..Summary::default() }),
            not_enough(&Summary { not_enough: Some(("a lacks 1".into(), 3)), ..Summary::default() }),
        ];
        insta::assert_snapshot!(said.map(|says| line(&says)).join("\n"), @"
        Ready=true InForce: live migrations may take these amounts
        Ready=false NotProven: no quota is raised: API server b does not answer
        Ready=false StatusForbidden: a quota's status cannot be written: immutable
        Ready=false Invalid: pods: -1 is ignored; cpu: x is ignored
        Ready=false OptedOut: the namespace, or a quota that is exceeded, is excluded from head-room by an annotation
        AboveQuotas=false WithinQuotas: no namespace uses more than its ResourceQuotas say
        AboveQuotas=true Outgrown: these namespaces use more than spec.hard of a ResourceQuota: shop. Where no migration is under way, a virtual machine that stops there would not start again: raise the quota
        AboveQuotas=true Outgrown: these namespaces use more than spec.hard of a ResourceQuota: a, b, c and 2 more. Where no migration is under way, a virtual machine that stops there would not start again: raise the quota
        AboveQuotas=false WithinQuotas: the namespace uses no more than its ResourceQuotas say
        AboveQuotas=true Outgrown: the namespace uses more than spec.hard of a ResourceQuota, and no migration is under way: a virtual machine that stops there would not start again: raise the quota
        NotEnough=false Enough: no migration lacks head-room
        NotEnough=true NotEnoughHeadroom: a lacks 1
        NotEnough=true NotEnoughHeadroom: a lacks 1; 2 more wait behind it
        ");
    }
}
