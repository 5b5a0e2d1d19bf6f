//! Makes the keeper program available to every crate that uses this library.
//!
//! Cargo does not build the binaries of a dependency, and tests of other crates need the
//! keeper too. The build script therefore contains the keeper and copies itself: called by
//! Cargo (without arguments) it installs the copy, called with arguments it is the keeper.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;

#[path = "src/keeper.rs"]
mod keeper;

fn main() -> anyhow::Result<ExitCode> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    if !args.is_empty() {
        return keeper::main(args);
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/keeper.rs");
    let out = std::env::var_os("OUT_DIR").context("OUT_DIR is not set")?;
    let (fresh, target) = (Path::new(&out).join("bed-keeper.new"), Path::new(&out).join("bed-keeper"));
    std::fs::copy(std::env::current_exe()?, &fresh).context("copying the keeper")?;
    // Renamed, not overwritten: an older keeper may be running from the old file.
    std::fs::rename(&fresh, &target).context("installing the keeper")?;
    println!("cargo::rustc-env=SLUICE_BED_KEEPER={}", target.display());
    Ok(ExitCode::SUCCESS)
}
