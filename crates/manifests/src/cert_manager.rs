//! The serving certificate by cert-manager: what the operator asks it for, and the rights that this takes.
//!
//! The operator takes pair and authority from the Secret that cert-manager writes (`certificates::given`), and alone writes
//! the webhook configurations: cert-manager's own injector would write them too.

use std::net::IpAddr;

use serde_json::{Value, json};
use sluice_api::names;

use crate::object::{labelled, labels, metadata, set, set_in};
use crate::options::{InstallOptions, IssuerRef};
use crate::rbac::{READ, binding, named, role, rule, subject};

/// The `Certificate` for these names and addresses.
#[must_use]
pub fn certificate(namespace: &str, issuer: &IssuerRef, for_names: &[String]) -> Value {
    let is_address = |name: &&String| name.parse::<IpAddr>().is_ok();
    let (addresses, dns_names): (Vec<_>, Vec<_>) = for_names.iter().partition(is_address);
    let options = InstallOptions { namespace: namespace.to_owned(), ..InstallOptions::default() };
    let mut certificate = json!({
        "apiVersion": format!("{}/v1", names::CERT_MANAGER_GROUP),
        "kind": "Certificate",
        "metadata": metadata(&options, names::GIVEN_SECRET),
        "spec": {
            "secretName": names::GIVEN_SECRET,
            // It goes with the installation.
            "secretTemplate": { "labels": labels(Some(names::GIVEN_SECRET)) },
            "issuerRef": issuer,
            "dnsNames": dns_names,
            // The processes of the installation show it to each other too.
            "usages": ["digital signature", "server auth", "client auth"],
            "privateKey": { "algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always" },
        },
    });
    if !addresses.is_empty() {
        set_in(&mut certificate, "spec", "ipAddresses", json!(addresses));
    }
    certificate
}

/// What the operator may do there; nothing unless an issuer is named.
#[must_use]
pub fn cert_manager_rights(options: &InstallOptions) -> Vec<Value> {
    if options.cert_manager.is_none() {
        return Vec::new();
    }
    let name = names::GIVEN_SECRET;
    let rules = json!([
        rule(names::CERT_MANAGER_GROUP, &[names::CERTIFICATES], &["create"]),
        named(names::CERT_MANAGER_GROUP, names::CERTIFICATES, name, &["get", "patch"]),
        named("", "secrets", name, &READ),
    ]);
    let mut bound = binding(options, "Role", metadata(options, name), name);
    set(&mut bound, "subjects", json!([subject(options, names::OPERATOR)]));
    labelled(options, vec![role("Role", metadata(options, name), rules), bound])
}
