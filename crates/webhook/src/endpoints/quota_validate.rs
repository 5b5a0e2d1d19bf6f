//! ApplicationAwareResourceQuota CREATE and UPDATE.

use sluice_engine::uncounted;
use sluice_index::QuotaSpecWire;

use super::quota_rules::{judge, read_quota, refuse};
use crate::review::{Review, Verdict};
use crate::settings::Settings;

const VALID: &str = "ApplicationAwareResourceQuota request is valid";

/// Decides on the creation or the change of a quota.
pub fn quota_validate(review: &Review<'_>, _settings: &Settings) -> Verdict {
    judge(review, VALID, check)
}

fn check(spec: QuotaSpecWire) -> Result<Vec<String>, Verdict> {
    let (spec, errors) = read_quota("spec", spec);
    refuse(errors)?;
    Ok(uncounted(spec.hard.keys().map(String::as_str)))
}
