//! The serving certificate by cert-manager: asks for it, and stores what comes where all processes look for it.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, Client};
use sluice_api::names;
use sluice_manifests::certificates::{Given, Made, TakeError, is_published, take};
use sluice_manifests::{IssuerRef, certificate};
use sluice_runtime::backoff::{Backoff, process_seed};
use sluice_runtime::client::with_deadline;

use super::apply::{DEADLINE, store};
use super::observe::{Secrets, Seen};
use super::pairs::{ca_pair, serving_pair, text};
use super::plan::known;
use super::{CertificateSettings, LONGEST_SLEEP, LoopError};

/// So long at most what is not valid yet is left alone: a clock may be put right.
const CLOCK_PUT_RIGHT: Duration = Duration::from_secs(30);

/// What to do in one round.
#[derive(Debug)]
pub(super) enum Round {
    /// Not everything was seen yet.
    Blind,
    /// Nothing was given yet.
    Missing,
    /// What was given is of no use.
    Refused(TakeError),
    /// Nothing to do until then.
    Rest(Option<Timestamp>),
    Store(Box<Made>),
}

pub(super) fn next_round(
    now: Timestamp,
    [ca, serving, given]: [&Seen<Secret>; 3],
    names: &[String],
    published: Option<Timestamp>,
) -> Round {
    let (Some(ca), Some(serving), Some(given)) = (known(ca), known(serving), known(given)) else {
        return Round::Blind;
    };
    let Some(given) = given else { return Round::Missing };
    let (ca, serving) = (ca.map(ca_pair), serving.map(serving_pair));
    match take(now, (ca.as_ref(), serving.as_ref()), &given_of(given), names, published) {
        Ok(taking) => taking.made.map_or(Round::Rest(taking.due), |made| Round::Store(Box::new(made))),
        Err(error) => Round::Refused(error),
    }
}

fn given_of(secret: &Secret) -> Given {
    Given {
        certificate: text(secret, names::TLS_CERT),
        key: text(secret, names::TLS_KEY),
        authority: text(secret, names::CA_BUNDLE),
    }
}

/// Since when API servers are told of the authority that is given, as far as this process knows: after a change of the
/// leader the wait begins anew.
fn published_since(
    before: Option<Timestamp>,
    now: Timestamp,
    ca: &Seen<Secret>,
    given: &Seen<Secret>,
) -> Option<Timestamp> {
    let (Seen::Present(ca), Seen::Present(given)) = (ca, given) else { return None };
    is_published(Some(&ca_pair(ca)), &given_of(given)).then(|| before.unwrap_or(now))
}

/// Asks for the certificate and stores what comes, until a watch ends.
pub(super) async fn keep(
    (client, api): (Client, &Api<Secret>),
    settings: &CertificateSettings,
    issuer: &IssuerRef,
    secrets: &Secrets,
    may_write: impl Fn() -> bool,
) -> Result<(), LoopError> {
    let [mut ca_seen, mut serving_seen, mut given_seen] = [secrets.ca(), secrets.serving(), secrets.given()];
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60), process_seed());
    let (mut published, mut asked) = (None, Timestamp::MIN);
    loop {
        let now = Timestamp::now();
        let [ca, serving, given] =
            [&mut ca_seen, &mut serving_seen, &mut given_seen].map(|seen| seen.borrow_and_update().clone());
        published = published_since(published, now, &ca, &given);
        let is_due = Duration::try_from(now.duration_since(asked)).is_ok_and(|age| age >= LONGEST_SLEEP);
        let may = || may_write().then_some(()).ok_or(LoopError::NotLeading { what: "certificates" });
        let mut wait = LONGEST_SLEEP;
        if is_due {
            may()?;
            match ask(&client, settings, issuer).await {
                Ok(()) => asked = now,
                Err(error) => {
                    tracing::warn!(%error, "certificate not asked for; trying again");
                    wait = backoff.failed();
                }
            }
        }
        match next_round(now, [&ca, &serving, &given], &settings.names, published) {
            Round::Blind => {}
            Round::Missing => tracing::info!(secret = names::GIVEN_SECRET, "waiting for cert-manager"),
            Round::Refused(error) => {
                wait = wait.min(refused_for(now, &error));
                tracing::warn!(secret = names::GIVEN_SECRET, %error, "certificate not taken over");
            }
            Round::Rest(due) => wait = wait.min(until(now, due)),
            Round::Store(made) => {
                may()?;
                let (mut ca, mut serving) = (present(ca), present(serving));
                let done = "taken over from cert-manager";
                match store(api, *made, (&mut ca, &mut serving), (settings.parts, done)).await {
                    Ok(()) => backoff.reset(),
                    Err(error) => {
                        error.report();
                        wait = wait.min(backoff.failed());
                    }
                }
            }
        }
        let gone = tokio::select! {
            changed = ca_seen.changed() => changed.is_err(),
            changed = serving_seen.changed() => changed.is_err(),
            changed = given_seen.changed() => changed.is_err(),
            () = tokio::time::sleep(wait) => false,
        };
        if gone {
            return Ok(());
        }
    }
}

/// How long what is of no use for this reason is left alone, if it does not change.
pub(super) fn refused_for(now: Timestamp, error: &TakeError) -> Duration {
    let TakeError::NotYet(from) = error else { return LONGEST_SLEEP };
    until(now, Some(*from)).min(CLOCK_PUT_RIGHT)
}

fn until(now: Timestamp, due: Option<Timestamp>) -> Duration {
    due.map_or(LONGEST_SLEEP, |due| Duration::try_from(due.duration_since(now)).unwrap_or_default())
        .max(Duration::from_secs(1))
}

fn present(seen: Seen<Secret>) -> Option<Secret> {
    match seen {
        Seen::Present(secret) => Some(secret),
        Seen::Unknown | Seen::Absent => None,
    }
}

/// Applies the `Certificate`. One that is as it should be is not changed by that.
async fn ask(client: &Client, settings: &CertificateSettings, issuer: &IssuerRef) -> kube::Result<()> {
    let kind = GroupVersionKind::gvk(names::CERT_MANAGER_GROUP, "v1", "Certificate");
    let resource = ApiResource::from_gvk_with_plural(&kind, names::CERTIFICATES);
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &settings.namespace, &resource);
    let wanted = certificate(&settings.namespace, issuer, &settings.names);
    let params = PatchParams::apply(names::OPERATOR).force();
    with_deadline(DEADLINE, api.patch(names::GIVEN_SECRET, &params, &Patch::Apply(&wanted))).await.map(drop)
}
