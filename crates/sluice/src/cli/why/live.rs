//! The answer of the controller that leads: a QuotaReview, created in a dry run and answered at admission.

use std::time::Duration;

use kube::Api;
use kube::api::PostParams;
use serde_json::Value;
use sluice_api::{QuotaReview, QuotaReviewSpec, QuotaReviewStatus, names};
use sluice_runtime::client::{DeadlineExceeded, with_deadline};
use sluice_runtime::retry::{Failure, classify};
use tokio::time::Instant;

use super::Kind;
use super::say::{Said, Source};
use crate::cli::cluster::Connection;
use crate::cli::printed::Exit;

/// So long the leader may take: lists are read in that time too.
const PATIENCE: Duration = Duration::from_secs(1);
/// A QuotaReview that comes back without a status.
const NOT_REACHED: &str = "the leader did not answer (the webhook was not reached, or is not asked here)";
/// Begins the names that the API server makes. No object has one of them for longer than the request lasts.
const NAME: &str = "why-";

/// What the leader says, and how long it took to ask.
pub(super) struct Live {
    status: QuotaReviewStatus,
    took: Duration,
}

/// Asks, if it is something that a leader answers. `Err`: why there is no answer, if that is to be told.
///
/// # Errors
/// When the API server cannot be reached.
pub(super) async fn ask(
    connection: &Connection,
    kind: Kind,
    name: &str,
) -> anyhow::Result<Result<Live, Option<String>>> {
    let Some(spec) = spec(kind, name) else { return Ok(Err(None)) };
    // Whatever has to be done to be let in at all is done with this request, and takes nothing of the leader's time.
    connection.version().await?;
    let api: Api<QuotaReview> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let mut review = QuotaReview::new("", spec);
    review.metadata.name = None;
    review.metadata.generate_name = Some(NAME.to_owned());
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let begin = Instant::now();
    let patience = PATIENCE.min(connection.deadline);
    let answer = with_deadline(patience, api.create(&dry_run, &review)).await;
    Ok(match answer.map(|review| review.status) {
        Ok(Some(status)) if status.not_found => {
            Err(Some(format!("the leader knows no such object in namespace {}", connection.namespace)))
        }
        Ok(Some(status)) => Ok(Live { status, took: begin.elapsed() }),
        Ok(None) => Err(Some(NOT_REACHED.to_owned())),
        Err(error) => Err(Some(why_not(&error, &connection.namespace, patience))),
    })
}

fn spec(kind: Kind, name: &str) -> Option<QuotaReviewSpec> {
    let (name, mut spec) = (Some(name.to_owned()), QuotaReviewSpec::default());
    match kind {
        Kind::Pod => spec.pod = name,
        Kind::Quota => spec.quota = name,
        Kind::ClusterQuota => spec.cluster_quota = name,
        Kind::Vm | Kind::Vmi => spec.virtual_machine = name,
        Kind::Migration | Kind::Workload(..) => return None,
    }
    Some(spec)
}

fn why_not(error: &kube::Error, namespace: &str, patience: Duration) -> String {
    let resource = format!("{}.{}", names::QUOTA_REVIEWS, names::OWN_GROUP);
    let told = match error {
        kube::Error::Api(status) => status.message.as_str(),
        _ => "",
    };
    match classify(error) {
        // An object that is not there has a name: the namespace.
        Failure::NotFound if told.contains(" \"") => told.to_owned(),
        Failure::NotFound => format!("the cluster has no {resource}: an older version of Sluice, or none"),
        Failure::Forbidden | Failure::Invalid if !is_of_authorizer(told) => told.to_owned(),
        Failure::Forbidden => {
            format!("the leader may not be asked: missing right create {resource} in namespace {namespace}")
        }
        Failure::Throttled { .. } => "the leader is asked too often".to_owned(),
        Failure::Unknown if is_late(error) => format!("the leader did not answer within {patience:?}"),
        Failure::Unknown => "the leader's answer was lost".to_owned(),
        failure => format!("the leader did not answer ({})", failure.code()),
    }
}

/// Whether a refusal is about the account's rights (`apiserver/pkg/endpoints/handlers/responsewriters/errors.go`).
fn is_of_authorizer(told: &str) -> bool {
    told.contains("User \"") && told.contains("\" cannot ")
}

fn is_late(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Service(why) if why.is::<DeadlineExceeded>())
}

impl Live {
    /// As it is printed.
    pub(super) fn said(&self) -> Said {
        let status = &self.status;
        Said {
            source: Source::Leader {
                name: status.source.leader.clone(),
                time: status.source.time.as_ref().map(|time| time.0),
                took: self.took,
            },
            text: status.text.clone(),
            summary: status.summary.clone(),
            explanations: status.explanations.iter().cloned().map(Value::Object).collect(),
            headroom: None,
            missing: Vec::new(),
            is_known: true,
            assumed: Vec::new(),
            unknown: None,
        }
    }

    /// How the command ends.
    pub(super) const fn exit(&self) -> Exit {
        if self.status.held { Exit::Held } else { Exit::Good }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kube::core::Status;

    use super::*;

    #[test]
    fn a_refusal_is_a_missing_right_only_where_it_says_so() {
        let said = |code, message: &str| {
            let status = Status { code, message: message.to_owned(), ..Status::default() };
            why_not(&kube::Error::Api(Box::new(status)), "team", Duration::from_secs(1))
        };
        let forbidden = "quotareviews.quota.sluice.dev is forbidden: User \"jane\" cannot create resource";
        assert!(said(403, forbidden).contains("missing right create"));
        let denied = "admission webhook \"others.example\" denied the request: not today";
        assert_eq!(said(403, denied), denied);
        let long =
            "admission webhook \"explain.quota.sluice.dev\" denied the request: 6,000 pods are too many";
        assert_eq!(said(422, long), long);
        assert_eq!(said(404, "namespaces \"taem\" not found"), "namespaces \"taem\" not found");
        let absent = said(404, "the server could not find the requested resource");
        assert!(absent.contains("an older version of Sluice"), "{absent}");
    }
}
