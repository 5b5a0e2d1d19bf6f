//! `xtask plugin`: the static binary as a plug-in of kubectl, in target/plugin, with krew's manifest for all archives there.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use sluice_packaging::{documents, plugin};

use crate::image::Program;
use crate::shell::root;

/// The architectures that there are archives for, in the words of Go.
const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];

/// Builds the archive for this machine, and writes the manifest. Copy the archives of other machines there before.
pub(crate) fn run() -> anyhow::Result<()> {
    let program = Program::build()?;
    let folder = root().join("target/plugin");
    fs::create_dir_all(&folder).with_context(|| format!("could not create {}", folder.display()))?;
    let license = fs::read_to_string(root().join("LICENSE")).context("could not read LICENSE")?;
    let name = plugin::archive_name(program.architecture);
    write(&folder.join(&name), &plugin::archive(&program.bytes, &license)?)?;
    println!("target/plugin/{name}");

    let mut archives = Vec::new();
    for architecture in ARCHITECTURES {
        let path = folder.join(plugin::archive_name(architecture));
        if path.is_file() {
            let bytes = fs::read(&path).with_context(|| format!("could not read {}", path.display()))?;
            archives.push((architecture, bytes));
        }
    }
    let manifest =
        plugin::manifest(archives.iter().map(|(architecture, bytes)| (*architecture, bytes.as_slice())));
    write(&folder.join("sluice.yaml"), documents(&[manifest])?.as_bytes())?;
    let known: Vec<_> = archives.iter().map(|(architecture, _)| *architecture).collect();
    println!("target/plugin/sluice.yaml: for {}", known.join(", "));
    println!("try it with");
    println!("  kubectl krew install --manifest target/plugin/sluice.yaml --archive target/plugin/{name}");
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    fs::write(path, bytes).with_context(|| format!("could not write {}", path.display()))
}
