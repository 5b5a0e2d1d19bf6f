//! Requests of commands that an administrator runs, and what is said of those that fail.

use std::time::Duration;

use kube::Api;
use kube::api::DynamicObject;
use sluice_runtime::backoff::{Backoff, process_seed};
use sluice_runtime::client::with_deadline;
use sluice_runtime::retry::{Failure, classify, words_and_causes};

/// Limit for one request.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// Requests at a time.
pub const CONCURRENT: usize = 16;
/// How often a request is sent that may succeed later: for about half a minute.
const TRIES: u32 = 8;

/// A request that failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// RBAC, or an admission webhook.
    #[error(
        "could not {verb} {object}: {}: grant this account the verb {verb} on {resource}, or run it as an \
         administrator of the cluster", words_and_causes(.source)
    )]
    Forbidden { verb: &'static str, object: String, resource: String, source: kube::Error },
    /// Anything else.
    #[error("could not {verb} {object}: {}: run it again, it goes on where it was", words_and_causes(.source))]
    Failed { verb: &'static str, object: String, source: kube::Error },
    /// Rights that are missing, before anything is written.
    #[error(
        "this account may not {0}: grant it that, or run it as an administrator of the cluster. Nothing was changed"
    )]
    Rights(String),
}

impl RequestError {
    /// Whether there is no such object.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Failed { source, .. } if classify(source) == Failure::NotFound)
    }
}

/// Makes an error of `verb` on `object`, which is of this resource.
pub fn failed(
    verb: &'static str,
    object: String,
    resource: String,
) -> impl FnOnce(kube::Error) -> RequestError {
    move |source| match classify(&source) {
        Failure::Forbidden => RequestError::Forbidden { verb, object, resource, source },
        _ => RequestError::Failed { verb, object, source },
    }
}

/// Sends the request again while that may help.
pub async fn patiently<T, F>(send: impl Fn() -> F) -> kube::Result<T>
where
    F: Future<Output = kube::Result<T>>,
{
    let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(10), process_seed());
    loop {
        match with_deadline(DEADLINE, send()).await {
            Err(error) if classify(&error).is_transient() && backoff.failures() + 1 < TRIES => {
                tokio::time::sleep(backoff.failed()).await;
            }
            answer => return answer,
        }
    }
}

/// The object of this name; none where its kind is not installed.
pub async fn find(api: &Api<DynamicObject>, name: &str) -> kube::Result<Option<DynamicObject>> {
    match patiently(|| api.get_opt(name)).await {
        Err(error) if classify(&error) == Failure::NotFound => Ok(None),
        answer => answer,
    }
}
