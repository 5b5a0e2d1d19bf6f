//! The bed's certificate authority and what it signs.

use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// A certificate with its key, both PEM.
#[derive(Clone, Debug)]
pub(crate) struct Signed {
    pub cert: String,
    pub key: String,
}

/// The authority, kept in `<bed>/pki`.
pub(crate) struct Pki {
    dir: PathBuf,
    ca_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Pki {
    /// Makes an authority, the service-account key and the API server's certificate.
    pub(crate) fn create(dir: PathBuf) -> anyhow::Result<Self> {
        fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "sluice test bed");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let ca_pem = params.self_signed(&key)?.pem();
        fs::write(dir.join("ca.crt"), &ca_pem)?;
        write_private(&dir.join("ca.key"), &key.serialize_pem())?;
        let accounts = KeyPair::generate()?;
        write_private(&dir.join("service-account.key"), &accounts.serialize_pem())?;
        fs::write(dir.join("service-account.pub"), accounts.public_key_pem())?;
        let pki = Self { dir, ca_pem, issuer: Issuer::new(params, key) };
        let names = [
            "localhost",
            "127.0.0.1",
            "::1",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "10.96.0.1",
            "fd00:10:96::1",
        ];
        let server = pki.server(&names)?;
        fs::write(pki.dir.join("server.crt"), server.cert)?;
        write_private(&pki.dir.join("server.key"), &server.key)?;
        Ok(pki)
    }

    /// An authority that [`Self::create`] made.
    pub(crate) fn open(dir: PathBuf) -> anyhow::Result<Self> {
        let read = |name: &str| {
            let path = dir.join(name);
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
        };
        let (ca_pem, key) = (read("ca.crt")?, KeyPair::from_pem(&read("ca.key")?)?);
        let issuer = Issuer::from_ca_cert_pem(&ca_pem, key)?;
        Ok(Self { dir, ca_pem, issuer })
    }

    pub(crate) fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Path of `ca.crt`, `server.crt`, `server.key`, `service-account.key` or `service-account.pub`.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A serving certificate for DNS names and IP addresses.
    pub(crate) fn server(&self, names: &[&str]) -> anyhow::Result<Signed> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).context("names of a serving certificate")?;
        params.distinguished_name.push(DnType::CommonName, "server");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// A client certificate: the API server takes CN as user name and O as groups.
    pub(crate) fn client(&self, user: &str, groups: &[&str]) -> anyhow::Result<Signed> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        // One O holds one group; rcgen keeps one value per attribute type.
        if let [group] = groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        anyhow::ensure!(groups.len() <= 1, "a client certificate of the test bed carries at most one group");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> anyhow::Result<Signed> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Signed { cert, key: key.serialize_pem() })
    }
}

/// Writes a file that only its owner can read.
pub(crate) fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    let file = fs::File::options().create(true).write(true).truncate(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("writing {}", path.display()))
}
