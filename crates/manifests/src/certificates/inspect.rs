//! What a stored certificate is worth. The Secrets are ours, but people edit them: whatever cannot be read is
//! treated as absent and made anew.

use jiff::Timestamp;
use rcgen::{KeyPair, PublicKeyData};
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
}

impl Validity {
    pub(super) fn contains(self, now: Timestamp) -> bool {
        self.not_before <= now && now < self.not_after
    }
}

fn validity(certificate: &X509Certificate<'_>) -> Option<Validity> {
    let validity = certificate.validity();
    Some(Validity {
        not_before: Timestamp::from_second(validity.not_before.timestamp()).ok()?,
        not_after: Timestamp::from_second(validity.not_after.timestamp()).ok()?,
    })
}

/// The validity of the first certificate of a text.
pub(super) fn validity_of(certificate: &str) -> Option<Validity> {
    validity(&parse(&first(certificate)?)?)
}

/// The validity of an authority that can sign: one certificate, of an authority, whose key is this one.
pub(super) fn authority(certificate: &str, key: &str) -> Option<Validity> {
    let pem = single(certificate)?;
    let parsed = parse(&pem)?;
    (parsed.is_ca() && owns(key, &parsed)).then(|| validity(&parsed))?
}

/// The validity of a certificate for servers and clients that has this key and exactly these names.
pub(super) fn serving(certificate: &str, key: &str, names: &[String]) -> Option<Validity> {
    let pem = first(certificate)?;
    let parsed = parse(&pem)?;
    (owns(key, &parsed) && has_names(&parsed, names) && for_both(&parsed)).then(|| validity(&parsed))?
}

/// As [`serving`], for a certificate of others: it may have further names.
pub(super) fn given(certificate: &str, key: &str, names: &[String]) -> Option<Validity> {
    let pem = first(certificate)?;
    let parsed = parse(&pem)?;
    let has = names_of(&parsed);
    let is_for = names.iter().all(|name| has.contains(name));
    (owns(key, &parsed) && is_for && for_both(&parsed)).then(|| validity(&parsed))?
}

/// Whether `certificate` was signed by the authority `issuer`.
pub(super) fn signed_by(certificate: &str, issuer: &str) -> bool {
    let (Some(certificate), Some(issuer)) = (first(certificate), first(issuer)) else {
        return false;
    };
    let (Some(certificate), Some(issuer)) = (parse(&certificate), parse(&issuer)) else {
        return false;
    };
    certificate.issuer() == issuer.subject()
        && certificate.verify_signature(Some(issuer.public_key())).is_ok()
}

/// The certificates of a bundle that can be read, with their validity, each as PEM.
pub(super) fn authorities(bundle: &str) -> Vec<(String, Validity)> {
    Pem::iter_from_buffer(bundle.as_bytes())
        .map_while(Result::ok)
        .filter_map(|pem| {
            let parsed = parse(&pem)?;
            let validity = parsed.is_ca().then(|| validity(&parsed))??;
            Some((encode(&pem), validity))
        })
        .collect()
}

/// A certificate in the form that is compared and stored.
pub(super) fn normal(certificate: &str) -> Option<String> {
    first(certificate).map(|pem| encode(&pem))
}

fn encode(pem: &Pem) -> String {
    let text = k8s_openapi::ByteString(pem.contents.clone());
    let base64 = serde_json::to_value(&text).ok();
    let base64 = base64.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default();
    let mut encoded = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = base64;
    while !rest.is_empty() {
        let (line, tail) = rest.split_at_checked(64).unwrap_or((rest, ""));
        encoded.push_str(line);
        encoded.push('\n');
        rest = tail;
    }
    encoded.push_str("-----END CERTIFICATE-----\n");
    encoded
}

fn first(text: &str) -> Option<Pem> {
    Pem::iter_from_buffer(text.as_bytes()).next()?.ok()
}

fn single(text: &str) -> Option<Pem> {
    let mut all = Pem::iter_from_buffer(text.as_bytes());
    let only = all.next()?.ok()?;
    all.next().is_none().then_some(only)
}

fn parse(pem: &Pem) -> Option<X509Certificate<'_>> {
    let (rest, parsed) = X509Certificate::from_der(&pem.contents).ok()?;
    (pem.label == "CERTIFICATE" && rest.is_empty()).then_some(parsed)
}

fn owns(key: &str, certificate: &X509Certificate<'_>) -> bool {
    KeyPair::from_pem(key).is_ok_and(|key| key.subject_public_key_info() == certificate.public_key().raw)
}

fn for_both(certificate: &X509Certificate<'_>) -> bool {
    let usage = certificate.extended_key_usage().ok().flatten();
    usage.is_some_and(|usage| usage.value.server_auth && usage.value.client_auth)
}

fn has_names(certificate: &X509Certificate<'_>, wanted: &[String]) -> bool {
    let mut names = names_of(certificate);
    let mut wanted = wanted.to_vec();
    names.sort_unstable();
    wanted.sort_unstable();
    names == wanted
}

fn names_of(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else { return Vec::new() };
    extension.value.general_names.iter().map(text_of).collect()
}

fn text_of(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::DNSName(name) => (*name).to_owned(),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(|b| std::net::IpAddr::from(b).to_string());
            let v6 = <[u8; 16]>::try_from(*bytes).map(|b| std::net::IpAddr::from(b).to_string());
            v4.or(v6).unwrap_or_default()
        }
        other => other.to_string(),
    }
}
