//! What KubeVirt's controller said about its last attempt to create a target pod.

use std::sync::Arc;

use sluice_engine::headroom::{Amounts, Need};
use sluice_engine::{Amount, Charge, Quantity, Resource};

/// More amounts than this are not read: quota admission names the exceeded keys of one quota.
const MOST_AMOUNTS: usize = 64;

/// An attempt that a quota refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// When it was made, in seconds since the epoch by KubeVirt's clock.
    pub at: i64,
    /// What the pod would have taken of the exceeded keys.
    pub requested: Amounts,
}

impl Attempt {
    /// Reads the message of an event; `None` if it does not tell of an exceeded quota.
    #[must_use]
    pub fn read(message: &str, at: i64) -> Option<Self> {
        let (_, told) = message.split_once("exceeded quota: ")?;
        let (_, told) = told.split_once(", requested: ")?;
        let (requested, _) = told.split_once(", used: ")?;
        let amounts = requested.split(',').take(MOST_AMOUNTS).filter_map(|pair| {
            let (key, amount) = pair.trim().split_once('=')?;
            let amount = Quantity::parse(amount).ok().filter(|amount| !amount.is_negative())?;
            Some((Arc::<str>::from(key), amount))
        });
        let requested: Amounts = amounts.collect();
        (!requested.is_empty()).then_some(Self { at, requested })
    }
}

/// What the next target takes: like the source, but where the last attempt says otherwise, as it says.
///
/// A target is made from the virtual machine's present specification by the present version of KubeVirt, which may
/// not be those of the source pod.
#[must_use]
pub fn expected(source: &Need, attempt: Option<&Attempt>) -> Need {
    let Some(attempt) = attempt else { return source.clone() };
    let told: Vec<(Resource, Amount)> = attempt
        .requested
        .iter()
        .map(|(key, amount)| (Resource::from_quota_key(key), Amount::from(*amount)))
        .collect();
    let kept = source.charge.iter().filter(|(resource, _)| told.iter().all(|(other, _)| other != resource));
    let charge = Charge::from_pairs(kept.cloned().chain(told.iter().cloned()));
    Need { charge, ..source.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = "Error creating pod: pods \"virt-launcher-web-x7\" is forbidden: exceeded quota: rq, \
        requested: requests.memory=584978113,pods=1, used: requests.memory=584978113,pods=4, limited: \
        requests.memory=1Gi,pods=4";

    #[test]
    fn the_amounts_of_a_refused_attempt_are_read() {
        let attempt = Attempt::read(MESSAGE, 7).unwrap();
        let told: Vec<_> = attempt.requested.iter().map(|(key, amount)| format!("{key}={amount}")).collect();
        assert_eq!(told, ["pods=1", "requests.memory=584978113"]);
        assert_eq!(attempt.at, 7);
    }

    #[test]
    fn other_messages_say_nothing() {
        for message in [
            "",
            "exceeded quota: ",
            "exceeded quota: rq, requested: , used: ",
            "exceeded quota: rq, requested: pods=-1, used: pods=1",
            "exceeded quota: rq, requested: pods=many, used: pods=1",
            "Error creating pod: admission webhook denied the request",
        ] {
            assert_eq!(Attempt::read(message, 0), None, "{message}");
        }
        let endless = format!("exceeded quota: rq, requested: {}, used: ", "a=1,".repeat(100_000));
        assert_eq!(Attempt::read(&endless, 0).map(|attempt| attempt.requested.len()), Some(1));
    }

    #[test]
    fn what_the_attempt_says_counts_more_than_the_source() {
        let source = Charge::from_pairs([
            (Resource::from_quota_key("memory"), Amount::from_nanos(5)),
            (Resource::from_quota_key("cpu"), Amount::from_nanos(7)),
        ]);
        let source = Need { charge: source, ..Need::default() };
        assert_eq!(expected(&source, None), source);
        let attempt =
            Attempt { at: 0, requested: [("requests.memory".into(), Quantity::parse("3").unwrap())].into() };
        let need = expected(&source, Some(&attempt));
        let of = |key: &str| need.charge.get(&Resource::from_quota_key(key));
        assert_eq!(of("memory"), Some(Amount::from(Quantity::parse("3").unwrap())));
        assert_eq!(of("requests.cpu"), Some(Amount::from_nanos(7)));
    }
}
