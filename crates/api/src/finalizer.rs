//! Who has put a finalizer on an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::json;

/// Whether the field manager `manager` has put the finalizer on the object, by its `managedFields`. A finalizer of another
/// manager is that of another program's operator, which may be at work.
#[must_use]
pub fn has_put_finalizer(managed: Option<&[ManagedFieldsEntry]>, finalizer: &str, manager: &str) -> bool {
    // An item of a set is named by its value.
    let item = format!("v:{}", json!(finalizer));
    let of_manager = managed.into_iter().flatten().filter(|entry| entry.manager.as_deref() == Some(manager));
    let mut fields = of_manager.filter_map(|entry| entry.fields_v1.as_ref());
    fields.any(|fields| {
        let finalizers = fields.0.pointer("/f:metadata/f:finalizers");
        finalizers.is_some_and(|finalizers| finalizers.get(&item).is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finalizer_is_of_the_manager_that_owns_the_item() {
        let entry = |manager: &str, finalizer: &str| -> ManagedFieldsEntry {
            let item = format!("v:\"{finalizer}\"");
            let fields = json!({ "f:metadata": { "f:finalizers": { ".": {}, item: {} } } });
            serde_json::from_value(json!({ "manager": manager, "operation": "Update", "fieldsV1": fields }))
                .unwrap()
        };
        let all = [entry("aaq-operator", "example.com/a"), entry("us", "example.com/b")];
        let is = |finalizer: &str| has_put_finalizer(Some(&all), finalizer, "us");
        assert!(is("example.com/b") && !is("example.com/a") && !is("example.com/c"));
        assert!(!has_put_finalizer(None, "example.com/b", "us"));
    }
}
