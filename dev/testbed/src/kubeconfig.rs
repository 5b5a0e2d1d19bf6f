//! Kubeconfig files and clients of the bed's identities.

use std::path::Path;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{AuthInfo, Cluster, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext};

use crate::pki::{Signed, write_private};

/// What a client shows the server.
#[derive(Clone, Debug)]
pub(crate) enum Credential {
    Certificate(Signed),
    Token(String),
    /// The administrator speaking for a user with several groups, which no certificate holds.
    Impersonation {
        admin: Box<AuthInfo>,
        user: String,
        groups: Vec<String>,
    },
}

impl Credential {
    pub(crate) fn auth_info(&self) -> AuthInfo {
        match self {
            Self::Certificate(signed) => AuthInfo {
                client_certificate_data: Some(STANDARD.encode(&signed.cert)),
                client_key_data: Some(STANDARD.encode(&signed.key).into()),
                ..AuthInfo::default()
            },
            Self::Impersonation { admin, user, groups } => AuthInfo {
                impersonate: Some(user.clone()),
                impersonate_groups: Some(groups.clone()),
                ..AuthInfo::clone(admin)
            },
            Self::Token(token) => AuthInfo { token: Some(token.clone().into()), ..AuthInfo::default() },
        }
    }
}

/// Writes a kubeconfig with one cluster, one user and one context named `sluice`.
pub(crate) fn write(
    path: &Path,
    server: &str,
    ca_pem: &str,
    auth: AuthInfo,
    namespace: Option<&str>,
) -> anyhow::Result<()> {
    let name = || "sluice".to_owned();
    let cluster = Cluster {
        server: Some(server.to_owned()),
        certificate_authority_data: Some(STANDARD.encode(ca_pem)),
        ..Cluster::default()
    };
    let context = Context {
        cluster: name(),
        user: Some(name()),
        namespace: namespace.map(str::to_owned),
        ..Context::default()
    };
    let config = Kubeconfig {
        api_version: Some("v1".into()),
        kind: Some("Config".into()),
        current_context: Some(name()),
        clusters: vec![NamedCluster { name: name(), cluster: Some(cluster), ..Default::default() }],
        contexts: vec![NamedContext { name: name(), context: Some(context), ..Default::default() }],
        auth_infos: vec![NamedAuthInfo { name: name(), auth_info: Some(auth), ..Default::default() }],
        ..Kubeconfig::default()
    };
    let text = serde_saphyr::to_string(&config).context("printing a kubeconfig")?;
    write_private(path, &text)
}

/// A client configuration made without files, so that it needs no async.
pub(crate) fn client_config(
    server: &str,
    ca_pem: &str,
    auth: AuthInfo,
    namespace: &str,
) -> anyhow::Result<kube::Config> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    let mut config = kube::Config::new(server.parse().context("server address")?);
    let ca = CertificateDer::from_pem_slice(ca_pem.as_bytes()).context("the bed's CA")?;
    config.root_cert = Some(vec![ca.to_vec()]);
    config.auth_info = auth;
    namespace.clone_into(&mut config.default_namespace);
    Ok(config)
}
