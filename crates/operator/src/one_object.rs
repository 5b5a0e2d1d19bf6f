//! Keeps one object that others look for by its name.

use std::fmt::Debug;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_api::names;
use sluice_runtime::backoff::{Backoff, process_seed};
use sluice_runtime::client::with_deadline;
use tokio::sync::watch;

use crate::certificates::LoopError;
use crate::certificates::observe::Seen;

const DEADLINE: Duration = Duration::from_secs(10);

/// Applies what is `wanted` of the object, by what it rests on and how the object is, until nothing is seen any more.
/// `may_write` is asked before each write.
pub(crate) async fn keep_one<T, K>(
    api: &Api<K>,
    name: &str,
    (mut rests_on, mut is): (watch::Receiver<T>, watch::Receiver<Seen<K>>),
    wanted: impl Fn(&T, &Seen<K>) -> Option<Value>,
    may_write: impl Fn() -> bool,
) -> Result<(), LoopError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60), process_seed());
    loop {
        let body = wanted(&rests_on.borrow_and_update(), &is.borrow_and_update());
        let mut wait = None;
        if let Some(body) = body {
            if !may_write() {
                return Err(LoopError::NotLeading { what: "what others look for" });
            }
            let params = PatchParams::apply(names::OPERATOR).force();
            match with_deadline(DEADLINE, api.patch(name, &params, &Patch::Apply(&body))).await {
                Ok(_) => backoff.reset(),
                Err(error) => {
                    tracing::warn!(kind = %K::kind(&()), name, %error, "not written; trying again");
                    wait = Some(backoff.failed());
                }
            }
        }
        let timer = async {
            match wait {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        let gone = tokio::select! {
            changed = rests_on.changed() => changed.is_err(),
            changed = is.changed() => changed.is_err(),
            () = timer => false,
        };
        if gone {
            return Ok(());
        }
    }
}
