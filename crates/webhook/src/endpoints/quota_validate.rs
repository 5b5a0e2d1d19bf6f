//! ApplicationAwareResourceQuota CREATE and UPDATE.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use sluice_api::names;
use sluice_engine::{CompiledQuota, QuotaKind, Ungated, unenforced};
use sluice_index::{Observed, QuotaSpecWire};

use super::AsyncEndpoint;
use super::quota_rules::{Managed, judge, read_quota, refuse};
use crate::http::body::HeldBody;
use crate::review::{Operation, Review, Verdict};
use crate::settings::Settings;

/// Longest part of a name that a warning repeats: the API server may cut warnings at 256 bytes.
const MAX_SHOWN: usize = 100;

const VALID: &str = "ApplicationAwareResourceQuota request is valid";
const MANAGED: Managed = Managed {
    field: "spec.hard",
    kind: "ResourceQuota",
    suffix: names::MANAGED_QUOTA_SUFFIX,
    max_name: names::MAX_NAME_OF_MANAGED,
};

/// Decides on the creation or the change of a quota of a namespace of which nothing is known.
pub fn quota_validate(review: &Review<'_>, settings: &Settings) -> Verdict {
    quota_validate_in(None, review, settings)
}

/// Decides on the creation or the change of a quota of a namespace whose pods are not gated for this reason; `None` if they
/// are, or if the namespace is not known.
pub fn quota_validate_in(ungated: Option<Ungated>, review: &Review<'_>, settings: &Settings) -> Verdict {
    judge(review, VALID, |spec| check(&review.name, spec, ungated, settings))
}

/// The endpoint, with what this process knows of namespaces and their ResourceQuotas.
#[derive(Debug)]
pub struct QuotaEndpoint(Arc<Observed>);

impl QuotaEndpoint {
    /// Warns of what was `observed` of the namespace of a quota.
    pub const fn new(observed: Arc<Observed>) -> Self {
        Self(observed)
    }

    /// Why pods of the namespace are not gated; `None` if they are, or if that is not known.
    fn ungated(&self, namespace: &str, settings: &Settings) -> Option<Ungated> {
        let targeting = settings.targeting.as_ref()?;
        let labels = self.0.read(|index| Some(index.namespaces.get(namespace)?.labels.map()))?;
        targeting.ungated(namespace, &labels)
    }
}

impl AsyncEndpoint for QuotaEndpoint {
    fn decide(
        self: Arc<Self>,
        review: &Review<'_>,
        settings: &Settings,
        _body: &HeldBody,
    ) -> BoxFuture<'static, Verdict> {
        let ungated = self.ungated(&review.namespace, settings);
        let mut verdict = quota_validate_in(ungated, review, settings);
        if verdict.allowed && review.operation == Operation::Create {
            verdict.warnings.extend(self.0.read(|index| {
                let quotas = index.resource_quotas.records_in(&review.namespace).iter();
                beside(quotas.map(|quota| &*quota.name))
            }));
        }
        async { verdict }.boxed()
    }
}

/// What is told of the ResourceQuotas beside a new quota, by the first of them.
fn beside<'n>(mut names: impl Iterator<Item = &'n str>) -> Option<String> {
    let name = names.find(|name| !name.ends_with(names::MANAGED_QUOTA_SUFFIX))?;
    let shown = name.get(..name.floor_char_boundary(MAX_SHOWN)).unwrap_or_default();
    Some(format!(
        "the namespace has the ResourceQuota {shown}: it counts as well, and what exceeds it is refused and not held"
    ))
}

/// The warnings about a valid specification.
fn check(
    name: &str,
    spec: QuotaSpecWire,
    ungated: Option<Ungated>,
    settings: &Settings,
) -> Result<Vec<String>, Verdict> {
    let (quota, mut errors) = read_quota("spec", spec);
    errors.extend(quota.as_ref().and_then(|quota| MANAGED.name_too_long(name, quota)));
    refuse(errors)?;
    Ok(quota.map(|quota| all_warnings(&quota, ungated, settings)).unwrap_or_default())
}

fn all_warnings(quota: &CompiledQuota, ungated: Option<Ungated>, settings: &Settings) -> Vec<String> {
    let mut told = settings.warnings(QuotaKind::Namespace, quota);
    let selector = settings.targeting.as_ref().map_or("", |targeting| targeting.selector_text());
    let unenforced = ungated.and_then(|why| unenforced(quota, why, selector));
    told.extend(unenforced.map(|told| told.message));
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_quota_of_others_is_named_and_a_managed_one_is_not() {
        assert_eq!(beside([].into_iter()), None);
        assert_eq!(beside([&*names::managed_quota("q")].into_iter()), None);
        let told = beside([&*names::managed_quota("q"), "rq", "other"].into_iter()).unwrap();
        assert!(told.contains("the ResourceQuota rq:"), "{told}");
        assert!(beside([&*"n".repeat(253)].into_iter()).unwrap().len() <= 256);
    }
}
