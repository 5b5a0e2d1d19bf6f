//! What a step makes of the two Secrets.

use jiff::Timestamp;

use super::issue::{issue_serving, new_authority, new_path};
use super::lifetimes::{CA, SERVING};
use super::{CaPair, CertError, CertOrder, CertStep, ServingPair};

/// What is to be stored.
#[derive(Debug)]
pub enum Made {
    /// In the Secret of the authority.
    Authority(CaPair),
    /// In the Secret of the serving certificate.
    Serving(ServingPair),
}

/// The pair with what the step changes; `None` where a pair that it needs is missing.
///
/// # Errors
/// When the cryptography library refuses, or there are no random numbers.
pub fn make(
    now: Timestamp,
    step: CertStep,
    ca: Option<CaPair>,
    serving: Option<ServingPair>,
    order: &CertOrder,
) -> Result<Option<Made>, CertError> {
    let (of_ca, of_serving) = (order.of_ca(ca.as_ref()), order.of_serving(serving.as_ref()));
    Ok(match (step, ca, serving) {
        (CertStep::NewAuthority { keep, path }, ..) => {
            let mut pair = new_authority(now, &keep, of_ca)?;
            pair.path = path.unwrap_or(pair.path);
            Some(Made::Authority(pair))
        }
        (CertStep::StoreBundle { bundle }, Some(ca), _) => {
            let told = ca.told.of_kept(&ca.certificate, of_ca, CA);
            Some(Made::Authority(CaPair { bundle, told, ..ca }))
        }
        (CertStep::NamePath { path }, Some(ca), _) => {
            let path = path.map_or_else(new_path, Ok)?;
            Some(Made::Authority(CaPair { path, path_since: Some(now), ..ca }))
        }
        (CertStep::IssueServing { path_is_new, path_before }, Some(ca), _) => {
            let mut pair = issue_serving(now, &ca, &order.names, of_serving)?;
            if path_is_new {
                pair.path = new_path()?;
            }
            Some(Made::Serving(ServingPair { path_before, ..pair }))
        }
        (CertStep::StoreServing { path_before }, Some(ca), Some(serving)) => {
            let told = serving.told.of_kept(&serving.certificate, of_serving, SERVING);
            Some(Made::Serving(ServingPair { path_before, bundle: ca.bundle, told, ..serving }))
        }
        _ => None,
    })
}
