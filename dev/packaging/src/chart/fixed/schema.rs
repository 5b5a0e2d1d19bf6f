//! The schema of the values: closed, so that a typing error is refused. It is that of a file of options, and what the chart
//! has beside.

use serde_json::{Value, json};
use sluice_manifests::OptionsFile;

/// `values.schema.json`.
pub(super) fn schema() -> Value {
    let mut schema = OptionsFile::schema();
    let own = [
        (
            "crds",
            json!({ "type": "object", "additionalProperties": false, "properties": { "enabled": boolean() } }),
        ),
        ("rancher", boolean()),
        ("extraObjects", json!({ "type": "array", "items": { "type": "object" } })),
        // Helm sets it for the parts of a chart.
        ("global", json!({ "type": "object" })),
    ];
    if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        fields.extend(own.map(|(name, value)| (name.to_owned(), value)));
        // For a test suite alone, which no chart installs.
        fields.remove("names");
    }
    if let Some(fields) =
        schema.pointer_mut("/properties/monitoring/properties").and_then(Value::as_object_mut)
    {
        fields.insert("dashboards".to_owned(), boolean());
    }
    schema
}

fn boolean() -> Value {
    json!({ "type": "boolean" })
}
