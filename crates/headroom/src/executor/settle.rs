//! Whether every API server knows of a raise, and whose fault it is when one does not.

use std::pin::pin;

use futures::future::{Either, select};
use sluice_runtime::api_servers::ApiServer;
use tokio::time::timeout;

use super::{Executor, SETTLE_TIME, unproven};
use crate::protocol::{Done, Ending, WindowSession};

impl Executor<'_> {
    /// Waits until every API server knows of the raises of this session.
    pub(super) async fn settle(&self, session: &WindowSession, mark: i64) -> Done {
        let tools = self.tools;
        let marked: Vec<_> =
            session.raised().iter().filter_map(|quota| self.records.get(&quota.name)).collect();
        let plain = matches!(&marked[..], [only] if only.native().scopes.is_empty());
        let mut know = pin!(tools.probes.know(self.target.namespace(), mark, plain, SETTLE_TIME));
        let known = match timeout(SETTLE_TIME / 2, &mut know).await {
            // An API server that has answered is there.
            Ok(known) => known.map_err(|unknown| (unknown, true)),
            Err(_) => self.settle_slowly(know).await,
        };
        if let Err(((server, why), is_prompt)) = known {
            let said = format!("API server {} does not know of the raise: {why}", server.name);
            if is_prompt {
                return Done::Ended(Ending::Unsettled(said.into()));
            }
            tools.proofs.doubt(&server, &why);
            return unproven(said);
        }
        if let Some(at) = self.raised_at {
            tools.metrics.settled(at.elapsed());
        }
        Done::Settled
    }

    /// Quota admission has one queue for each namespace, which its tenant can keep busy; that must concern no other
    /// namespace. So the API servers are asked for a proof, which is about another queue, beside.
    /// An error tells whether the API server answered it in time.
    async fn settle_slowly<E>(
        &self,
        know: impl Future<Output = Result<(), (ApiServer, E)>> + Unpin,
    ) -> Result<(), ((ApiServer, E), bool)> {
        let mut prompt = pin!(self.tools.probes.prompt(SETTLE_TIME / 2));
        let (known, prompt) = match select(know, &mut prompt).await {
            Either::Left((Ok(()), _)) => return Ok(()),
            Either::Left((unknown, _)) => (unknown, prompt.await),
            Either::Right((prompt, know)) => (know.await, prompt),
        };
        known.map_err(|unknown| {
            let is_prompt = prompt.contains(&unknown.0.name);
            (unknown, is_prompt)
        })
    }
}

#[cfg(test)]
mod tests;
