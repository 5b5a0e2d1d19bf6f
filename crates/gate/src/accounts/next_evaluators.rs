//! Asks the next evaluators about pods, while the evaluators of before are in force.

use std::sync::Arc;

use sluice_engine::PodId;
use sluice_index::{Gates, Version};

use super::Accounts;
use super::evaluations::native_of;
use crate::action::Release;
use crate::cluster::Cluster;
use crate::evaluators::{AskNext, Content, EvaluatorsConfig, Failed, Said};

impl Accounts {
    /// Makes these the next evaluators. Returns their number, or `None` while the gate reads pods
    /// [anew](Self::read_pods_anew).
    pub fn expect_evaluators(&mut self, config: Arc<EvaluatorsConfig>) -> Option<u32> {
        self.evaluations.expect(config)
    }

    /// The gate begins or ends to read all pods by other rules of Kubernetes. Meanwhile it prepares no evaluators.
    pub fn read_pods_anew(&mut self, begins: bool) {
        self.evaluations.read_pods_anew(begins);
    }

    /// Whether these are the next evaluators.
    pub fn expects(&self, config: &Arc<EvaluatorsConfig>) -> bool {
        self.evaluations.expects(config)
    }

    /// The pod has this content in this version. Returns the question about it to the next evaluators, if there is one.
    pub fn see_for_next(
        &mut self,
        cluster: &Cluster,
        id: PodId,
        version: Version,
        content: Content,
    ) -> Option<AskNext> {
        // Of a later version the watch tells in a moment; an earlier one is over.
        let record = cluster.pods.get(id).filter(|record| record.version == version)?;
        let config = self.evaluations.next_config(content.revision)?;
        let namespace = cluster.namespaces.get(record.namespace)?;
        let may_be = content.selected_by != 0 && self.may_be_evaluated(cluster, id, record);
        let in_namespace = || config.selecting_namespace(|selector| namespace.is_selected(selector));
        let selected = if may_be { content.selected_by & in_namespace() } else { 0 };
        self.evaluations.see_for_next(id, version, content, selected);
        if selected == 0 {
            return None;
        }
        let Release { namespace, uid, .. } = cluster.address(id)?;
        let counted = Arc::clone(&record.charge);
        let is_waiting = record.gates != Gates::None;
        let native = native_of(cluster, record);
        Some(AskNext { pod: id, namespace, uid, is_waiting, native, counted, selected })
    }

    /// Stores the answer of the next evaluators about the pod. `of`: its version, their number, and which of them were
    /// asked.
    pub fn say_for_next(&mut self, id: PodId, of: (Version, u32, u16), said: Result<Said, Failed>) {
        self.evaluations.say_for_next(id, of, said);
    }
}
