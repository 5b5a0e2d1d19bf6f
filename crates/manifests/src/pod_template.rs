//! What the template of pods gets besides what Sluice gives it.

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use serde_json::{Value, json};
use sluice_api::names;

use crate::exact::Exact;
use crate::object::{set, set_in};
use crate::pod_options::PodOptions;

impl PodOptions {
    /// Sets what the template of the pods of a component gets besides, whose selector this is.
    pub(crate) fn set(&self, template: &mut Value, component: &str, selector: &Value) {
        for (key, value) in &self.labels {
            template.pointer_mut("/metadata/labels").into_iter().for_each(|all| set(all, key, json!(value)));
        }
        if !self.annotations.is_empty() {
            set_in(template, "metadata", "annotations", json!(self.annotations));
        }
        let Some(spec) = template.get_mut("spec") else { return };
        if self.affinity != Exact::default() {
            set(spec, "affinity", json!(self.affinity));
        }
        set(spec, "topologySpreadConstraints", self.spread(selector));
        if let Some(policy) = self.webhook_dns_policy.filter(|_| component == names::WEBHOOK) {
            set(spec, "dnsPolicy", json!(policy));
        }
        let (arguments, variables) = (self.extra_args.of(component), self.extra_env.of(component));
        let mut add = |list: &str, items: Vec<Value>| {
            let list = spec.pointer_mut(&format!("/containers/0/{list}")).and_then(Value::as_array_mut);
            list.into_iter().for_each(|list| list.extend(items.iter().cloned()));
        };
        add("args", arguments.iter().map(|argument| json!(argument)).collect());
        add("env", variables.iter().map(|variable| json!(variable)).collect());
    }

    fn spread(&self, selector: &Value) -> Value {
        let own = json!({ "matchLabels": selector });
        if self.topology_spread.is_empty() {
            return json!([{
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": own,
            }]);
        }
        let with_selector = |constraint: &Exact<TopologySpreadConstraint>| {
            let mut whole = json!(constraint);
            if constraint.0.label_selector.is_none() {
                set(&mut whole, "labelSelector", own.clone());
            }
            whole
        };
        self.topology_spread.iter().map(with_selector).collect()
    }
}
