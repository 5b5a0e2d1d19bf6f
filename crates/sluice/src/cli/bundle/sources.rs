//! What is listed for a bundle, and which of it.

use serde_json::Value;
use sluice_api::names;
use sluice_manifests::uninstall::{Collection, Kind, PART_OF};
use sluice_manifests::{Naming, PartNames};

/// Where objects are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the cluster: the kind has no namespaces, or belongs to the platform.
    Cluster,
    /// In the namespace of the installation.
    Installation,
    /// In the namespaces of tenants that are asked for.
    Tenants,
}

/// A list.
pub struct Source {
    /// Path in the bundle, without `.yaml`.
    pub path: &'static str,
    /// What it is, for people.
    pub what: &'static str,
    pub kind: Kind,
    pub place: Place,
    /// Labels and fields that the API server selects by; empty: all.
    pub labels: String,
    pub fields: String,
    /// Which of the answer.
    pub takes: fn(&Value) -> bool,
}

impl Source {
    fn new(path: &'static str, what: &'static str, kind: Kind, place: Place) -> Self {
        Self { path, what, kind, place, labels: String::new(), fields: String::new(), takes: |_| true }
    }

    fn labelled(self, labels: impl Into<String>) -> Self {
        Self { labels: labels.into(), ..self }
    }

    fn with_fields(self, fields: impl Into<String>) -> Self {
        Self { fields: fields.into(), ..self }
    }

    fn taking(self, takes: fn(&Value) -> bool) -> Self {
        Self { takes, ..self }
    }
}

/// Sluice's own pods. They are listed first, for their logs are asked for.
pub fn own_pods() -> Source {
    let what = "Sluice's own pods";
    Source::new("installation/pods", what, Kind::new("v1", "Pod"), Place::Installation)
        .labelled(format!("{PART_OF}={}", names::APP))
}

/// All other lists, what is small and says most first: the bundle may become full.
pub fn sources() -> Vec<Source> {
    use Place::{Cluster, Installation, Tenants};
    let of = |path, what, collection: Collection, place| Source::new(path, what, collection.kind(), place);
    let kubevirt = |kind| Kind::new("kubevirt.io/v1", kind);
    let mtq = Kind::new(&format!("{}/{}", names::MTQ_GROUP, names::VERSION), "MTQ");
    let openshift = Collection::ManagedClusterQuotas;
    vec![
        of("configuration/aaqs", "AAQ, with its conditions", Collection::Aaqs, Cluster),
        Source::new("configuration/mtqs", "MTQ", mtq, Cluster),
        of("configuration/evaluators", "rules that say what pods take", Collection::Evaluators, Cluster),
        of("configuration/headroompolicies", "head-room of many namespaces", Collection::Policies, Cluster),
        Source::new(
            "configuration/kubevirts",
            "KubeVirt: configuration, conditions",
            kubevirt("KubeVirt"),
            Cluster,
        ),
        of("quotas/clusterquotas", "cluster quotas", Collection::ClusterQuotas, Cluster),
        of("quotas/quotas", "quotas", Collection::Quotas, Tenants),
        of("quotas/resourcequotas", "ResourceQuotas of Kubernetes", Collection::ManagedQuotas, Tenants),
        of("quotas/migrationquotas", "head-room of namespaces", Collection::Grants, Tenants),
        of("quotas/mirrors", "cluster quotas as namespaces see them", Collection::Mirrors, Tenants),
        of("quotas/charges", "charges of cluster quotas", Collection::Charges, Installation),
        of("quotas/jobqueueconfigs", "application-aware-quota's lock", Collection::JobQueues, Tenants),
        of(
            "quotas/clusterresourcequotas",
            "ClusterResourceQuotas of OpenShift that Sluice keeps",
            openshift,
            Cluster,
        )
        .labelled(openshift.selector()),
        event("events/by-controller", "events of controller and webhook", Tenants)
            .with_fields(format!("reportingComponent={}", names::EVENT_COMPONENT)),
        event("events/by-operator", "events of the operator", Tenants)
            .with_fields(format!("reportingComponent={}", names::OPERATOR)),
        event("events/about-sluice", "events about Sluice's own objects", Installation)
            .taking(is_about_sluice),
        Source::new("tenants/namespaces", "namespaces", Kind::new("v1", "Namespace"), Tenants),
        Source::new("tenants/held-pods", "pods that wait behind the gate", Kind::new("v1", "Pod"), Tenants)
            // Pods with gates have no node yet.
            .with_fields("status.phase=Pending")
            .taking(is_held),
        Source::new(
            "tenants/migrations",
            "live migrations",
            kubevirt("VirtualMachineInstanceMigration"),
            Tenants,
        ),
        Source::new("tenants/vmis", "virtual machines that run", kubevirt("VirtualMachineInstance"), Tenants),
    ]
}

fn event(path: &'static str, what: &'static str, place: Place) -> Source {
    Source::new(path, what, Kind::new("v1", "Event"), place)
}

fn is_held(pod: &Value) -> bool {
    let gates = pod.pointer("/spec/schedulingGates").and_then(Value::as_array);
    gates.into_iter().flatten().any(|gate| gate.get("name").is_some_and(|name| name == names::GATE))
}

/// The namespace of the installation may have pods of others.
fn is_about_sluice(event: &Value) -> bool {
    let name = event.pointer("/involvedObject/name").and_then(Value::as_str).unwrap_or_default();
    own_names().any(|own| name.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')))
}

fn own_names() -> impl Iterator<Item = &'static str> {
    let of = |naming: Naming| {
        let PartNames { controller, webhook, operator, .. } = naming.parts();
        [*controller, *webhook, *operator]
    };
    [Naming::Sluice, Naming::Aaq].into_iter().flat_map(of)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_manifests::uninstall::{definitions, inventory};

    use super::super::reduce::{Keep, keep};
    use super::*;

    #[test]
    fn no_secret_is_listed_and_no_configmap() {
        let kinds: Vec<String> =
            sources().into_iter().chain([own_pods()]).map(|source| source.kind.kind).collect();
        assert!(kinds.iter().all(|kind| kind != "Secret" && kind != "ConfigMap"), "{kinds:?}");
    }

    #[test]
    fn of_every_kind_of_an_installation_more_is_kept_than_its_name() {
        // Of these the name is all there is to tell.
        let by_name = ["Secret", "ServiceAccount", "ConfigMap"];
        let objects = inventory(names::INSTALL_NAMESPACE).into_iter().map(|part| part.object.kind.kind);
        let listed = sources().into_iter().map(|source| source.kind.kind);
        for kind in objects.chain(listed).filter(|kind| !by_name.contains(&kind.as_str())) {
            assert!(!matches!(keep(&kind), Keep::Identity), "{kind}");
        }
    }

    #[test]
    fn every_custom_resource_is_listed_but_for_questions() {
        let listed: Vec<String> = sources().into_iter().map(|source| source.kind.qualified()).collect();
        let asked = [names::GATE_PROBES, names::HEADROOM_PROBES, names::QUOTA_REVIEWS]
            .map(|name| format!("{name}.{}", names::OWN_GROUP));
        for definition in definitions().into_iter().filter(|definition| !asked.contains(&definition.name)) {
            assert!(listed.contains(&definition.name), "{} is in no list", definition.name);
        }
    }

    #[test]
    fn pods_are_taken_behind_our_gate_alone() {
        let pod = |gates: Value| json!({ "spec": { "schedulingGates": gates } });
        assert!(is_held(&pod(json!([{ "name": "other" }, { "name": names::GATE }]))));
        for gates in [json!([{ "name": "other" }]), json!([]), json!("x"), Value::Null] {
            assert!(!is_held(&pod(gates)));
        }
        assert!(!is_held(&Value::Null));
    }

    #[test]
    fn events_of_others_in_a_shared_namespace_stay_out() {
        let about = |name: &str| is_about_sluice(&json!({ "involvedObject": { "name": name } }));
        assert!(
            about("sluice-controller-5c48449c7-nk5vv") && about("sluice-operator") && about("aaq-server-x")
        );
        assert!(!about("web-1") && !about("sluice-controllers") && !about(""));
    }
}
