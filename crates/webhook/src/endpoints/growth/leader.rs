//! Growth of pods in the process that decides about it.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::{Growth, GrowthVerdict};
use crate::endpoints::AsyncEndpoint;
use crate::http::body::HeldBody;
use crate::review::{Review, Verdict};

/// Charges an update, or says why not.
pub type Judge = Box<dyn Fn(Growth) -> BoxFuture<'static, GrowthVerdict> + Send + Sync>;

/// The endpoint of the leader.
pub struct GrowthLeader(pub Judge);

impl AsyncEndpoint for GrowthLeader {
    fn decide(self: Arc<Self>, review: &Review<'_>, _body: &HeldBody) -> BoxFuture<'static, Verdict> {
        let growth = Growth::read(review);
        async move {
            match growth {
                Ok(growth) => self.0(growth).await.into(),
                Err(malformed) => malformed,
            }
        }
        .boxed()
    }
}
