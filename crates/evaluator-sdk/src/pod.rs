//! Pods as they are handed to an evaluator.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use k8s_openapi::api::core::v1;
use sluice_engine::Charge;

use crate::{Error, native};

/// A pod. It is read when it is first looked at.
#[derive(Debug)]
pub struct Pod {
    json: Bytes,
    object: OnceLock<Result<v1::Pod, String>>,
}

impl Pod {
    /// A pod of its JSON.
    #[must_use]
    pub const fn new(json: Bytes) -> Self {
        Self { json, object: OnceLock::new() }
    }

    /// The API server's own text, with fields that this library does not know.
    #[must_use]
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    /// The pod.
    ///
    /// # Errors
    /// When the text is not a pod.
    pub fn object(&self) -> Result<&v1::Pod, Error> {
        let read = || serde_json::from_slice(&self.json).map_err(|error| error.to_string());
        match self.object.get_or_init(read) {
            Ok(pod) => Ok(pod),
            Err(error) => Err(Error::new(format!("reading the pod: {error}"))),
        }
    }

    /// What Kubernetes counts for the pod.
    ///
    /// # Errors
    /// When the text is not a pod, or one of its amounts is not a quantity.
    pub fn native(&self) -> Result<Charge, Error> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        native::charge(self.object()?, i64::try_from(now).unwrap_or(i64::MAX))
    }
}

/// The pods of the evaluated pod's namespace, itself included, finished ones as well; none where the evaluator is
/// configured to get none. In a large namespace they have only what counting needs.
#[derive(Debug, Default)]
pub struct OtherPods(Vec<Pod>);

impl OtherPods {
    pub(crate) fn new(pods: impl IntoIterator<Item = Bytes>) -> Self {
        Self(pods.into_iter().map(Pod::new).collect())
    }

    /// All of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Pod> {
        self.0.iter()
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'o> IntoIterator for &'o OtherPods {
    type Item = &'o Pod;
    type IntoIter = std::slice::Iter<'o, Pod>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
