//! Has the evaluators that are about to be in force asked about pods, while others are in force.

use std::sync::Arc;

use sluice_engine::PodId;
use sluice_index::{Gates, Version};

use super::Accounts;
use super::evaluations::native_of;
use crate::action::Release;
use crate::cluster::Cluster;
use crate::evaluators::{AskNext, Content, EvaluatorsConfig, Failed, Said};

impl Accounts {
    /// These evaluators are about to be in force. Returns their number; `None`: pods are being read anew, so nobody can be
    /// asked about them before.
    pub fn expect_evaluators(&mut self, config: Arc<EvaluatorsConfig>) -> Option<u32> {
        self.evaluations.expect(config)
    }

    /// Pods are read by other rules from now on, or all of them were.
    pub fn read_pods_anew(&mut self, begins: bool) {
        self.evaluations.read_pods_anew(begins);
    }

    /// Whether these evaluators are about to be in force.
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

    /// Those of the next evaluators that were asked, by their number, say this of the pod in this version.
    pub fn say_for_next(&mut self, id: PodId, of: (Version, u32, u16), said: Result<Said, Failed>) {
        self.evaluations.say_for_next(id, of, said);
    }
}
