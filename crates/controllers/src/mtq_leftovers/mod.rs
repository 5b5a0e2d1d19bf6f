//! What a managed-tenant-quota that crashed left behind (`docs/predecessors.md`, *Leftovers of MTQ*): read, planned,
//! printed. Nothing is written.

mod plan;
mod print;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::time::Duration;

use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use sluice_runtime::client::with_deadline;
use sluice_runtime::retry::words_and_causes;

pub use plan::{Leftover, Leftovers};
use plan::{Seen, plan};

const DEADLINE: Duration = Duration::from_secs(30);
/// Label of the locks, with its value.
const LOCKS: &str = "mtq-lock-server=mtq-lock-server";

/// Why there is no list.
#[derive(Debug, thiserror::Error)]
#[error("could not list {kind}: {}", words_and_causes(.source))]
pub struct Error {
    kind: String,
    source: kube::Error,
}

/// Lists what is left in all namespaces.
///
/// # Errors
/// When one of the kinds cannot be listed.
pub async fn list(client: &Client) -> Result<Leftovers, Error> {
    let all = ListParams::default();
    Ok(plan(&Seen {
        locks: read(client, &all.clone().labels(LOCKS)).await?,
        records: read(client, &all).await?,
        quotas: read(client, &all).await?,
    }))
}

async fn read<K>(client: &Client, which: &ListParams) -> Result<Vec<K>, Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    match with_deadline(DEADLINE, Api::<K>::all(client.clone()).list(which)).await {
        Ok(list) => Ok(list.items),
        // A kind that does not exist has no objects.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(source) => Err(Error { kind: K::plural(&()).into_owned(), source }),
    }
}
