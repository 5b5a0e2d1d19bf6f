//! QuotaReviews: why something waits (`docs/why.md`, `docs/protocols.md`, *Answered at admission*).
//!
//! The leading controller answers ([`ExplainLeader`]). The webhook hands it each review as it is and puts its answer into
//! the object ([`ExplainRelay`]). Whatever keeps it from answering is a refusal that says so. Both bound how many they take
//! in a second.

mod rate;
mod relay;

pub use rate::Rate;
pub use relay::ExplainRelay;

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use serde::Deserialize;
use serde_json::Value;
use sluice_api::{QuotaReviewSpec, QuotaReviewStatus, names};

use super::AsyncEndpoint;
use crate::http::body::HeldBody;
use crate::review::{Operation, PatchOp, Review, Verdict};
use crate::settings::Settings;

/// The longest review, and the longest answer, in bytes.
const LONGEST: usize = 64 * 1024;
/// The longest name of an object.
const LONGEST_NAME: usize = 253;
/// After so many seconds there is a turn again.
const RETRY_AFTER_S: u32 = 1;
/// The code of a review whose answer would be too much. It is no 403: rights are not what is missing.
const TOO_MUCH: u16 = 422;
/// Where the answer is put.
const STATUS: &str = "/status";

const STORED: &str = "a QuotaReview is answered and never stored: create it in a dry run (dryRun=All; with kubectl \
    --dry-run=server -o yaml)";
const TOO_OFTEN: &str = "more QuotaReviews are asked for than are answered in a second: try again in a second, or ask \
    sluice why --recompute, which needs no leader";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub namespace: String,
    /// About what.
    pub about: About,
}

/// The kind and the name of what is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    Pod(String),
    /// An `ApplicationAwareResourceQuota`.
    Quota(String),
    /// An `ApplicationAwareClusterResourceQuota`.
    ClusterQuota(String),
    /// A VirtualMachineInstance.
    VirtualMachine(String),
}

/// The part of a QuotaReview that is read. What else a client writes is not looked at.
#[derive(Deserialize)]
struct Asked {
    #[serde(default)]
    spec: QuotaReviewSpec,
}

impl Question {
    /// What a review asks, or a verdict on what is no question.
    fn read(review: &Review<'_>, body: &HeldBody) -> Result<Self, Verdict> {
        if (&review.operation, &*review.kind) != (&Operation::Create, names::QUOTA_REVIEW) {
            return Err(Verdict::malformed(format!(
                "expected a new {}: kind \"{}\", operation {:?}",
                names::QUOTA_REVIEW,
                review.kind,
                review.operation
            )));
        }
        if !review.dry_run {
            return Err(Verdict::deny(STORED));
        }
        if body.bytes.len() > LONGEST {
            return Err(Verdict::refuse(413, format!("a QuotaReview has at most {LONGEST} bytes")));
        }
        if review.namespace.is_empty() {
            return Err(Verdict::malformed(
                "a QuotaReview is of a namespace: name one in metadata.namespace",
            ));
        }
        let Asked { spec } = review.read_object("a QuotaReview")?;
        Ok(Self { namespace: review.namespace.clone(), about: About::read(spec)? })
    }
}

impl About {
    fn read(spec: QuotaReviewSpec) -> Result<Self, Verdict> {
        let QuotaReviewSpec { pod, quota, cluster_quota, virtual_machine } = spec;
        let asked = [
            ("pod", pod.map(Self::Pod)),
            ("quota", quota.map(Self::Quota)),
            ("clusterQuota", cluster_quota.map(Self::ClusterQuota)),
            ("virtualMachine", virtual_machine.map(Self::VirtualMachine)),
        ];
        let fields = asked.each_ref().map(|(field, _)| *field).join(", ");
        let mut asked = asked.into_iter().filter_map(|(field, about)| Some((field, about?)));
        let (Some((field, about)), None) = (asked.next(), asked.next()) else {
            return Err(Verdict::refuse(422, format!("spec: set exactly one of {fields} to a name")));
        };
        if about.name().is_empty() || about.name().len() > LONGEST_NAME {
            let wrong =
                format!("spec.{field}: write the name of an object, of at most {LONGEST_NAME} characters");
            return Err(Verdict::refuse(422, wrong));
        }
        Ok(about)
    }

    #[must_use]
    pub fn name(&self) -> &str {
        let (Self::Pod(name) | Self::Quota(name) | Self::ClusterQuota(name) | Self::VirtualMachine(name)) =
            self;
        name
    }
}

/// What the leader says.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Answered(Box<QuotaReviewStatus>),
    /// It is too much to look at, and what to do instead.
    TooMuch(String),
    /// This process does not know, because of this.
    Unknown(&'static str),
}

impl Reply {
    fn verdict(self) -> Verdict {
        let status = match self {
            Self::Answered(status) => status,
            Self::TooMuch(why) => return Verdict::refuse(TOO_MUCH, why),
            Self::Unknown(why) => return unanswered(why),
        };
        match serde_json::to_value(&status) {
            Ok(status) if is_short(&status) => answered(status),
            Ok(_) => Verdict::refuse(
                TOO_MUCH,
                format!(
                    "the answer is longer than {LONGEST} bytes: ask sluice why --recompute, or about one quota"
                ),
            ),
            Err(error) => Verdict::refuse(500, format!("could not write the answer: {error}")),
        }
    }
}

/// Whether an answer is no longer than answers may be.
fn is_short(status: &Value) -> bool {
    status.to_string().len() <= LONGEST
}

/// The object gets this status.
fn answered(status: Value) -> Verdict {
    Verdict::allow("").with_patch(vec![PatchOp::Add { path: STATUS.to_owned(), value: status }])
}

/// Without a time to wait: clients of Kubernetes would repeat it, where there may be no leader for long.
fn unanswered(why: &str) -> Verdict {
    Verdict::refuse(
        503,
        format!("no answer from the leading controller: {why}; sluice why --recompute needs none"),
    )
}

fn too_often() -> Verdict {
    Verdict::retry(RETRY_AFTER_S, TOO_OFTEN)
}

/// The endpoint in the process that knows: answers, or says why not.
pub struct ExplainLeader {
    tell: Tell,
    rate: Rate,
}

/// What [`ExplainLeader`] asks.
pub type Tell = Box<dyn Fn(&Question) -> Reply + Send + Sync>;

impl ExplainLeader {
    /// Answers what `tell` says.
    #[must_use]
    pub fn new(tell: Tell) -> Self {
        Self { tell, rate: Rate::default() }
    }
}

impl AsyncEndpoint for ExplainLeader {
    fn decide(
        self: Arc<Self>,
        review: &Review<'_>,
        _settings: &Settings,
        body: &HeldBody,
    ) -> BoxFuture<'static, Verdict> {
        let verdict = match Question::read(review, body) {
            Err(refused) => refused,
            Ok(_) if !self.rate.take() => too_often(),
            Ok(question) => (self.tell)(&question).verdict(),
        };
        ready(verdict).boxed()
    }
}
