//! The pods of a namespace, as they go along with each question about one of them.

use bytes::{BufMut as _, Bytes, BytesMut};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sluice_evaluator_sdk::protocol::Pod;

/// Largest request that is sent, in bytes: grpc-go takes 4 MiB.
pub const MAX_REQUEST: usize = 3_900_000;

/// Room that is left for the evaluated pod; an object in etcd has at most 1.5 MiB, and hardly one has a tenth.
const ROOM_FOR_POD: usize = 256 << 10;

/// Field `podsState` of a request.
const PODS_STATE: u32 = 2;

/// The pods of a namespace, encoded once. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherPods(Bytes);

/// How the pods of a namespace fit in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Whole.
    Whole,
    /// Cut to what counting needs: names, labels, owners, resources, images, node and phase.
    Cut,
}

impl OtherPods {
    /// These pods as they are; each is the JSON of a [`sluice_index::PodView`].
    #[must_use]
    pub fn whole(pods: &[Bytes]) -> Self {
        let mut buffer = BytesMut::with_capacity(size(pods));
        for json in pods {
            let pod = Pod { pod_json: json.clone() };
            encode_key(PODS_STATE, WireType::LengthDelimited, &mut buffer);
            encode_varint(prost::Message::encoded_len(&pod) as u64, &mut buffer);
            buffer.put(prost::Message::encode_to_vec(&pod).as_slice());
        }
        Self(buffer.freeze())
    }

    /// These pods, whole or cut, so that a question with them can be sent.
    ///
    /// # Errors
    /// With their size in bytes, when they are too large even cut. They are never sent short.
    pub fn fitting(pods: &[Bytes]) -> Result<(Self, Fit), usize> {
        const MOST: usize = MAX_REQUEST - ROOM_FOR_POD;
        if size(pods) <= MOST {
            return Ok((Self::whole(pods), Fit::Whole));
        }
        let mut cut_pods = Vec::with_capacity(pods.len());
        let mut bytes = 0_usize;
        for pod in pods {
            let pod = cut(pod);
            bytes = bytes.saturating_add(encoded(pod.len()));
            cut_pods.push(pod);
        }
        if bytes > MOST { Err(bytes) } else { Ok((Self::whole(&cut_pods), Fit::Cut)) }
    }

    /// The bytes, to be put behind those of the evaluated pod.
    #[must_use]
    pub(crate) const fn bytes(&self) -> &Bytes {
        &self.0
    }
}

fn size(pods: &[Bytes]) -> usize {
    pods.iter().map(|pod| encoded(pod.len())).fold(0, usize::saturating_add)
}

/// The bytes of a pod of `json` bytes in the field.
fn encoded(json: usize) -> usize {
    let message = 1 + encoded_len_varint(json as u64) + json;
    1 + encoded_len_varint(message as u64) + message
}

/// What counting needs of a pod. A text that is no pod is left as it is.
fn cut(json: &Bytes) -> Bytes {
    let cut = serde_json::from_slice::<Cut<'_>>(json).and_then(|pod| serde_json::to_vec(&pod));
    cut.map_or_else(|_| json.clone(), Bytes::from)
}

macro_rules! kept {
    ($name:ident: $($field:ident),+; $($nested:ident: $of:ty),*) => {
        #[derive(Deserialize, Serialize)]
        #[serde(rename_all = "camelCase")]
        struct $name<'j> {
            $(#[serde(borrow, default, skip_serializing_if = "Option::is_none")] $field: Option<&'j RawValue>,)+
            $(#[serde(borrow, default, skip_serializing_if = "Option::is_none")] $nested: Option<$of>,)*
        }
    };
}

#[derive(Deserialize, Serialize)]
struct Cut<'j> {
    #[serde(borrow, default)]
    metadata: Option<Metadata<'j>>,
    #[serde(borrow, default)]
    spec: Option<Spec<'j>>,
    #[serde(borrow, default)]
    status: Option<Status<'j>>,
}

kept!(Metadata: name, namespace, uid, labels, owner_references, creation_timestamp, deletion_timestamp,
      deletion_grace_period_seconds;);
kept!(Spec: node_name, scheduling_gates, priority_class_name, runtime_class_name, overhead, resources,
      active_deadline_seconds; containers: Vec<Container<'j>>, init_containers: Vec<Container<'j>>);
kept!(Container: name, image, resources, restart_policy;);
kept!(Status: phase, qos_class;);

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use prost::Message as _;
    use sluice_evaluator_sdk::protocol::{Pod, PodUsageRequest};

    use super::{Fit, MAX_REQUEST, OtherPods};

    fn pod(n: usize, annotation: usize) -> Bytes {
        let annotation = "x".repeat(annotation);
        let text = serde_json::json!({
            "metadata": {"name": format!("pod-{n}"), "uid": "u", "labels": {"app": "a"}, "annotations": {"x": annotation}},
            "spec": {"nodeName": "n", "volumes": [], "containers": [
                {"name": "c", "image": "i", "env": [{"name": "E", "value": "v"}], "resources": {"limits": {"cpu": "1"}}},
            ]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready"}]},
        });
        text.to_string().into()
    }

    #[test]
    fn the_bytes_are_those_of_the_message() {
        let pods = [pod(1, 0), pod(2, 300), Bytes::new()];
        let message = PodUsageRequest {
            pod: None,
            pods_state: pods.iter().map(|pod| Pod { pod_json: pod.clone() }).collect(),
        };
        assert_eq!(OtherPods::whole(&pods).bytes(), &message.encode_to_vec());
        assert_eq!(OtherPods::default().bytes(), &[][..]);
    }

    #[test]
    fn a_namespace_is_whole_or_cut_or_refused() {
        let fit = |count: usize| {
            let pods: Vec<Bytes> = (0..count).map(|n| pod(n, 3_000)).collect();
            OtherPods::fitting(&pods).map(|(others, fit)| {
                assert!(others.bytes().len() <= MAX_REQUEST);
                let sent = PodUsageRequest::decode(others.bytes().clone()).expect("a message");
                assert_eq!(sent.pods_state.len(), count, "never short");
                fit
            })
        };
        assert_eq!(fit(100), Ok(Fit::Whole));
        assert_eq!(fit(1_000), Ok(Fit::Whole));
        assert_eq!(fit(5_000), Ok(Fit::Cut));
        assert!(fit(40_000).is_err_and(|bytes| bytes > MAX_REQUEST));
    }

    #[test]
    fn cutting_leaves_what_counts() {
        let cut = super::cut(&pod(7, 10));
        let expected = serde_json::json!({
            "metadata": {"name": "pod-7", "uid": "u", "labels": {"app": "a"}},
            "spec": {"nodeName": "n", "containers": [
                {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}},
            ]},
            "status": {"phase": "Running"},
        });
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&cut).expect("JSON"), expected);
        assert_eq!(super::cut(&Bytes::from_static(b"[")), "[");
    }
}
