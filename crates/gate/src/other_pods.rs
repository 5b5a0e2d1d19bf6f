//! The other pods of a namespace, which are sent to evaluators along with each question: read once for each round.

use std::collections::HashMap;
use std::fmt;

use bytes::Bytes;
use sluice_engine::Uid;
use sluice_index::{PodView, ViewKey, cut_to_what_counts};

/// The form in which the pods of a namespace are sent along with a question.
#[derive(Clone, Copy, Debug)]
pub struct OtherPodsForm {
    /// The most that can be sent of them, in bytes of their JSON.
    pub most_bytes: usize,
    /// Makes one text of the JSON of each.
    pub encode: fn(&[Bytes]) -> Bytes,
}

/// How much is kept of what is sent of pods when they are asked about (bytes).
const MOST_OWN_BYTES: usize = 4 << 20;

/// What a pod takes beside its JSON where the pods of a namespace are encoded (bytes).
const AROUND_A_POD: usize = 16;

/// The pods of a namespace by one state of it.
#[derive(Default)]
pub struct NamespacePods {
    /// All of them, encoded.
    pub encoded: Bytes,
    /// How they are sent.
    pub fit: Fit,
    /// What is sent of a pod that is asked about itself, with its hash. Not of all where they are many.
    own: HashMap<Uid, (u64, Bytes)>,
}

/// How the pods of a namespace fit in a question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fit {
    #[default]
    Whole,
    /// Cut to what counting needs.
    Cut,
}

impl fmt::Debug for NamespacePods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, {:?}", self.encoded.len(), self.fit)
    }
}

impl NamespacePods {
    /// What is sent of the pod when it is asked about, if it has this content.
    pub fn own(&self, pod: &Uid, hash: u64) -> Option<Bytes> {
        let (known, json) = self.own.get(pod)?;
        (*known == hash).then(|| json.clone())
    }
}

/// The pods are too many to be sent, even cut. They are never sent short.
#[derive(Debug, PartialEq, Eq)]
pub struct TooMany;

/// Pods of a namespace, while they are read.
pub struct Gathering {
    form: OtherPodsForm,
    pods: Vec<Bytes>,
    bytes: usize,
    fit: Fit,
    own: HashMap<Uid, (u64, Bytes)>,
    own_bytes: usize,
}

impl Gathering {
    pub fn new(form: OtherPodsForm) -> Self {
        Self { form, pods: Vec::new(), bytes: 0, fit: Fit::Whole, own: HashMap::new(), own_bytes: 0 }
    }

    /// One more pod.
    ///
    /// # Errors
    /// When all that are there by now are too many.
    pub fn add(&mut self, view: PodView) -> Result<(), TooMany> {
        let with_gates = view.json_with_gates();
        let PodView { json, hash, uid, .. } = view;
        let (own, is_gated) = (Bytes::from(json), with_gates.is_some());
        let pod = with_gates.map_or_else(|| own.clone(), Bytes::from);
        // Those that wait are asked about in each round.
        let most = if is_gated { MOST_OWN_BYTES } else { MOST_OWN_BYTES / 2 };
        if self.own_bytes + own.len() <= most {
            self.own_bytes += own.len();
            self.own.insert(Uid::parse(&uid), (hash, own));
        }
        self.push(pod);
        if self.bytes > self.form.most_bytes && self.fit == Fit::Whole {
            self.fit = Fit::Cut;
            self.bytes = 0;
            for pod in std::mem::take(&mut self.pods) {
                self.push(pod);
            }
        }
        if self.bytes > self.form.most_bytes { Err(TooMany) } else { Ok(()) }
    }

    fn push(&mut self, pod: Bytes) {
        let pod = match self.fit {
            Fit::Whole => pod,
            Fit::Cut => cut_to_what_counts(&pod).into(),
        };
        self.bytes = self.bytes.saturating_add(pod.len() + AROUND_A_POD);
        self.pods.push(pod);
    }

    /// These are all.
    pub fn finish(self) -> NamespacePods {
        NamespacePods { encoded: (self.form.encode)(&self.pods), fit: self.fit, own: self.own }
    }
}

/// Reads pods in their API servers' JSON, as they come in pages.
pub fn add_page(
    gathering: &mut Gathering,
    key: &ViewKey,
    pods: &[Box<serde_json::value::RawValue>],
) -> Result<(), TooMany> {
    for text in pods {
        // What is no pod cannot be read by an evaluator either.
        if let Ok(view) = key.view(text.get()) {
            gathering.add(view)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

    use serde_json::json;

    use super::*;

    /// So many pods of a namespace, each with an annotation of so many bytes.
    fn gathered(pods: usize, annotation: usize) -> Result<NamespacePods, TooMany> {
        fn joined(pods: &[Bytes]) -> Bytes {
            pods.iter().flat_map(|pod| [&b"\n"[..], pod]).flatten().copied().collect()
        }
        let mut gathering = Gathering::new(OtherPodsForm { most_bytes: 3_600_000, encode: joined });
        for n in 0..pods {
            let pod = json!({
                "metadata": {"name": format!("pod-{n}"), "uid": format!("u-{n}"),
                             "annotations": {"x": "x".repeat(annotation)}},
                "spec": {"schedulingGates": [{"name": "g"}], "containers": [{"name": "c", "image": "i"}]},
            });
            let page = [serde_json::value::to_raw_value(&pod).unwrap()];
            add_page(&mut gathering, &ViewKey::default(), &page)?;
        }
        Ok(gathering.finish())
    }

    #[test]
    fn a_namespace_is_sent_whole_or_cut_or_not_at_all_and_never_short() {
        for (pods, fit) in [(100, Fit::Whole), (1_000, Fit::Whole), (5_000, Fit::Cut), (20_000, Fit::Cut)] {
            let gathered = gathered(pods, 3_000).unwrap();
            let sent = std::str::from_utf8(&gathered.encoded).unwrap();
            assert_eq!((gathered.fit, sent.lines().skip(1).count()), (fit, pods));
            assert!(
                gathered.encoded.len() <= 3_600_000
                    && sent.lines().skip(1).all(|pod| pod.contains("schedulingGates"))
            );
        }
        assert_eq!(gathered(40_000, 3_000).unwrap_err(), TooMany);
    }

    #[test]
    fn a_pod_that_is_asked_about_is_sent_without_gates_if_it_is_as_it_was() {
        let gathered = gathered(3, 10).unwrap();
        let (hash, json) = gathered.own[&Uid::parse("u-1")].clone();
        assert!(
            !json.starts_with(b"schedulingGates") && !std::str::from_utf8(&json).unwrap().contains("Gates")
        );
        assert_eq!(gathered.own(&Uid::parse("u-1"), hash), Some(json));
        assert_eq!(gathered.own(&Uid::parse("u-1"), hash ^ 1), None);
    }
}
