//! Who has written an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use sluice_api::names;

/// The field manager of the last write, unless that is the operator. Of writes within one second it is taken to be another
/// client's.
pub(super) fn last_other_writer(metadata: &ObjectMeta) -> Option<String> {
    let entries = metadata.managed_fields.iter().flatten();
    let of_spec = entries.filter(|entry| entry.subresource.is_none());
    let is_other = |entry: &&ManagedFieldsEntry| entry.manager.as_deref() != Some(names::OPERATOR);
    let last = of_spec.max_by_key(|entry| (entry.time.as_ref().map(|time| time.0), is_other(entry)))?;
    is_other(&last).then(|| last.manager.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn who_wrote_last_is_told_unless_it_is_the_operator() {
        let last = |entries: Value| {
            let metadata = json!({ "managedFields": entries });
            last_other_writer(&serde_json::from_value::<ObjectMeta>(metadata).unwrap())
        };
        let entry = |manager: &str, time: &str| json!({ "manager": manager, "time": time });
        let (early, late) = ("2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z");
        let ours = names::OPERATOR;
        assert_eq!(last(json!([])), None);
        assert_eq!(last(json!([entry(ours, early)])), None);
        assert_eq!(last(json!([entry("argocd", early), entry(ours, late)])), None);
        for entries in
            [[entry("argocd", late), entry(ours, early)], [entry(ours, late), entry("argocd", late)]]
        {
            assert_eq!(last(json!(entries)).as_deref(), Some("argocd"));
        }
        let status = json!({ "manager": "kube-apiserver", "time": late, "subresource": "status" });
        assert_eq!(last(json!([entry(ours, early), status])), None);
    }
}
