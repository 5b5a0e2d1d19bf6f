//! Makes keys, certificates and the webhook's path. The only place that is not deterministic: keys are random.

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

use sluice_api::Lifetime;

use super::inspect::{authorities, normal};
use super::lifetimes::signed;
use super::{BACKDATE, CaPair, CertError, PATH_BYTES, ServingPair, Told};

/// A new authority, valid from `now`, whose bundle also has the authorities of `old_bundle` that have not
/// expired.
///
/// # Errors
/// When the cryptography library refuses.
pub fn new_authority(now: Timestamp, old_bundle: &str, lifetime: Lifetime) -> Result<CaPair, CertError> {
    let subject = format!("sluice-ca@{}", now.as_second());
    let failed = |source| CertError::Issue { subject: subject.clone(), source };
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(&subject);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    dates(&mut params, now, until(now, signed(lifetime.duration)));
    let certificate = params.self_signed(&key).map_err(failed)?.pem();
    // The form in which bundles are compared.
    let certificate = normal(&certificate).unwrap_or(certificate);
    let mut bundle = certificate.clone();
    for (old, validity) in authorities(old_bundle) {
        if now < validity.not_after && old != certificate {
            bundle.push_str(&old);
        }
    }
    Ok(CaPair {
        told: Told::of(&certificate, lifetime),
        certificate,
        key: key.serialize_pem(),
        bundle,
        path: new_path()?,
        path_since: Some(now),
    })
}

/// A segment for the webhook's paths: 128 random bits in hexadecimal digits.
///
/// # Errors
/// When there are no random numbers.
pub(super) fn new_path() -> Result<String, CertError> {
    let mut bytes = [0_u8; PATH_BYTES];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| CertError::Random)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A serving certificate for `names`, valid from `now` and not longer than its authority, with the segment that the
/// configurations name. Clients of the installation show it too.
///
/// # Errors
/// When the authority cannot be read or the cryptography library refuses.
pub fn issue_serving(
    now: Timestamp,
    ca: &CaPair,
    names: &[String],
    lifetime: Lifetime,
) -> Result<ServingPair, CertError> {
    let subject = names.first().cloned().unwrap_or_default();
    let failed = |source| CertError::Issue { subject: subject.clone(), source };
    let issuer_key = KeyPair::from_pem(&ca.key).map_err(failed)?;
    let issuer = Issuer::from_ca_cert_pem(&ca.certificate, issuer_key).map_err(failed)?;
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::new(names.to_vec()).map_err(failed)?;
    params.distinguished_name = common_name(&subject);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    let ca_end = authorities(&ca.certificate).first().map(|(_, validity)| validity.not_after);
    let end = until(now, signed(lifetime.duration));
    dates(&mut params, now, ca_end.map_or(end, |ca_end| end.min(ca_end)));
    let certificate = params.signed_by(&key, &issuer).map_err(failed)?.pem();
    Ok(ServingPair {
        told: Told::of(&certificate, lifetime),
        certificate,
        key: key.serialize_pem(),
        bundle: ca.bundle.clone(),
        path: ca.path.clone(),
        path_before: None,
    })
}

fn until(now: Timestamp, lifetime: SignedDuration) -> Timestamp {
    now.saturating_add(lifetime).unwrap_or(Timestamp::MAX)
}

fn common_name(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    // X.520 allows 64 characters; the names that count are the alternative ones.
    let short: String = name.chars().take(64).collect();
    subject.push(DnType::CommonName, short);
    subject
}

fn dates(params: &mut CertificateParams, now: Timestamp, not_after: Timestamp) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let at = |time: Timestamp| {
        let seconds = u64::try_from(time.as_second()).unwrap_or_default();
        epoch + std::time::Duration::from_secs(seconds)
    };
    params.not_before = at(now.saturating_sub(BACKDATE).unwrap_or(now));
    params.not_after = at(not_after);
}
