//! Namespaces, their quotas and pages of lists as the API server sends them.

use serde_json::{Value, json};
use sluice_api::names;

use crate::pod_json::{namespace_name, uid};

/// Name of the one quota of each namespace.
pub const QUOTA: &str = "team-quota";

/// A targeted namespace.
pub fn namespace(number: u64, version: u64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": namespace_name(number), "uid": uid(number + (1 << 40)), "resourceVersion": version.to_string(),
            "creationTimestamp": "2026-01-12T08:00:00Z",
            "labels": {
                "kubernetes.io/metadata.name": namespace_name(number), names::TARGET_LABEL: "true",
                "team": format!("team-{number:05}"), "cost-centre": "4711",
            },
        },
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
    })
}

/// The limits of a quota with room for so many pods; of everything else there is more than they take.
pub fn hard(pods: u64) -> Value {
    json!({
        "pods": pods.to_string(), "requests.cpu": "20", "requests.memory": "40Gi",
        "limits.cpu": "100", "limits.memory": "100Gi",
    })
}

/// The uid of a namespace's quota.
pub fn quota_uid(namespace: u64) -> String {
    uid(namespace + (2 << 40))
}

/// The quota of a namespace, with room for so many pods.
pub fn quota(namespace: u64, version: u64, pods: u64, status: Option<&Value>) -> Value {
    let mut quota = json!({
        "apiVersion": names::API_VERSION, "kind": "ApplicationAwareResourceQuota",
        "metadata": {
            "name": QUOTA, "namespace": namespace_name(namespace), "uid": quota_uid(namespace),
            "resourceVersion": version.to_string(), "creationTimestamp": "2026-01-12T08:00:01Z",
        },
        "spec": {"hard": hard(pods)},
    });
    if let (Some(status), Some(fields)) = (status, quota.as_object_mut()) {
        fields.insert("status".to_owned(), status.clone());
    }
    quota
}

/// A page of a list of this `apiVersion` and kind. `next` stands for the page after it; it is empty in the last one. Memory
/// is taken once, `size` bytes for each item: a page of pods that grows by doubling would be what a bench measures.
pub fn page<T>(
    (api_version, kind): (&str, &str),
    (version, next): (u64, &str),
    size: usize,
    items: impl Iterator<Item = T>,
    write: impl Fn(T, &mut String),
) -> String {
    let capacity = items.size_hint().0.saturating_mul(size).saturating_add(256);
    let mut text = String::with_capacity(capacity);
    text.push_str(&format!(
        "{{\"kind\":\"{kind}List\",\"apiVersion\":\"{api_version}\",\
         \"metadata\":{{\"resourceVersion\":\"{version}\",\"continue\":\"{next}\"}},\"items\":["
    ));
    for (at, item) in items.enumerate() {
        if at > 0 {
            text.push(',');
        }
        write(item, &mut text);
    }
    text.push_str("]}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_json_with_a_comma_between_items() {
        for (items, wanted) in [(vec![], json!([])), (vec![1], json!([1])), (vec![1, 2], json!([1, 2]))] {
            let write = |item: i32, text: &mut String| text.push_str(&item.to_string());
            let text = page(("v1", "Pod"), (7, "7.3"), 1, items.into_iter(), write);
            let page: Value = serde_json::from_str(&text).unwrap();
            assert_eq!((&page["kind"], &page["items"]), (&json!("PodList"), &wanted));
            assert_eq!(page["metadata"], json!({"resourceVersion": "7", "continue": "7.3"}));
        }
    }

    #[test]
    fn a_quota_has_a_status_if_one_was_written() {
        assert_eq!(quota(3, 9, 14, None).get("status"), None);
        let written = quota(3, 9, 14, Some(&json!({"held": 1})));
        assert_eq!((&written["spec"]["hard"]["pods"], &written["status"]["held"]), (&json!("14"), &json!(1)));
    }
}
