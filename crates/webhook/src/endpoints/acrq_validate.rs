//! ApplicationAwareClusterResourceQuota CREATE and UPDATE: limits as those of any quota, and a selector that says which
//! namespaces share them.

use std::collections::BTreeMap;

use serde::Deserialize;
use sluice_api::{ClusterQuotaSelector, names};
use sluice_engine::managed::managed;
use sluice_engine::quota_spec::FieldErrorKind;
use sluice_engine::resource::is_qualified_name;
use sluice_engine::{CompiledQuota, FieldError, QuotaKind};
use sluice_index::{QuotaSpecWire, read_selector};

use super::quota_rules::{Managed, judge, read_quota, refuse};
use crate::review::{Review, Verdict, nullable};
use crate::settings::{AaqPresence, Settings};

const VALID: &str = "ApplicationAwareClusterResourceQuota request is valid";
/// Upstream takes such a selector for all namespaces, and so does what exists; most often it is a field with a wrong name.
const SELECTS_BY_NOTHING: &str = "must name labels or annotations, set labels: {} to select every namespace";
const ANNOTATIONS: &str = "spec.selector.annotations";
const ANNOTATION_KEY: &str = "must be an annotation key: up to 63 letters, digits, '-', '_' or '.', beginning and ending \
                              with a letter or digit, optionally after a DNS subdomain and '/', like example.com/team";
const NOT_ALLOWED: &str = "spec: not enforced: no AAQ allows cluster quotas, set \
                           spec.configuration.allowApplicationAwareClusterResourceQuota of the AAQ to true";

const MANAGED: Managed = Managed {
    field: "spec.quota.hard",
    kind: "ClusterResourceQuota",
    suffix: names::MANAGED_CLUSTER_QUOTA_SUFFIX,
    max_name: names::MAX_NAME_OF_MANAGED_CLUSTER,
};

/// Decides on the creation or the change of a cluster quota.
pub fn acrq_validate(review: &Review<'_>, settings: &Settings) -> Verdict {
    judge(review, VALID, |spec| check(&review.name, spec, settings))
}

/// The warnings about a valid specification.
fn check(name: &str, spec: ClusterQuotaSpec, settings: &Settings) -> Result<Vec<String>, Verdict> {
    let (quota, mut errors) = read_quota("spec.quota", spec.quota);
    errors.extend(check_selector(spec.selector).iter().map(ToString::to_string));
    errors.extend(quota.as_ref().and_then(|quota| MANAGED.name_too_long(name, quota)));
    refuse(errors)?;
    if settings.cluster_resource_quotas == Some(false) {
        refuse(quota.as_ref().and_then(without_openshift).into_iter().collect())?;
    }
    let mut warnings = quota.map(|quota| settings.warnings(QuotaKind::Cluster, &quota)).unwrap_or_default();
    if matches!(settings.aaq, AaqPresence::Absent | AaqPresence::Present { cluster_quotas: false, .. }) {
        warnings.push(NOT_ALLOWED.to_owned());
    }
    Ok(warnings)
}

/// Upstream's text, and what to do, about keys that only a ClusterResourceQuota could limit.
fn without_openshift(quota: &CompiledQuota) -> Option<String> {
    let keys: Vec<&str> = managed(quota).map(|entry| &*entry.key).collect();
    (!keys.is_empty()).then(|| {
        format!(
            "ApplicationAwareClusterResourceQuota without clusterResourceQuota support, operator cannot handle non \
             scheduable resources :[{}]: limit them by a quota in each namespace",
            keys.join(" ")
        )
    })
}

fn check_selector(selector: ClusterQuotaSelector) -> Vec<FieldError> {
    let annotations = selector.annotations.unwrap_or_default();
    if selector.labels.is_none() && annotations.is_empty() {
        let kind = FieldErrorKind::Required;
        return vec![FieldError::without_value("spec.selector", kind, SELECTS_BY_NOTHING)];
    }
    let labels = read_selector("spec.selector.labels", selector.labels.unwrap_or_default());
    let mut errors = labels.err().unwrap_or_default();
    errors.extend(check_annotations(&annotations));
    errors
}

/// The API server lets in a key in whatever case, and any value.
fn check_annotations(annotations: &BTreeMap<String, String>) -> impl Iterator<Item = FieldError> {
    let wrong = annotations.keys().filter(|key| !is_qualified_name(&key.to_lowercase()));
    wrong.map(|key| FieldError::invalid(ANNOTATIONS, key, ANNOTATION_KEY))
}

/// `spec`, narrowed.
#[derive(Default, Deserialize)]
struct ClusterQuotaSpec {
    #[serde(default, deserialize_with = "nullable")]
    quota: QuotaSpecWire,
    #[serde(default, deserialize_with = "nullable")]
    selector: ClusterQuotaSelector,
}
