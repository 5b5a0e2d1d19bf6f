//! The kinds that are read, narrowed to what matters here.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sluice_api::{
    AAQ, AaqStatus, Evaluator, MTQ, has_put_finalizer, is_placeholder, names, refused_of_evaluator,
    sidecar_of_evaluator,
};

use super::named::NamedSidecar;

/// An object of the kind `K` that the operator makes: what is compared is kept as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(bound = "")]
pub(super) struct OperandWire<K> {
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: Value,
    #[serde(default)]
    pub(super) status: Value,
    #[serde(skip)]
    kind: PhantomData<K>,
}

impl<K: Resource<DynamicType = ()>> Resource for OperandWire<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// A PriorityClass: its name is all that matters.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = PriorityClass)]
pub(super) struct PriorityClassWire {
    pub(super) metadata: ObjectMeta,
}

/// A CRD: whose it is.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = CustomResourceDefinition)]
pub(super) struct DefinitionWire {
    pub(super) metadata: ObjectMeta,
}

/// An `Evaluator`: the container that it names.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = Evaluator)]
pub(super) struct EvaluatorWire {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
}

impl EvaluatorWire {
    pub(super) fn sidecar(self) -> NamedSidecar {
        let Self { metadata, spec } = self;
        let name = metadata.name.unwrap_or_default();
        let refused = refused_of_evaluator(&name, &spec);
        let can_be_asked = !refused.iter().any(|it| it.field == "metadata.name");
        NamedSidecar {
            created: metadata.creation_timestamp.map_or(0, |time| time.0.as_second()),
            container: sidecar_of_evaluator(&name, &spec).filter(|_| can_be_asked),
            is_refused: !refused.is_empty(),
        }
    }
}

#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = AAQ)]
pub(super) struct AaqWire {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Value,
}

#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = MTQ)]
pub(super) struct MtqWire {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Value,
}

/// What `AAQ` and `MTQ` ask of an installation. What is copied to other objects is kept as it is written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    pub(super) cert_config: Value,
    pub(super) configuration: Value,
    pub(super) image_pull_policy: Option<String>,
    pub(super) infra: Value,
    pub(super) priority_class: Option<String>,
    pub(super) tls_security_profile: Value,
    pub(super) workload: Value,
    /// What matters to others, such as the selector.
    #[serde(flatten)]
    pub(super) others: Map<String, Value>,
}

impl Spec {
    /// The fields of which [`sluice_api::not_in_force`] tells, under their names.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "certConfig": self.cert_config,
            "configuration": self.configuration,
            "tlsSecurityProfile": self.tls_security_profile,
            "workload": self.workload,
        })
    }
}

/// An `AAQ` or `MTQ` as far as the plan reads it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Order {
    pub(super) name: String,
    pub(super) uid: String,
    /// The precondition of a write.
    pub(super) resource_version: String,
    /// Seconds since 1970.
    pub(super) created: i64,
    /// It is being deleted.
    pub(super) is_deleted: bool,
    /// Since when, in seconds since 1970.
    pub(super) deleted: i64,
    /// Those that it waits for then.
    pub(super) finalizers: Vec<String>,
    /// An operator of ours has put the one there by which an object of the kind waits, and not another operator.
    pub(super) is_held_by_us: bool,
    /// The annotations of a pause.
    pub(super) pause: BTreeMap<String, String>,
    /// An `AAQ` of the operator, before which any other holds.
    pub(super) gives_way: bool,
    pub(super) spec: Spec,
    /// `None` if it cannot be read: then nothing is said.
    pub(super) status: Option<AaqStatus>,
}

/// A kind that asks something of the installation.
pub(super) trait Orders {
    /// What it asks.
    fn order(self) -> Order;
}

impl Orders for AaqWire {
    fn order(self) -> Order {
        let Self { metadata, spec, status } = self;
        let asks_for_nothing = spec == Spec::default();
        let gives_way = is_placeholder(metadata.name.as_deref(), metadata.labels.as_ref(), asks_for_nothing);
        Order { gives_way, ..order(metadata, names::FINALIZER, spec, status) }
    }
}

impl Orders for MtqWire {
    fn order(self) -> Order {
        order(self.metadata, names::MTQ_FINALIZER, self.spec, self.status)
    }
}

/// Annotations of a pause.
const OF_PAUSE: [&str; 3] =
    [names::PAUSED_ANNOTATION, names::PAUSED_SINCE_ANNOTATION, names::PAUSE_RATE_ANNOTATION];

fn order(metadata: ObjectMeta, finalizer: &str, spec: Spec, status: Value) -> Order {
    let deleted = metadata.deletion_timestamp.as_ref().map(|time| time.0.as_second());
    let mut pause = metadata.annotations.unwrap_or_default();
    pause.retain(|name, _| OF_PAUSE.contains(&name.as_str()));
    Order {
        name: metadata.name.unwrap_or_default(),
        uid: metadata.uid.unwrap_or_default(),
        resource_version: metadata.resource_version.unwrap_or_default(),
        created: metadata.creation_timestamp.map_or(0, |time| time.0.as_second()),
        is_deleted: deleted.is_some(),
        deleted: deleted.unwrap_or_default(),
        is_held_by_us: has_put_finalizer(metadata.managed_fields.as_deref(), finalizer, names::OPERATOR),
        pause,
        finalizers: metadata.finalizers.unwrap_or_default(),
        gives_way: false,
        spec,
        status: if status.is_null() {
            Some(AaqStatus::default())
        } else {
            serde_json::from_value(status).ok()
        },
    }
}
