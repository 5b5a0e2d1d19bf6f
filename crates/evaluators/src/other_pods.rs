//! The pods of a namespace, as they go along with each question about one of them.

use bytes::{BufMut as _, Bytes, BytesMut};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};
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

impl OtherPods {
    /// The most that is sent of them, in bytes.
    pub const MOST: usize = MAX_REQUEST - ROOM_FOR_POD;

    /// Each is the JSON of a pod.
    #[must_use]
    pub fn of(pods: &[Bytes]) -> Self {
        let bytes = pods.iter().map(|pod| encoded(pod.len())).fold(0, usize::saturating_add);
        let mut buffer = BytesMut::with_capacity(bytes);
        for json in pods {
            let pod = Pod { pod_json: json.clone() };
            encode_key(PODS_STATE, WireType::LengthDelimited, &mut buffer);
            encode_varint(prost::Message::encoded_len(&pod) as u64, &mut buffer);
            buffer.put(prost::Message::encode_to_vec(&pod).as_slice());
        }
        Self(buffer.freeze())
    }

    /// These bytes, which [`Self::bytes`] gave.
    #[must_use]
    pub const fn from_bytes(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// The bytes, to be put behind those of the evaluated pod.
    #[must_use]
    pub const fn bytes(&self) -> &Bytes {
        &self.0
    }
}

/// The bytes of a pod of `json` bytes in the field.
fn encoded(json: usize) -> usize {
    let message = 1 + encoded_len_varint(json as u64) + json;
    1 + encoded_len_varint(message as u64) + message
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use prost::Message as _;
    use sluice_evaluator_sdk::protocol::{Pod, PodUsageRequest};

    use super::{OtherPods, encoded};

    #[test]
    fn the_bytes_are_those_of_the_message() {
        let pods = [Bytes::from_static(b"{}"), Bytes::from(vec![b' '; 300]), Bytes::new()];
        let message = PodUsageRequest {
            pod: None,
            pods_state: pods.iter().map(|pod| Pod { pod_json: pod.clone() }).collect(),
        };
        let others = OtherPods::of(&pods);
        assert_eq!(others.bytes(), &message.encode_to_vec());
        assert_eq!(
            others.bytes().len(),
            encoded(2) + encoded(300) + encoded(0) - 2,
            "an empty field is left out"
        );
        assert_eq!(OtherPods::default().bytes(), &[][..]);
    }
}
