//! ApplicationAwareResourceQuota CREATE and UPDATE: the rules of core ResourceQuota (`docs/quota-semantics.md`,
//! *Validation*).
//!
//! Upstream asks the API server with a dry-run create of a ResourceQuota; here the same rules are applied in
//! place, so a full quota on `resourcequotas` or a foreign webhook cannot get in the way.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use sluice_api::names;
use sluice_engine::managed::managed;
use sluice_engine::quantity::Quantity;
use sluice_engine::quota_spec::{RawQuotaSpec, ScopeRequirementText, compile};
use sluice_engine::{CompiledQuota, FieldError, uncounted};
use sluice_index::{QuantityText, QuotaSpecWire, ScopeRequirementWire, ScopeSelectorWire};
use sluice_window::Observed;

use super::AsyncEndpoint;
use crate::http::body::HeldBody;
use crate::review::{Metadata, Operation, Review, Verdict, nullable, unreadable};

/// Longest part of a name that a warning repeats: the API server may cut warnings at 256 bytes.
const MAX_SHOWN: usize = 100;

const VALID: &str = "ApplicationAwareResourceQuota request is valid";

/// Decides on the creation or the change of a quota.
pub fn quota_validate(review: &Review<'_>) -> Verdict {
    match &review.operation {
        Operation::Create | Operation::Update => {}
        Operation::Delete | Operation::Connect => return Verdict::allow(VALID),
        Operation::Unknown(operation) => {
            return Verdict::malformed(format!("operation \"{operation}\" on a quota is not known"));
        }
    }
    match check(review) {
        Ok(warnings) => Verdict { warnings, ..Verdict::allow(VALID) },
        Err(refused) => refused,
    }
}

/// The endpoint, with what this process knows of ResourceQuotas.
#[derive(Debug)]
pub struct QuotaEndpoint(Arc<Observed>);

impl QuotaEndpoint {
    /// Warns of the ResourceQuotas that were `observed` in the namespace of a new quota.
    pub const fn new(observed: Arc<Observed>) -> Self {
        Self(observed)
    }
}

impl AsyncEndpoint for QuotaEndpoint {
    fn decide(self: Arc<Self>, review: &Review<'_>, _body: &HeldBody) -> BoxFuture<'static, Verdict> {
        let mut verdict = quota_validate(review);
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

/// The warnings about a valid quota.
fn check(review: &Review<'_>) -> Result<Vec<String>, Verdict> {
    let quota = review.read_object::<QuotaView<'_>>("a quota")?;
    if review.operation == Operation::Update && is_left_alone(&quota, review)? {
        return Ok(Vec::new());
    }
    let wire: QuotaSpecWire = match quota.spec {
        Some(raw) => {
            serde_json::from_str(raw.get()).map_err(|error| unreadable("object.spec", "a quota", &error))?
        }
        None => QuotaSpecWire::default(),
    };
    let (spec, mut errors) = raw_spec(wire);
    match compile(&spec) {
        Ok(compiled) => {
            errors.extend(name_too_long(&review.name, &compiled));
            if errors.is_empty() {
                return Ok(uncounted(&compiled));
            }
        }
        Err(broken) => errors.extend(broken.iter().map(ToString::to_string)),
    }
    Err(Verdict::deny(aggregate(errors)))
}

/// What is wrong with the name of a quota that needs a managed ResourceQuota, whose name is longer.
fn name_too_long(name: &str, quota: &CompiledQuota) -> Option<String> {
    let key = &managed(quota).next()?.key;
    let most = names::MAX_NAME_OF_MANAGED;
    let rule = format!(
        "must be no more than {most} characters with {key} in spec.hard, which is limited by a ResourceQuota of this \
         name and {}; use a shorter name, or a quota of its own for such keys",
        names::MANAGED_QUOTA_SUFFIX
    );
    (name.len() > most).then(|| FieldError::invalid("metadata.name", name, &rule).to_string())
}

/// Whether an update does not ask for anything new: a quota that is invalid by today's rules can still be
/// labelled, and loses its finalizers.
fn is_left_alone(quota: &QuotaView<'_>, review: &Review<'_>) -> Result<bool, Verdict> {
    let old = review.read_old_object::<QuotaView<'_>>("a quota")?;
    let deleting = quota.metadata.deletion_timestamp.is_some();
    Ok(deleting || quota.spec.map(RawValue::get) == old.spec.map(RawValue::get))
}

/// One error as it is, several as core joins them: `[a, b]`, without repetitions.
pub(crate) fn aggregate(errors: Vec<String>) -> String {
    let mut distinct: Vec<String> = Vec::with_capacity(errors.len());
    for error in errors {
        if !distinct.contains(&error) {
            distinct.push(error);
        }
    }
    match distinct.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// The engine's form of a spec, and an error for each amount that is no quantity.
fn raw_spec(wire: QuotaSpecWire) -> (RawQuotaSpec, Vec<String>) {
    let mut hard = BTreeMap::new();
    let mut errors = Vec::new();
    for (key, QuantityText(text)) in wire.hard.into_iter().collect::<BTreeMap<_, _>>() {
        match Quantity::parse_json_text(&text) {
            Ok(quantity) => {
                hard.insert(key, quantity);
            }
            Err(error) => {
                let shown: String = text.chars().take(64).collect();
                errors.push(format!("spec.hard[{key}]: Invalid value: {shown:?}: {error}"));
            }
        }
    }
    let requirement = |wire: ScopeRequirementWire| ScopeRequirementText {
        scope_name: wire.scope_name,
        operator: wire.operator,
        values: wire.values.unwrap_or_default(),
    };
    let requirements = |selector: ScopeSelectorWire| {
        selector.match_expressions.into_iter().flatten().map(requirement).collect()
    };
    let scope_selector = wire.scope_selector.map(requirements);
    (RawQuotaSpec { hard, scopes: wire.scopes.unwrap_or_default(), scope_selector }, errors)
}

/// A quota, narrowed.
#[derive(Deserialize)]
struct QuotaView<'a> {
    #[serde(default, deserialize_with = "nullable")]
    metadata: Metadata,
    #[serde(default, borrow)]
    spec: Option<&'a RawValue>,
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
