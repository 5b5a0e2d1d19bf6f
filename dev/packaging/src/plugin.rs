//! The program as a plug-in of kubectl: an archive for each platform, and the manifest by which krew installs it.

use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::Context as _;
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The program's name in the archive: kubectl finds `kubectl sluice` by it.
const PROGRAM: &str = "kubectl-sluice";
/// Where releases are.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A gzipped archive of the program and its licence, without times and owners.
///
/// # Errors
/// When it cannot be written, which has no cause in memory.
pub fn archive(program: &[u8], license: &str) -> anyhow::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzBuilder::new().mtime(0).write(Vec::new(), Compression::best()));
    for (name, bytes, mode) in [("LICENSE", license.as_bytes(), 0o644), (PROGRAM, program, 0o755)] {
        let mut header = tar::Header::new_ustar();
        header.set_mode(mode);
        header.set_size(bytes.len() as u64);
        header.set_mtime(0);
        archive.append_data(&mut header, name, bytes).with_context(|| format!("could not archive {name}"))?;
    }
    let mut compressed = archive.into_inner().context("could not finish the archive")?;
    compressed.flush().context("could not finish the archive")?;
    compressed.finish().context("could not compress the archive")
}

/// Name of the archive for Linux on this architecture, in the words of Go.
#[must_use]
pub fn archive_name(architecture: &str) -> String {
    format!("sluice_v{VERSION}_linux_{architecture}.tar.gz")
}

/// krew's manifest (`krew.googlecontainertools.github.com/v1alpha2`) for archives by architecture. Its file has the name
/// `sluice.yaml`.
#[must_use]
pub fn manifest<'a>(archives: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Value {
    let platform = |(architecture, bytes): (&str, &[u8])| {
        json!({
            "selector": { "matchLabels": { "os": "linux", "arch": architecture } },
            "uri": format!("{REPOSITORY}/releases/download/v{VERSION}/{}", archive_name(architecture)),
            "sha256": hex(&Sha256::digest(bytes)),
            "bin": PROGRAM,
        })
    };
    json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": { "name": "sluice" },
        "spec": {
            "version": format!("v{VERSION}"),
            "homepage": REPOSITORY,
            "shortDescription": "Explain and check quotas that pods wait for",
            "description": "Says which quota holds a pod, a virtual machine or a live migration, what is short and what\n\
                            would release it, checks an installation of Sluice, and shows all quotas in a browser.\n\
                            It reads with the rights of the kubeconfig.\n",
            "platforms": archives.into_iter().map(platform).collect::<Vec<_>>(),
        },
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
