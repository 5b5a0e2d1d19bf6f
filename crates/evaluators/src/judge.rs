//! From the end of a call to what it says. Pure.

use std::fmt;

use sluice_engine::evaluation::{Rules, charge_of, one_line};
use sluice_engine::{Amount, Charge, Format, Resource};
use sluice_evaluator_sdk::protocol::PodUsageResponse;

use crate::{CallError, Failure};

/// Most bytes of a list that are told.
const SHOWN: usize = 200;

/// What an evaluator says of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// It is not about the pod.
    NoMatch,
    /// The pod takes this.
    Charge(Charge),
}

/// As it is told: `cpu=2, pods=1`.
impl fmt::Display for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Charge(charge) = self else { return f.write_str("that it is not about it") };
        let one =
            |(key, amount): &(Resource, Amount)| format!("{key}={}", amount.quantity(Format::DecimalSi));
        let all: Vec<_> = charge.iter().map(one).collect();
        f.write_str(&one_line(&all.join(", "), SHOWN))
    }
}

/// What the end of a call says of a pod of which Kubernetes counts `native`; `size` is that of the question in bytes.
///
/// # Errors
/// When it is no answer that can be charged.
pub fn judge_call(
    result: Result<PodUsageResponse, CallError>,
    rules: &Rules,
    native: &Charge,
    size: usize,
) -> Result<Answered, Failure> {
    judge(&result.map_err(|error| failure_of(error, size))?, rules, native)
}

/// The value of the label `result` of `sluice_evaluator_requests_total`.
pub(crate) const fn label(result: &Result<Answered, Failure>) -> &'static str {
    match result {
        Ok(Answered::Charge(_)) => "charge",
        Ok(Answered::NoMatch) => "no_match",
        Err(failure) => failure.result(),
    }
}

/// What an answer says of a pod of which Kubernetes counts `native`.
fn judge(response: &PodUsageResponse, rules: &Rules, native: &Charge) -> Result<Answered, Failure> {
    // A missing error is none.
    if let Some(error) = response.error.as_ref().filter(|error| error.error) {
        return Err(Failure::Error(error.error_message.as_str().into()));
    }
    let list =
        response.resource_list.as_ref().map(|list| &list.resource_list_json).filter(|json| !json.is_empty());
    // No libsidecar leaves it out, whether it matches or not: an empty message is no answer.
    let Some(list) = list else {
        return Err(Failure::Unreadable("it has no resource list".into()));
    };
    if !response.r#match {
        return Ok(Answered::NoMatch);
    }
    charge_of(list, rules, native).map(Answered::Charge).map_err(Failure::Refused)
}

/// What a call without an answer means; `size` is that of the question.
fn failure_of(error: CallError, size: usize) -> Failure {
    match error {
        CallError::Lost(_) => Failure::Lost,
        CallError::QuestionTooLarge(_) => Failure::TooLarge { bytes: size },
        CallError::Status { code, text } if text.is_empty() => {
            Failure::Error(format!("gRPC code {code}").as_str().into())
        }
        CallError::Status { text, .. } => Failure::Error(text.as_str().into()),
        CallError::AnswerTooLarge | CallError::NotGrpc(_) | CallError::Frame(_) => {
            Failure::Unreadable(error.to_string().as_str().into())
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sluice_engine::evaluation::{Refusal, Rules};
    use sluice_engine::{Amount, Charge, Resource};
    use sluice_evaluator_sdk::protocol::{Error, PodUsageResponse, ResourceList};

    use super::{Answered, Failure, judge};

    fn of(list: Option<&'static str>, matched: bool, error: Option<&str>) -> Result<Answered, Failure> {
        let response = PodUsageResponse {
            resource_list: list
                .map(|json| ResourceList { resource_list_json: Bytes::from_static(json.as_bytes()) }),
            r#match: matched,
            error: error.map(|text| Error { error: !text.is_empty(), error_message: text.to_owned() }),
        };
        judge(&response, &Rules::default(), &Charge::default())
    }

    #[test]
    fn answers_and_what_is_missing_in_them() {
        let charge = Charge::from_pairs([(Resource::Pods, Amount::ONE)]);
        assert_eq!(of(Some(r#"{"pods":"1"}"#), true, Some("")), Ok(Answered::Charge(charge.clone())));
        assert_eq!(of(Some(r#"{"pods":"1"}"#), true, None), Ok(Answered::Charge(charge)), "no error is none");
        assert_eq!(of(Some("{}"), false, Some("")), Ok(Answered::NoMatch));
        assert_eq!(of(Some("null"), false, None), Ok(Answered::NoMatch));
        for matched in [false, true] {
            for list in [None, Some("")] {
                let missing = Failure::Unreadable("it has no resource list".into());
                assert_eq!(of(list, matched, Some("")), Err(missing), "{matched} {list:?}");
            }
        }
    }

    #[test]
    fn an_error_is_one_whatever_else_is_said() {
        let said = Err(Failure::Error("no licence server".into()));
        assert_eq!(of(None, false, Some("no licence server")), said);
        assert_eq!(of(Some(r#"{"pods":"1"}"#), true, Some("no licence server")), said);
    }

    #[test]
    fn an_error_that_libsidecar_swallows_is_no_free_pod() {
        assert_eq!(of(Some("null"), true, Some("")), Err(Failure::Refused(Refusal::Nothing)));
    }
}
