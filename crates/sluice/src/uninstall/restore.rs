//! Puts back ResourceQuotas that are raised for migrations.
//!
//! A process that stops ends its raises itself, so this finds what a crash has left. The policies that guard a raised quota
//! are in force still, and end with the time in its mark: until then they refuse this write too, which is waited for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::ListParams;
use kube::{Api, Client};
use sluice_headroom::protocol::{Left, sweep};
use sluice_headroom::{StatusWriter, Written, restore_patch};
use sluice_index::{ResourceQuotaRecord, ResourceQuotaWire};
use sluice_runtime::clock::ServerClock;
use sluice_runtime::metrics::ApiWrites;

use super::requests::PAGE;
use crate::progress::{Progress, Say};
use crate::requests::{RequestError, failed, patiently};

/// A mark ends within 16 s of its write. What is raised still after this is refused by something else.
const ENOUGH: Duration = Duration::from_secs(45);
const PAUSE: Duration = Duration::from_millis(300);

/// What became of them.
#[derive(Debug, Default)]
pub(super) struct Restored {
    /// So many were put back.
    pub(super) quotas: usize,
    /// These could not be, with the reason.
    pub(super) left: Vec<(String, String)>,
}

impl Restored {
    /// Why what guards raised quotas has to stay, and what comes after it, if some are raised still.
    pub(super) fn holds_up(&self) -> Option<String> {
        let (name, why) = self.left.first()?;
        let count = self.left.len();
        Some(format!("{count} quotas are raised still, and what guards them stays: {name}: {why}"))
    }
}

/// How many quotas have a mark.
pub(super) async fn marked(client: &Client) -> Result<usize, RequestError> {
    Ok(quotas(client).await?.iter().filter(|quota| quota.native().mark().is_some()).count())
}

async fn quotas(client: &Client) -> Result<Vec<ResourceQuotaRecord>, RequestError> {
    let quotas: Api<ResourceQuotaWire> = Api::all(client.clone());
    let mut all = Vec::new();
    let mut next = None::<String>;
    loop {
        let mut page = ListParams::default().limit(PAGE);
        page.continue_token = next;
        let list = patiently(|| quotas.list(&page)).await;
        let what = || "resourcequotas".to_owned();
        let list = list.map_err(failed("list", what(), what()))?;
        all.extend(list.items.iter().map(ResourceQuotaRecord::read));
        next = list.metadata.continue_.filter(|token| !token.is_empty());
        if next.is_none() {
            return Ok(all);
        }
    }
}

/// Puts back all of them. What was done stands in `restored` also after an error.
pub(super) async fn restore(
    (client, impersonating): (&Client, &Client),
    clock: &Arc<ServerClock>,
    say: Say,
    restored: &mut Restored,
) -> Result<(), RequestError> {
    let writer =
        StatusWriter::new(client.clone(), impersonating.clone(), Arc::clone(clock), ApiWrites::default());
    let (begin, mut progress) = (Instant::now(), Progress::begin(say));
    let mut known = BTreeMap::new();
    loop {
        let quotas = quotas(client).await?;
        restored.left.clear();
        for quota in quotas {
            let native = quota.native();
            let since = *known.entry(quota.uid.clone()).or_insert_with(Instant::now);
            let raised_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            let name = format!("{}/{}", quota.namespace, quota.name);
            match sweep(&native, clock.reckoned().as_millisecond(), raised_ms) {
                Left::Nothing => {
                    known.remove(&quota.uid);
                }
                Left::Later(_) => restored.left.push((name, "its mark has not ended".to_owned())),
                Left::Now(write) => {
                    let patch = restore_patch(&quota, &write);
                    match writer.write(&quota.namespace, &quota.name, &patch).await {
                        Written::Done(..) => restored.quotas += 1,
                        Written::Conflict => restored.left.push((name, "it changes".to_owned())),
                        Written::Unanswered(why) | Written::Refused(why) | Written::Failed(why) => {
                            restored.left.push((name, why.to_string()));
                        }
                    }
                }
            }
        }
        if restored.left.is_empty() || begin.elapsed() > ENOUGH {
            return Ok(());
        }
        progress.say(|| format!("waiting until {} raised quotas may be put back", restored.left.len()));
        tokio::time::sleep(PAUSE).await;
    }
}
