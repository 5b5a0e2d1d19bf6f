//! Flags about TLS.

use std::path::PathBuf;

use kube::Config;

/// What kubectl's flags about TLS say (`k8s.io/cli-runtime/pkg/genericclioptions/config_flags.go`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// The server's certificate is not checked (`--insecure-skip-tls-verify`).
    pub insecure: bool,
    /// File of the authorities that may have signed it (`--certificate-authority`).
    pub authority: Option<PathBuf>,
    /// File of the client's certificate (`--client-certificate`).
    pub certificate: Option<PathBuf>,
    /// File of its key (`--client-key`).
    pub key: Option<PathBuf>,
    /// The name that the server's certificate is for (`--tls-server-name`).
    pub server_name: Option<String>,
}

impl TlsOptions {
    pub(super) fn apply(&self, config: &mut Config) {
        let text = |path: &PathBuf| Some(path.display().to_string());
        if self.insecure {
            config.accept_invalid_certs = true;
        }
        if let Some(path) = &self.authority {
            config.root_cert = None;
            config.root_cert_file = Some(path.clone());
        }
        if let Some(path) = &self.certificate {
            config.auth_info.client_certificate = text(path);
            config.auth_info.client_certificate_data = None;
        }
        if let Some(path) = &self.key {
            config.auth_info.client_key = text(path);
            config.auth_info.client_key_data = None;
        }
        if self.server_name.is_some() {
            config.tls_server_name.clone_from(&self.server_name);
        }
    }
}
