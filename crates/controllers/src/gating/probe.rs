//! The dry runs, and what their answers say.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::PostParams;
use sluice_api::{GateProbe, GateProbeSpec, WebhookEntry, names};
use sluice_runtime::request::{Reply, objects, send};

/// Nothing waits for these answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// What becomes of new pods of targeted namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gates {
    /// Gated by the admission policy.
    Policy,
    Webhook,
    /// Refused, and what is said.
    Refused(Arc<str>),
    /// Let in without a gate.
    Nothing,
    /// Not known, and why.
    Unknown(Arc<str>),
}

/// Who refuses new pods that are not gated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastWord {
    /// The admission policy.
    Policy,
    /// The webhook, only those that name their node.
    Webhook,
    /// They are let in.
    Nothing,
    /// Not known, and why.
    Unknown(Arc<str>),
}

/// What was seen at an API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What becomes of new pods.
    pub gates: Gates,
    /// And of those that were not gated.
    pub last_word: LastWord,
}

/// Asks one API server.
pub async fn ask(client: &Client) -> Seen {
    let plain = create(client, GateProbeSpec::default()).await;
    // Such a pod is left without a gate, and has to be refused for it.
    let bound = GateProbeSpec { node_name: Some("none".to_owned()), ..GateProbeSpec::default() };
    let bound = create(client, bound).await;
    Seen {
        gates: plain.map_or_else(|error| Gates::Unknown(error.to_string().into()), |reply| gates(&reply)),
        last_word: bound
            .map_or_else(|error| LastWord::Unknown(error.to_string().into()), |reply| last_word(&reply)),
    }
}

async fn create(client: &Client, spec: GateProbeSpec) -> kube::Result<Reply> {
    let body =
        serde_json::to_vec(&GateProbe::new(names::PROBE_NAME, spec)).map_err(kube::Error::SerdeError)?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    send(client, objects::<GateProbe>(None).create(&dry_run, body), PATIENCE).await
}

fn gates(reply: &Reply) -> Gates {
    let probe = match reply.decode::<GateProbe>() {
        Ok(probe) => probe,
        Err(error) => {
            let said: Arc<str> = reply.status().message.into();
            let ours = [names::GATED_POLICY, WebhookEntry::GATER.name].iter().any(|name| said.contains(name));
            return match error {
                kube::Error::Api(_) if ours => Gates::Refused(said),
                kube::Error::Api(_) => Gates::Unknown(said),
                error => Gates::Unknown(error.to_string().into()),
            };
        }
    };
    let gated = probe.spec.scheduling_gates.iter().flatten().any(|gate| gate.name == names::GATE);
    let stamps = probe.metadata.annotations.unwrap_or_default();
    if !gated || !stamps.contains_key(names::CREATED_BY_ANNOTATION) {
        return Gates::Nothing;
    }
    match probe.spec.gated_by.as_deref() {
        Some(names::GATED_BY_WEBHOOK) => Gates::Webhook,
        _ => Gates::Policy,
    }
}

fn last_word(reply: &Reply) -> LastWord {
    if reply.is_success() {
        return LastWord::Nothing;
    }
    let said = reply.status().message;
    if reply.code == 403 && said.contains(&format!("'{}'", names::GATED_POLICY)) {
        LastWord::Policy
    } else if said.contains(WebhookEntry::BOUND.name) {
        LastWord::Webhook
    } else {
        LastWord::Unknown(said.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn reply(code: u16, body: &Value) -> Reply {
        Reply { code, date: None, body: body.to_string().into() }
    }

    fn refusal(code: u16, message: &str) -> Reply {
        reply(code, &json!({ "kind": "Status", "status": "Failure", "message": message, "code": code }))
    }

    fn probe(spec: &Value, stamped: bool) -> Reply {
        let annotations = if stamped { json!({ names::CREATED_BY_ANNOTATION: "us" }) } else { json!({}) };
        let object = json!({
            "apiVersion": "quota.sluice.dev/v1alpha1", "kind": "GateProbe",
            "metadata": { "name": "probe", "annotations": annotations }, "spec": spec,
        });
        reply(201, &object)
    }

    #[test]
    fn an_answer_says_who_gated() {
        let gate = json!([{ "name": "other" }, { "name": names::GATE }]);
        let by_policy = json!({ "schedulingGates": gate });
        let by_webhook = json!({ "schedulingGates": gate, "gatedBy": "webhook" });
        assert_eq!(gates(&probe(&by_policy, true)), Gates::Policy);
        assert_eq!(gates(&probe(&by_webhook, true)), Gates::Webhook);
        assert_eq!(gates(&probe(&by_policy, false)), Gates::Nothing);
        assert_eq!(gates(&probe(&json!({ "schedulingGates": [{ "name": "other" }] }), true)), Gates::Nothing);
    }

    #[test]
    fn a_refusal_says_whether_pods_are_refused_too() {
        for message in [
            "Internal error occurred: failed calling webhook \"gater.cqo.kubevirt.io\": connection refused",
            "gateprobes is forbidden: ValidatingAdmissionPolicy 'sluice-gated' with binding 'sluice-gated' denied request",
        ] {
            assert_eq!(gates(&refusal(500, message)), Gates::Refused(message.into()));
        }
        let unknown = "the server could not find the requested resource";
        assert_eq!(gates(&refusal(404, unknown)), Gates::Unknown(unknown.into()));
        assert!(matches!(gates(&reply(200, &json!("no probe"))), Gates::Unknown(_)));
    }

    #[test]
    fn who_refuses_what_cannot_be_gated() {
        let policy =
            "ValidatingAdmissionPolicy 'sluice-gated' with binding 'sluice-gated' denied request: pod sets";
        assert_eq!(last_word(&refusal(403, policy)), LastWord::Policy);
        let webhook = "admission webhook \"bound.pod.validator\" denied the request: pod sets";
        assert_eq!(last_word(&refusal(403, webhook)), LastWord::Webhook);
        assert_eq!(last_word(&probe(&json!({}), true)), LastWord::Nothing);
        assert_eq!(last_word(&refusal(404, "x")), LastWord::Unknown("x".into()));
    }
}
