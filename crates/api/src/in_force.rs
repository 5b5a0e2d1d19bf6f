//! Which fields of `AAQ` and `MTQ` are set and have no effect, whatever the cluster is like: the webhook warns of them, and
//! the operator says so in the condition [`crate::names::FIELDS_NOT_IN_FORCE`].

use serde_json::Value;

use crate::{AskedLifetimes, TlsOffer, refused_sidecars};

/// A field that is set and has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotInForce {
    /// Its path below `spec`.
    pub field: &'static str,
    /// What is so instead, and why.
    pub why: String,
}

/// Fields that this version does not read, and what is so instead.
const NOT_READ: [(&str, &str); 1] = [("workload", "nothing runs as a workload")];

/// Those of a specification.
#[must_use]
pub fn not_in_force(spec: &Value) -> Vec<NotInForce> {
    let field =
        |path: &str| path.split('.').try_fold(spec, |value, name| value.get(name)).unwrap_or(&Value::Null);
    let mut told = Vec::new();
    let asked = AskedLifetimes::of(field("certConfig"));
    for (field, asked) in [("certConfig.ca", asked.ca), ("certConfig.server", asked.server)] {
        if let Err(error) = asked {
            told.push(NotInForce { field, why: format!("the lifetime stays as it is, for {error}") });
        }
    }
    let profile = match TlsOffer::of(field("tlsSecurityProfile")) {
        Ok(offer) if offer.lacks_old_versions => {
            Some("TLS 1.2 is the lowest version that is served".to_owned())
        }
        Ok(_) => None,
        Err(error) => Some(format!("the profile before stays, for {error}")),
    };
    told.extend(profile.map(|why| NotInForce { field: "tlsSecurityProfile", why }));
    if let Some(refused) = refused_sidecars(field("configuration.sidecarEvaluators")).first() {
        let why = format!("no pod is released, for {}: {}", refused.field, refused.why);
        told.push(NotInForce { field: "configuration.sidecarEvaluators", why });
    }
    let not_read = NOT_READ.into_iter().filter(|(path, _)| !says_nothing(field(path)));
    told.extend(not_read.map(|(field, why)| NotInForce { field, why: why.to_owned() }));
    told
}

/// Whether the value of a field asks for nothing.
#[must_use]
pub fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(wanted) => !wanted,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(says_nothing),
        Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(spec: &Value) -> Vec<String> {
        not_in_force(spec).into_iter().map(|it| format!("{}: {}", it.field, it.why)).collect()
    }

    #[test]
    fn fields_that_are_in_force_or_ask_nothing_are_not_told_of() {
        for spec in [
            json!(null),
            json!({}),
            json!({ "certConfig": { "ca": {} }, "configuration": { "sidecarEvaluators": [] }, "workload": {} }),
            json!({ "workload": { "nodeSelector": {} }, "tlsSecurityProfile": { "type": "Modern", "modern": {} } }),
            json!({ "certConfig": { "ca": { "duration": "48h" }, "server": { "duration": "5m", "renewBefore": "2m" } } }),
        ] {
            assert_eq!(told(&spec), Vec::<String>::new(), "{spec}");
        }
    }

    #[test]
    fn each_of_the_others_is_named_with_why() {
        let spec = json!({
            "certConfig": { "ca": { "duration": "1m" }, "server": { "renewBefore": "x" } },
            "configuration": { "sidecarEvaluators": [{ "name": "a" }, { "name": "b", "image": "i" }] },
            "tlsSecurityProfile": { "type": "Custom" },
            "workload": { "tolerations": [{ "operator": "Exists" }] },
        });
        let expected = [
            "certConfig.ca: the lifetime stays as it is, for duration 1m0s is too short: at least 5m0s are needed",
            "certConfig.server: the lifetime stays as it is, for renewBefore \"x\" is no duration: write hours, minutes and \
             seconds, such as 48h or 20m0s",
            "tlsSecurityProfile: the profile before stays, for type is Custom and custom is missing: set custom.ciphers and \
             custom.minTLSVersion",
            "configuration.sidecarEvaluators: no pod is released, for \
             configuration.sidecarEvaluators[0].image: there is none: name one",
            "workload: nothing runs as a workload",
        ];
        assert_eq!(told(&spec), expected);
        let old = json!({ "tlsSecurityProfile": { "type": "Old" } });
        assert_eq!(told(&old), ["tlsSecurityProfile: TLS 1.2 is the lowest version that is served"]);
    }
}
