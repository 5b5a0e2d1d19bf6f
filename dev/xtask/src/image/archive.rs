//! An image as an archive that is both an OCI layout and what `docker save` writes.
//!
//! Same input, same bytes: no times, no owners, a fixed order.

use std::fmt::Write as _;

use anyhow::Context as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::Platform;

/// User and group of the container, as in the Deployments.
const NON_ROOT: u32 = 65532;
const EPOCH: &str = "1970-01-01T00:00:00Z";

pub(super) struct Content<'c> {
    /// `/sluice`.
    pub(super) binary: &'c [u8],
    /// `/licenses/LICENSE`.
    pub(super) license: &'c str,
    /// `/licenses/THIRD-PARTY`.
    pub(super) third_party: &'c str,
}

/// An archive, and the digest of the image in it by which registries know it.
pub(super) struct Image {
    pub(super) bytes: Vec<u8>,
    pub(super) digest: String,
}

/// The archive of an image under the name `reference`.
pub(super) fn image(content: &Content<'_>, reference: &str, platform: Platform) -> anyhow::Result<Image> {
    let layer = Blob::new(layer(content)?);
    let config = Blob::new(config(&layer, platform).to_string().into_bytes());
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config.descriptor("application/vnd.oci.image.config.v1+json"),
        "layers": [layer.descriptor("application/vnd.oci.image.layer.v1.tar")],
    });
    let manifest = Blob::new(manifest.to_string().into_bytes());
    let tag = reference.rsplit_once(':').map_or("latest", |(_, tag)| tag);
    let in_index = json!({
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": manifest.name(),
        "size": manifest.bytes.len(),
        "platform": { "architecture": platform.architecture, "os": "linux" },
        "annotations": {
            "io.containerd.image.name": reference,
            "org.opencontainers.image.ref.name": tag,
        },
    });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [in_index],
    });
    let docker = json!([{ "Config": config.path(), "RepoTags": [reference], "Layers": [layer.path()] }]);

    let mut archive = Archive::new();
    archive.folder("blobs")?;
    archive.folder("blobs/sha256")?;
    let mut blobs = [&config, &layer, &manifest];
    blobs.sort_by(|left, right| left.digest.cmp(&right.digest));
    for blob in blobs {
        archive.file(&blob.path(), &blob.bytes, 0o644)?;
    }
    archive.file("index.json", index.to_string().as_bytes(), 0o644)?;
    archive.file("manifest.json", docker.to_string().as_bytes(), 0o644)?;
    archive.file("oci-layout", json!({ "imageLayoutVersion": "1.0.0" }).to_string().as_bytes(), 0o644)?;
    Ok(Image { bytes: archive.finish()?, digest: manifest.name() })
}

fn layer(content: &Content<'_>) -> anyhow::Result<Vec<u8>> {
    let passwd =
        format!("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:{NON_ROOT}:{NON_ROOT}:nonroot:/:/sbin/nologin\n");
    let group = format!("root:x:0:\nnonroot:x:{NON_ROOT}:\n");
    let mut layer = Archive::new();
    layer.folder("etc")?;
    layer.file("etc/group", group.as_bytes(), 0o644)?;
    layer.file("etc/passwd", passwd.as_bytes(), 0o644)?;
    // By this name it is a plug-in of kubectl.
    layer.link("kubectl-sluice", "sluice")?;
    layer.folder("licenses")?;
    layer.file("licenses/LICENSE", content.license.as_bytes(), 0o644)?;
    layer.file("licenses/THIRD-PARTY", content.third_party.as_bytes(), 0o644)?;
    layer.file("sluice", content.binary, 0o755)?;
    layer.finish()
}

fn config(layer: &Blob, platform: Platform) -> Value {
    json!({
        "architecture": platform.architecture,
        "os": "linux",
        "created": EPOCH,
        "config": {
            "Entrypoint": ["/sluice"],
            "User": format!("{NON_ROOT}:{NON_ROOT}"),
            "WorkingDir": "/",
            "Labels": {
                "org.opencontainers.image.title": "sluice",
                "org.opencontainers.image.description": "Quotas for Kubernetes clusters with virtual machines",
                "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
                "org.opencontainers.image.source": env!("CARGO_PKG_REPOSITORY"),
                "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [layer.name()] },
        "history": [{ "created": EPOCH, "created_by": "cargo xtask image" }],
    })
}

/// Bytes that are named by their digest.
struct Blob {
    digest: String,
    bytes: Vec<u8>,
}

impl Blob {
    fn new(bytes: Vec<u8>) -> Self {
        let digest = Sha256::digest(&bytes).iter().fold(String::new(), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        Self { digest, bytes }
    }

    fn name(&self) -> String {
        format!("sha256:{}", self.digest)
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({
            "mediaType": media_type,
            "digest": self.name(),
            "size": self.bytes.len(),
        })
    }
}

/// A tar archive without times and owners.
struct Archive(tar::Builder<Vec<u8>>);

impl Archive {
    fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    fn folder(&mut self, path: &str) -> anyhow::Result<()> {
        self.entry(&format!("{path}/"), &[], 0o755, tar::EntryType::Directory)
    }

    fn file(&mut self, path: &str, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
        self.entry(path, bytes, mode, tar::EntryType::Regular)
    }

    fn link(&mut self, path: &str, target: &str) -> anyhow::Result<()> {
        let mut header = Self::header(0o777, tar::EntryType::Symlink);
        header.set_size(0);
        self.0.append_link(&mut header, path, target).with_context(|| format!("could not archive {path}"))
    }

    fn header(mode: u32, kind: tar::EntryType) -> tar::Header {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        header
    }

    fn entry(&mut self, path: &str, bytes: &[u8], mode: u32, kind: tar::EntryType) -> anyhow::Result<()> {
        let mut header = Self::header(mode, kind);
        header.set_size(bytes.len() as u64);
        self.0.append_data(&mut header, path, bytes).with_context(|| format!("could not archive {path}"))
    }

    fn finish(self) -> anyhow::Result<Vec<u8>> {
        self.0.into_inner().context("could not finish an archive")
    }
}
