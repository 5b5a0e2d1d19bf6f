//! The archive is read back the way container engines do.

use std::collections::BTreeMap;
use std::io::Read as _;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{Platform, archive, elf, packages};

const PLATFORM: Platform = Platform { target: "x86_64-unknown-linux-gnu", architecture: "amd64" };
const REFERENCE: &str = "localhost/sluice:0.1.0";

fn content(binary: &[u8]) -> archive::Content<'_> {
    archive::Content { binary, license: "ours", third_party: "theirs" }
}

/// Content and mode by path, and proof that nothing depends on time or user.
fn unpack(archive: &[u8]) -> BTreeMap<String, (Vec<u8>, u32)> {
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(archive).entries().expect("a tar archive") {
        let mut entry = entry.expect("an entry");
        let header = entry.header();
        assert_eq!((header.mtime().ok(), header.uid().ok(), header.gid().ok()), (Some(0), Some(0), Some(0)));
        let mode = header.mode().expect("a mode");
        let path = entry.path().expect("a path").to_string_lossy().into_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).expect("content");
        assert!(files.insert(path.clone(), (content, mode)).is_none(), "{path} is there twice");
    }
    files
}

/// Symbolic links and where they lead.
fn links(archive: &[u8]) -> Vec<(String, String)> {
    let mut links = Vec::new();
    for entry in tar::Archive::new(archive).entries().expect("a tar archive") {
        let entry = entry.expect("an entry");
        if let Some(target) = entry.link_name().expect("a path") {
            let path = entry.path().expect("a path").to_string_lossy().into_owned();
            links.push((path, target.to_string_lossy().into_owned()));
        }
    }
    links
}

fn json(files: &BTreeMap<String, (Vec<u8>, u32)>, path: &str) -> Value {
    serde_json::from_slice(&files[path].0).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The blob of a descriptor, checked against it.
fn blob<'a>(files: &'a BTreeMap<String, (Vec<u8>, u32)>, descriptor: &Value) -> (&'a [u8], String) {
    let digest = descriptor["digest"].as_str().expect("a digest");
    let hex = digest.strip_prefix("sha256:").expect("SHA-256");
    let path = format!("blobs/sha256/{hex}");
    let (content, _) = &files[&path];
    assert_eq!(descriptor["size"], content.len(), "{path}");
    assert_eq!(format!("{:x}", Sha256::digest(content)), hex, "{path}");
    (content, path)
}

#[test]
fn all_descriptors_lead_to_what_they_name() {
    let image = archive::image(&content(b"a program"), REFERENCE, PLATFORM).expect("an image");
    let files = unpack(&image.bytes);
    assert_eq!(json(&files, "oci-layout")["imageLayoutVersion"], "1.0.0");
    let in_index = json(&files, "index.json")["manifests"][0].clone();
    assert_eq!(in_index["digest"], image.digest.as_str(), "what is printed is what registries say");
    assert_eq!(in_index["annotations"]["io.containerd.image.name"], REFERENCE);
    assert_eq!(in_index["annotations"]["org.opencontainers.image.ref.name"], "0.1.0");
    let (manifest, _) = blob(&files, &in_index);
    let manifest: Value = serde_json::from_slice(manifest).expect("a manifest");
    let (config, config_path) = blob(&files, &manifest["config"]);
    let (layer, layer_path) = blob(&files, &manifest["layers"][0]);
    assert_eq!(manifest["layers"].as_array().map(Vec::len), Some(1));

    let docker = json(&files, "manifest.json")[0].clone();
    assert_eq!(docker["Config"], config_path.as_str());
    assert_eq!(docker["Layers"], serde_json::json!([layer_path]));
    assert_eq!(docker["RepoTags"], serde_json::json!([REFERENCE]));

    let config: Value = serde_json::from_slice(config).expect("a configuration");
    assert_eq!(
        config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"],
        "the layer is not compressed"
    );
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Entrypoint"], serde_json::json!(["/sluice"]));
    assert_eq!(config["architecture"], "amd64");

    let layer_bytes = layer;
    let layer = unpack(layer_bytes);
    assert_eq!(layer["sluice"], (b"a program".to_vec(), 0o755));
    let passwd = String::from_utf8_lossy(&layer["etc/passwd"].0);
    assert!(passwd.contains("nonroot:x:65532:65532:"), "{passwd}");
    let paths: Vec<_> = layer.keys().map(String::as_str).collect();
    let licences = ["licenses/", "licenses/LICENSE", "licenses/THIRD-PARTY"];
    let others = ["etc/", "etc/group", "etc/passwd", "kubectl-sluice"];
    assert_eq!(paths, [&others[..], &licences, &["sluice"]].concat());
    assert_eq!(layer["licenses/THIRD-PARTY"], (b"theirs".to_vec(), 0o644));
    assert_eq!(links(layer_bytes), [("kubectl-sluice".to_owned(), "sluice".to_owned())]);
}

#[test]
fn the_same_program_gives_the_same_bytes() {
    let image =
        |program: &[u8]| archive::image(&content(program), REFERENCE, PLATFORM).expect("an image").bytes;
    assert!(image(b"a program") == image(b"a program"));
    assert!(image(b"a program") != image(b"another program"));
}

#[test]
fn the_packages_of_the_program_are_told_with_their_licences() {
    let packages = packages::of_program(PLATFORM).expect("packages");
    assert!(packages.len() > 150, "{}", packages.len());
    let bill = packages::bill_of_materials(&packages, REFERENCE);
    let components = bill["components"].as_array().expect("components");
    let named = |name: &str| {
        components.iter().find(|component| component["name"] == name).unwrap_or_else(|| panic!("{name}"))
    };
    assert_eq!(named("kube-client")["licenses"][0]["expression"], "Apache-2.0");
    assert!(named("tokio")["purl"].as_str().is_some_and(|purl| purl.starts_with("pkg:cargo/tokio@1.")));
    assert!(components.iter().all(|component| component["licenses"].is_array()), "{bill:#}");
    // What only tests and tools need is not in the program.
    assert!(components.iter().all(|component| component["name"] != "rstest"));

    let licences = packages::licences(&packages).expect("licences");
    let (list, texts) = licences.split_once("\n====").expect("a list, then texts");
    assert!(list.lines().any(|line| line.starts_with("tokio 1.")) && !list.contains("sluice-gate"), "{list}");
    // C code in a package has that of its authors.
    for text in ["Apache License", "Copyright (C) 2002-present Jason Evans", "The OpenSSL"] {
        assert!(texts.contains(text), "{text}");
    }
    assert!(texts.len() < 2 << 20, "{} bytes", texts.len());
}

#[test]
fn a_tree_of_cargo_says_each_package_once() {
    let tree = "sluice v0.1.0 (/path)\ntokio v1.2.3\ntokio v1.2.3 (*)\n\n";
    let used: Vec<_> = packages::used(tree).into_iter().collect();
    let expected = [("sluice", "0.1.0"), ("tokio", "1.2.3")];
    assert_eq!(used, expected.map(|(name, version)| (name.to_owned(), version.to_owned())));
}

#[test]
fn a_program_that_needs_a_loader_is_refused() {
    let own = std::env::current_exe().expect("our path");
    let dynamic = std::fs::read(own).expect("this test is readable");
    let error = elf::require_static(&dynamic).expect_err("tests are linked dynamically");
    assert!(error.to_string().contains("+crt-static"), "{error}");
    // The same program without its loader.
    let mut without = dynamic;
    let headers = usize::from_le_bytes(without[32..40].try_into().expect("8 bytes"));
    let size = usize::from(u16::from_le_bytes([without[54], without[55]]));
    for index in 0..usize::from(u16::from_le_bytes([without[56], without[57]])) {
        let at = headers + index * size;
        if without[at..at + 4] == 3_u32.to_le_bytes() {
            without[at..at + 4].fill(0);
        }
    }
    elf::require_static(&without).expect("no loader is named");
}

#[test]
fn what_is_no_program_is_refused() {
    let mut out_of_range = b"\x7fELF\x02\x01".to_vec();
    out_of_range.resize(64, 0xff);
    for bytes in [b"".as_slice(), b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x01", &out_of_range] {
        elf::require_static(bytes).expect_err("not a static program");
    }
}
