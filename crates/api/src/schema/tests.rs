use super::QUANTITY;
use serde_json::Value;

const CLUSTER_QUOTAS: [&str; 2] =
    ["applicationawareclusterresourcequotas", "applicationawareappliedclusterresourcequotas"];

fn crd(name: &str) -> Value {
    let all = crate::all_crds();
    let found = all.iter().find(|c| c.spec.names.plural == name).expect("a CRD with that name");
    serde_json::to_value(found).expect("a CRD is JSON")
}

fn field<'a>(crd: &'a Value, path: &str) -> &'a Value {
    let mut node = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    for name in path.split('.') {
        node = match name {
            "[]" => &node["items"],
            "{}" => &node["additionalProperties"],
            _ => &node["properties"][name],
        };
        assert!(!node.is_null(), "no schema at {name} of {path}");
    }
    node
}

/// Paths of all nodes for which `wanted` holds.
fn paths(node: &Value, at: &str, wanted: &dyn Fn(&Value) -> bool, found: &mut Vec<String>) {
    if wanted(node) {
        found.push(at.to_owned());
    }
    for (name, child) in node["properties"].as_object().into_iter().flatten() {
        paths(child, &format!("{at}.{name}"), wanted, found);
    }
    for (key, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if node[key].is_object() {
            paths(&node[key], &format!("{at}.{mark}"), wanted, found);
        }
    }
}

fn root(crd: &Value) -> &Value {
    &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}

#[test]
fn quantities_have_the_pattern_of_kubernetes() {
    let arq = crd("applicationawareresourcequotas");
    let aaq = crd("aaqs");
    for node in [
        field(&arq, "spec.hard.{}"),
        field(&arq, "status.used.{}"),
        field(&aaq, "spec.configuration.sidecarEvaluators.[].resources.limits.{}"),
        field(&aaq, "spec.configuration.sidecarEvaluators.[].env.[].valueFrom.resourceFieldRef.divisor"),
    ] {
        assert_eq!(node["pattern"], QUANTITY);
        assert_eq!(node["x-kubernetes-int-or-string"], true);
        assert_eq!(node["anyOf"][0]["type"], "integer");
        assert_eq!(node["anyOf"][1]["type"], "string");
    }
    let port = field(&aaq, "spec.configuration.sidecarEvaluators.[].livenessProbe.httpGet.port");
    assert!(port["pattern"].is_null(), "a port may be a name");
}

#[test]
fn only_what_upstream_allows_to_be_null_is_nullable() {
    let mut found = Vec::new();
    for crd in crate::all_crds() {
        let name = &crd.spec.names.plural;
        paths(root(&self::crd(name)), name, &|node| node["nullable"] == true, &mut found);
    }
    let profiles = ["custom", "intermediate", "modern", "old"];
    let mut expected = profiles.map(|p| format!("aaqs.spec.tlsSecurityProfile.{p}")).to_vec();
    for kind in CLUSTER_QUOTAS {
        let fields = ["spec.selector.annotations", "spec.selector.labels", "status.namespaces"];
        expected.extend(fields.map(|field| format!("{kind}.{field}")));
    }
    expected.push("virtualmachinemigrationresourcequotas.status.creationTime".to_owned());
    assert_eq!(found, expected);
}

#[test]
fn selectors_of_ours_are_bounded_and_validated() {
    let policy = crd("headroompolicies");
    for path in ["spec.namespaceSelector", "spec.optOut.resourceQuotaSelector"] {
        let selector = field(&policy, path);
        assert_eq!(selector["x-kubernetes-map-type"], "atomic", "{path}");
        assert!(selector["properties"]["matchExpressions"]["maxItems"].is_number(), "{path}");
        let operators = &selector["properties"]["matchExpressions"]["items"]["properties"]["operator"];
        assert_eq!(operators["enum"].as_array().map(Vec::len), Some(4), "{path}");
    }
    assert_eq!(field(&policy, "spec")["required"], serde_json::json!(["budget", "namespaceSelector"]));
}

#[test]
fn conditions_of_ours_are_merged_by_type() {
    for name in
        ["applicationawareresourcequotas", "headroompolicies", "virtualmachinemigrationresourcequotas"]
            .into_iter()
            .chain(CLUSTER_QUOTAS)
    {
        let crd = crd(name);
        let conditions = field(&crd, "status.conditions");
        assert_eq!(conditions["x-kubernetes-list-type"], "map", "{name}");
        assert_eq!(conditions["x-kubernetes-list-map-keys"], serde_json::json!(["type"]), "{name}");
    }
}

#[test]
fn originals_of_raised_quotas_are_an_atomic_list() {
    let crd = crd("virtualmachinemigrationresourcequotas");
    let originals = field(&crd, "status.originalBlockingResourceQuotas");
    assert_eq!(originals["x-kubernetes-list-type"], "atomic");
    assert_eq!(originals["items"]["required"], serde_json::json!(["name", "spec"]));
    assert_eq!(field(&crd, "status.originalBlockingResourceQuotas.[].spec.hard.{}")["pattern"], QUANTITY);
}

#[test]
fn list_and_map_types_are_upstreams() {
    let arq = crd("applicationawareresourcequotas");
    assert_eq!(field(&arq, "spec.scopeSelector")["x-kubernetes-map-type"], "atomic");
    assert_eq!(field(&arq, "spec.scopes")["x-kubernetes-list-type"], "atomic");
    let values = field(&arq, "spec.scopeSelector.matchExpressions.[].values");
    assert_eq!(values["x-kubernetes-list-type"], "atomic");
    let aaq = crd("aaqs");
    assert_eq!(field(&aaq, "spec.namespaceSelector")["x-kubernetes-map-type"], "atomic");
    let ports = field(&aaq, "spec.configuration.sidecarEvaluators.[].ports");
    assert_eq!(ports["x-kubernetes-list-map-keys"], serde_json::json!(["containerPort", "protocol"]));
    assert_eq!(ports["items"]["properties"]["protocol"]["default"], "TCP");
    assert!(field(&aaq, "spec.infra.tolerations")["x-kubernetes-list-type"].is_null());
}

#[test]
fn required_fields_and_defaults_are_upstreams() {
    for each in crate::all_crds() {
        let name = &each.spec.names.plural;
        let required: &[&str] = match CLUSTER_QUOTAS.contains(&name.as_str()) {
            true => &["metadata", "spec"],
            false => &["spec"],
        };
        assert_eq!(root(&crd(name))["required"], serde_json::json!(required), "{name}");
    }
    let aaq = crd("aaqs");
    let calculator = field(&aaq, "spec.configuration.vmiCalculatorConfiguration.configName");
    assert_eq!(calculator["default"], "DedicatedVirtualResources");
    assert_eq!(calculator["enum"].as_array().map(Vec::len), Some(5));
    let container = field(&aaq, "spec.configuration.sidecarEvaluators.[]");
    assert_eq!(container["required"], serde_json::json!(["name"]));
    let spec = field(&crd("applicationawareresourcequotas"), "spec").clone();
    assert!(spec["required"].is_null());
}

#[test]
fn cluster_quotas_and_their_mirrors_have_upstreams_shape() {
    for name in CLUSTER_QUOTAS {
        let crd = crd(name);
        let required = |path: &str| field(&crd, path)["required"].clone();
        assert_eq!(required("spec"), serde_json::json!(["quota", "selector"]), "{name}");
        assert!(required("spec.quota").is_null() && required("spec.selector").is_null(), "{name}");
        assert_eq!(required("status"), serde_json::json!(["total"]), "{name}");
        assert!(required("status.total").is_null(), "{name}");
        assert_eq!(required("status.namespaces.[]"), serde_json::json!(["namespace", "status"]), "{name}");
        assert!(field(&crd, "status.namespaces")["x-kubernetes-list-type"].is_null(), "{name}");
        assert_eq!(field(&crd, "spec.selector.labels")["x-kubernetes-map-type"], "atomic", "{name}");
        assert_eq!(field(&crd, "status.namespaces.[].status.used.{}")["pattern"], QUANTITY, "{name}");
    }
    let has_subresource = |name| !crd(name)["spec"]["versions"][0]["subresources"]["status"].is_null();
    assert_eq!(CLUSTER_QUOTAS.map(has_subresource), [true, false]);
}

#[test]
fn the_answer_to_a_review_is_not_dropped_as_the_status_of_a_new_object() {
    let review = crd(crate::names::QUOTA_REVIEWS);
    assert!(review["spec"]["versions"][0]["subresources"].is_null());
    let explanations = field(&review, "status.explanations.[]");
    assert_eq!(explanations["x-kubernetes-preserve-unknown-fields"], true);
    assert_eq!(field(&review, "status")["required"], serde_json::json!(["held", "source", "text"]));
    assert!(field(&review, "spec")["required"].is_null());
}

#[test]
fn list_keys_are_required_or_have_a_default() {
    let mut found = Vec::new();
    let aaq = crd("aaqs");
    paths(
        root(&aaq),
        "",
        &|node| {
            let item = &node["items"];
            let keys = node["x-kubernetes-list-map-keys"].as_array().cloned().unwrap_or_default();
            keys.iter().filter_map(Value::as_str).any(|key| {
                let required = item["required"].as_array().is_some_and(|r| r.contains(&key.into()));
                !required && item["properties"][key]["default"].is_null()
            })
        },
        &mut found,
    );
    assert!(found.is_empty(), "the API server refuses these lists: {found:?}");
}

#[test]
fn the_largest_crd_fits_an_annotation() {
    // `kubectl apply` stores the object in an annotation, and all annotations have 256 KiB together.
    for crd in crate::all_crds() {
        let size = serde_json::to_vec(&crd).map(|bytes| bytes.len()).unwrap_or(usize::MAX);
        assert!(size < 64 * 1024, "{} has {size} bytes", crd.spec.names.kind);
    }
}
