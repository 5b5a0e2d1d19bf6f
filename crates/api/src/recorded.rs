//! Whether the CRDs of a cluster keep what this version records: an API server drops fields that the schema does not name.
//!
//! Charges rest on the status of three kinds. On a schema of an older version, or of application-aware-quota, a part of what
//! is written would be missing when it is read again.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt as _;

use crate::{ApplicationAwareClusterResourceQuota, ApplicationAwareResourceQuota, ClusterQuotaCharge, names};

/// Names of the CRDs whose status charges rest on.
pub const RECORDED_IN: [&str; 3] = [
    "applicationawareresourcequotas.aaq.kubevirt.io",
    "applicationawareclusterresourcequotas.aaq.kubevirt.io",
    "clusterquotacharges.quota.sluice.dev",
];

/// What is wrong with a CRD of [`RECORDED_IN`] as the cluster has it, in a sentence with the remedy; `None` if it keeps each
/// field of the status that this version writes, and of other CRDs.
#[must_use]
pub fn schema_too_old(live: &CustomResourceDefinition) -> Option<String> {
    let name = live.metadata.name.as_deref()?;
    let crds = [
        ApplicationAwareResourceQuota::crd(),
        ApplicationAwareClusterResourceQuota::crd(),
        ClusterQuotaCharge::crd(),
    ];
    let ours = crds.iter().find(|crd| crd.metadata.name.as_deref() == Some(name))?;
    let mut dropped = Vec::new();
    compare("status", status(ours)?, status(live), &mut dropped);
    (!dropped.is_empty()).then(|| {
        format!(
            "the CRD {name} is older than this version and drops {}: \
             apply the CRDs of this version (deploy/crds.yaml, or those of the chart)",
            dropped.join(", ")
        )
    })
}

fn status(crd: &CustomResourceDefinition) -> Option<&JSONSchemaProps> {
    let version = crd.spec.versions.iter().find(|version| version.name == names::VERSION)?;
    version.schema.as_ref()?.open_api_v3_schema.as_ref()?.properties.as_ref()?.get("status")
}

/// Adds the fields at `path` that `ours` names and `live` does not keep.
fn compare(path: &str, ours: &JSONSchemaProps, live: Option<&JSONSchemaProps>, dropped: &mut Vec<String>) {
    let Some(live) = live else { return dropped.push(path.to_owned()) };
    let keeps_all = live.x_kubernetes_preserve_unknown_fields == Some(true) || further(live).is_some();
    if keeps_all {
        return;
    }
    if further(ours).is_some() {
        return dropped.push(path.to_owned());
    }
    for (name, field) in ours.properties.iter().flatten() {
        let live = live.properties.as_ref().and_then(|fields| fields.get(name));
        compare(&format!("{path}.{name}"), field, live, dropped);
    }
    if let Some(ours) = items(ours) {
        compare(&format!("{path}[]"), ours, items(live), dropped);
    }
}

/// The schema of fields of any name.
fn further(schema: &JSONSchemaProps) -> Option<&JSONSchemaPropsOrBool> {
    schema.additional_properties.as_ref().filter(|further| **further != JSONSchemaPropsOrBool::Bool(false))
}

fn items(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match schema.items.as_ref()? {
        JSONSchemaPropsOrArray::Schema(items) => Some(items),
        JSONSchemaPropsOrArray::Schemas(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn all() -> Vec<Value> {
        let ours = |crd: &CustomResourceDefinition| {
            crd.metadata.name.as_deref().is_some_and(|name| RECORDED_IN.contains(&name))
        };
        let crds = crate::all_crds();
        crds.iter().filter(|crd| ours(crd)).map(|crd| serde_json::to_value(crd).unwrap()).collect()
    }

    fn said(crd: &Value) -> Option<String> {
        schema_too_old(&serde_json::from_value(crd.clone()).unwrap())
    }

    const STATUS: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/status";

    #[test]
    fn what_is_shipped_keeps_all_and_other_kinds_are_not_judged() {
        let all = all();
        assert_eq!(all.len(), RECORDED_IN.len());
        for crd in &all {
            assert_eq!(said(crd), None);
        }
        for crd in crate::all_crds() {
            assert_eq!(schema_too_old(&crd), None);
        }
    }

    #[test]
    fn each_field_that_is_missing_is_named() {
        let mut arq = all().remove(0);
        let fields = arq.pointer_mut(&format!("{STATUS}/properties")).unwrap().as_object_mut().unwrap();
        fields.remove("charges");
        fields.remove("held");
        // A later version has more.
        fields.insert("later".to_owned(), json!({ "type": "string" }));
        assert_eq!(
            said(&arq).unwrap(),
            "the CRD applicationawareresourcequotas.aaq.kubevirt.io is older than this version and drops \
             status.charges, status.held: apply the CRDs of this version (deploy/crds.yaml, or those of the chart)"
        );
        let fields = arq.pointer_mut(STATUS).unwrap().as_object_mut().unwrap();
        fields.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
        assert_eq!(said(&arq), None, "nothing is dropped");
    }

    #[test]
    fn fields_within_lists_and_maps_count_too() {
        for (crd, place, lost) in [
            (0, "properties/used/additionalProperties", "status.used"),
            (0, "properties/conditions/items/properties/reason", "status.conditions[].reason"),
            (
                1,
                "properties/namespaces/items/properties/status/properties/used",
                "status.namespaces[].status.used",
            ),
            (2, "properties/charges", "status.charges"),
        ] {
            let mut crd = all().remove(crd);
            let (parent, last) = place.rsplit_once('/').unwrap();
            let parent = crd.pointer_mut(&format!("{STATUS}/{parent}")).unwrap();
            assert!(parent.as_object_mut().unwrap().remove(last).is_some(), "{place}");
            let said = said(&crd).unwrap();
            assert!(said.contains(&format!("drops {lost}: ")), "{said}");
        }
    }

    #[test]
    fn a_crd_without_the_version_or_without_a_status_drops_all_of_it() {
        let mut crd = all().remove(2);
        crd["spec"]["versions"][0]["name"] = json!("v1");
        assert!(said(&crd).unwrap().contains("drops status: "));
        let mut crd = all().remove(2);
        crd.pointer_mut(STATUS.trim_end_matches("/status"))
            .unwrap()
            .as_object_mut()
            .unwrap()
            .remove("status");
        assert!(said(&crd).unwrap().contains("drops status: "));
    }
}
