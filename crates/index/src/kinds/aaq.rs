//! The `AAQ`: which namespaces are targeted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use sluice_api::{AAQ, AaqStatus, holding, is_placeholder};
use sluice_engine::vm::Calculator;

use crate::stated::Stated;
use crate::store::{Affected, Indexed, Key, Record, Store};

/// An `AAQ`: which namespaces are targeted, and what is said of the installation.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = AAQ)]
pub struct AaqWire {
    /// Name, uid, version, times, the label that says who has made it, the annotations of a pause. Nothing else is filled.
    #[serde(deserialize_with = "crate::meta::of_aaq")]
    pub metadata: ObjectMeta,
    /// The part of the specification that matters here.
    #[serde(default)]
    pub spec: AaqSpecWire,
    /// The status; `None` if it cannot be read.
    #[serde(default = "crate::stated::empty", deserialize_with = "crate::stated::readable")]
    pub status: Option<AaqStatus>,
}

/// The part of an `AAQ`'s specification that matters here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AaqSpecWire {
    /// `None` means the default label ([`sluice_api::names::TARGET_LABEL`]); empty means every namespace.
    pub namespace_selector: Option<LabelSelector>,
    /// How pods are counted, and which kinds of quota there are.
    #[serde(default)]
    pub configuration: Option<AaqConfigurationWire>,
    /// What servers accept, as it is written: what cannot be read must not make the object unreadable. Null for the default.
    #[serde(default)]
    pub tls_security_profile: Value,
    /// Names of the fields that do not matter here.
    #[serde(flatten)]
    pub others: BTreeMap<String, IgnoredAny>,
}

impl AaqSpecWire {
    /// Whether it has no field.
    #[must_use]
    pub fn asks_for_nothing(&self) -> bool {
        self.namespace_selector.is_none()
            && self.configuration.is_none()
            && self.tls_security_profile.is_null()
            && self.others.is_empty()
    }

    /// Whether there are quotas that span namespaces.
    #[must_use]
    pub fn cluster_quotas(&self) -> bool {
        self.configuration.as_ref().is_some_and(|configuration| {
            configuration.allow_application_aware_cluster_resource_quota == Some(true)
        })
    }

    /// Names of the programs that are to say what pods take.
    #[must_use]
    pub fn sidecars(&self) -> BTreeSet<String> {
        let sidecars = self.configuration.as_ref().and_then(|it| it.sidecar_evaluators.as_array());
        let name = |it: &Value| it.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        sidecars.into_iter().flatten().map(name).collect()
    }

    /// How virtual machines are counted. A name that is not known stands for [`Calculator::VmiPodUsage`], as in
    /// application-aware-quota; none for the default.
    #[must_use]
    pub fn calculator(&self) -> Calculator {
        let wire = self.configuration.as_ref().and_then(|it| it.vmi_calculator_configuration.as_ref());
        let names = wire.map(|wire| [&wire.vmi_calc_config_name, &wire.config_name]);
        let name = names.into_iter().flatten().flatten().find(|name| !name.is_empty());
        let Some(name) = name else { return Calculator::default() };
        match name.as_str() {
            "VirtualResources" => Calculator::VirtualResources,
            "DedicatedVirtualResources" => Calculator::DedicatedVirtualResources,
            "GuestEffectiveResources" => Calculator::GuestEffectiveResources,
            "IgnoreVmiCalculator" => Calculator::IgnoreVmiCalculator,
            _ => Calculator::VmiPodUsage,
        }
    }
}

/// The part of `spec.configuration` that matters here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AaqConfigurationWire {
    /// Whether there are quotas that span namespaces; absent means no.
    #[serde(default)]
    pub allow_application_aware_cluster_resource_quota: Option<bool>,
    /// How virtual machines are counted.
    #[serde(default)]
    pub vmi_calculator_configuration: Option<VmiCalculatorConfigurationWire>,
    /// Containers that say what pods take, as they are written.
    #[serde(default)]
    pub sidecar_evaluators: Value,
}

/// `spec.configuration.vmiCalculatorConfiguration`. Names are texts:
/// one that is not known must not make the object unreadable.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VmiCalculatorConfigurationWire {
    /// The name of the calculator. The API server fills in the default.
    #[serde(default)]
    pub config_name: Option<String>,
    /// The same field as the documentation of application-aware-quota spells it. It comes first, for it has no default.
    #[serde(default)]
    pub vmi_calc_config_name: Option<String>,
}

/// What is kept of an `AAQ`.
#[derive(Clone, Debug, PartialEq)]
pub struct Aaq {
    /// `spec.namespaceSelector`; `None` stands for the default label.
    pub selector: Option<LabelSelector>,
    /// Whether there are quotas that span namespaces.
    pub cluster_quotas: bool,
    /// How virtual machines are counted.
    pub calculator: Calculator,
    /// Names of the programs that are to say what pods take.
    pub sidecars: BTreeSet<String>,
    /// `spec.tlsSecurityProfile`, for [`sluice_api::TlsOffer::of`].
    pub tls_profile: Value,
    /// The operator has made it, and any other holds before it ([`sluice_api::is_placeholder`]).
    pub gives_way: bool,
    /// The annotations of a pause, for [`sluice_api::read_pause`].
    pub pause: Option<BTreeMap<String, String>>,
    /// What conditions are written from; `None` if the status cannot be read.
    pub stated: Option<Arc<Stated<AaqStatus>>>,
}

pub type AaqRecord = Record<Aaq>;

/// All `AAQ`s; the webhook lets in only one beside that of the operator.
#[derive(Debug, Default)]
pub struct Aaqs {
    store: Store<Aaq>,
}

impl Aaqs {
    /// The one that holds ([`sluice_api::holding`]); of equals the first by name.
    #[must_use]
    pub fn holding(&self) -> Option<&Arc<AaqRecord>> {
        holding(self.all(), |record| (record.gives_way, record.created))
    }

    /// All of them by name.
    #[must_use]
    pub fn all(&self) -> &[Arc<AaqRecord>] {
        self.store.in_namespace("")
    }
}

impl Indexed for Aaqs {
    type Wire = AaqWire;
    type Body = Aaq;

    fn store_mut(&mut self) -> &mut Store<Aaq> {
        &mut self.store
    }
    fn meta(wire: &AaqWire) -> &ObjectMeta {
        &wire.metadata
    }
    fn body(wire: &AaqWire) -> Aaq {
        Aaq {
            selector: wire.spec.namespace_selector.clone(),
            cluster_quotas: wire.spec.cluster_quotas(),
            calculator: wire.spec.calculator(),
            sidecars: wire.spec.sidecars(),
            tls_profile: wire.spec.tls_security_profile.clone(),
            gives_way: is_placeholder(
                wire.metadata.name.as_deref(),
                wire.metadata.labels.as_ref(),
                wire.spec.asks_for_nothing(),
            ),
            pause: wire.metadata.annotations.clone(),
            stated: Stated::of(&wire.metadata, wire.status.as_ref()),
        }
    }
    fn affects(_: &Key) -> Affected {
        Affected::Everywhere
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use serde_json::json;

    use super::*;
    use crate::store::Watched as _;

    fn aaq(name: &str, created: &str, status: &serde_json::Value) -> AaqWire {
        serde_json::from_value(json!({
            "metadata": { "name": name, "creationTimestamp": created },
            "spec": { "namespaceSelector": { "matchLabels": { "team": name } } },
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn the_oldest_aaq_counts() {
        let mut aaqs = Aaqs::default();
        assert!(aaqs.holding().is_none());
        for (name, created) in [("a", "2026-01-02T00:00:00Z"), ("b", "2026-01-01T00:00:00Z")] {
            aaqs.upsert(&aaq(name, created, &json!(null)));
        }
        let selector = aaqs.holding().unwrap().selector.clone().unwrap();
        assert_eq!(selector.match_labels.unwrap().get("team").map(String::as_str), Some("b"));
    }

    #[test]
    fn that_of_the_operator_gives_way_as_long_as_it_asks_for_nothing() {
        let read = |name: &str, created: &str, maker: &str, spec: &str| {
            let labels = format!(r#"{{"a": "b", "quota.sluice.dev/made-by": "{maker}"}}"#);
            let metadata =
                format!(r#"{{"name": "{name}", "creationTimestamp": "{created}", "labels": {labels}}}"#);
            serde_json::from_str::<AaqWire>(&format!(r#"{{"metadata": {metadata}, "spec": {spec}}}"#))
                .unwrap()
        };
        for (maker, spec, holds) in [
            ("operator", "{}", "young"),
            ("somebody", "{}", "aaq"),
            ("operator", r#"{"infra": {}}"#, "aaq"),
            ("operator", r#"{"namespaceSelector": {}}"#, "aaq"),
            ("operator", r#"{"configuration": {}}"#, "aaq"),
            ("operator", r#"{"tlsSecurityProfile": {"type": "Old"}}"#, "aaq"),
        ] {
            let mut aaqs = Aaqs::default();
            aaqs.upsert(&read("aaq", "2026-01-01T00:00:00Z", maker, spec));
            assert_eq!(&*aaqs.holding().unwrap().name, "aaq", "alone: {maker} {spec}");
            aaqs.upsert(&read("young", "2026-01-02T00:00:00Z", "", "{}"));
            assert_eq!(&*aaqs.holding().unwrap().name, holds, "{maker} {spec}");
        }
    }

    #[test]
    fn cluster_quotas_are_there_if_the_aaq_says_so() {
        for (configuration, there) in [
            (json!(null), false),
            (json!({}), false),
            (json!({ "allowApplicationAwareClusterResourceQuota": null }), false),
            (json!({ "allowApplicationAwareClusterResourceQuota": false }), false),
            (json!({ "allowApplicationAwareClusterResourceQuota": true, "sidecarEvaluators": [] }), true),
        ] {
            let object = json!({ "metadata": { "name": "a" }, "spec": { "configuration": configuration } });
            let mut aaqs = Aaqs::default();
            aaqs.upsert(&serde_json::from_value(object).unwrap());
            assert_eq!(aaqs.holding().unwrap().cluster_quotas, there, "{configuration}");
        }
    }

    #[test]
    fn virtual_machines_are_counted_as_either_spelling_says() {
        let dedicated = Calculator::DedicatedVirtualResources;
        for (configuration, expected) in [
            (json!(null), dedicated),
            (json!({}), dedicated),
            (json!({ "configName": "" }), dedicated),
            (json!({ "configName": "VirtualResources" }), Calculator::VirtualResources),
            (json!({ "configName": "IgnoreVmiCalculator" }), Calculator::IgnoreVmiCalculator),
            (json!({ "configName": "Guess" }), Calculator::VmiPodUsage),
            (json!({ "vmiCalcConfigName": "GuestEffectiveResources" }), Calculator::GuestEffectiveResources),
            (
                // The API server has filled in the other one.
                json!({ "configName": "DedicatedVirtualResources", "vmiCalcConfigName": "VmiPodUsage" }),
                Calculator::VmiPodUsage,
            ),
        ] {
            let spec = json!({ "configuration": { "vmiCalculatorConfiguration": configuration } });
            let mut aaqs = Aaqs::default();
            let object = json!({ "metadata": { "name": "a" }, "spec": spec });
            aaqs.upsert(&serde_json::from_value(object).unwrap());
            assert_eq!(aaqs.holding().unwrap().calculator, expected, "{spec}");
        }
    }

    #[test]
    fn whatever_the_tls_profile_is_the_object_is_read() {
        for profile in [json!(null), json!("x"), json!({ "type": "Modern" }), json!({ "custom": [1] })] {
            let object = json!({ "metadata": { "name": "a" }, "spec": { "tlsSecurityProfile": profile } });
            let mut aaqs = Aaqs::default();
            aaqs.upsert(&serde_json::from_value(object).unwrap());
            assert_eq!(aaqs.holding().unwrap().tls_profile, profile);
        }
    }

    #[test]
    fn a_status_that_cannot_be_read_is_none() {
        let stated = |status: serde_json::Value| {
            let mut aaqs = Aaqs::default();
            aaqs.upsert(&aaq("a", "2026-01-01T00:00:00Z", &status));
            aaqs.holding().unwrap().stated.clone()
        };
        assert_eq!(stated(json!(null)).unwrap().status, AaqStatus::default());
        assert_eq!(stated(json!({ "phase": "Deployed" })).unwrap().status.phase.as_deref(), Some("Deployed"));
        assert_eq!(stated(json!({ "conditions": [{ "type": 7 }] })), None);
    }
}
