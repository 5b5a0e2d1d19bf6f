//! Whether a program needs anything besides itself.

use anyhow::{Context as _, bail, ensure};

const MAGIC: &[u8] = b"\x7fELF";
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
/// Type of a program header that names a dynamic loader.
const PT_INTERP: u32 = 3;

/// Fails unless `program` is a 64-bit ELF program that names no dynamic loader.
pub(super) fn require_static(program: &[u8]) -> anyhow::Result<()> {
    ensure!(program.starts_with(MAGIC), "it is not an ELF program");
    ensure!(
        program.get(4) == Some(&CLASS_64) && program.get(5) == Some(&LITTLE_ENDIAN),
        "it is not a 64-bit little-endian program"
    );
    let headers = u64::from_le_bytes(field(program, 32)?);
    let size = u16::from_le_bytes(field(program, 54)?);
    let count = u16::from_le_bytes(field(program, 56)?);
    ensure!(count > 0, "it has no program headers");
    for index in 0..u64::from(count) {
        let at = index.checked_mul(u64::from(size)).and_then(|offset| headers.checked_add(offset));
        let at = at.context("its program headers are out of range")?;
        let kind = u32::from_le_bytes(field(program, at)?);
        if kind == PT_INTERP {
            bail!("it needs a dynamic loader: build it with -C target-feature=+crt-static");
        }
    }
    Ok(())
}

fn field<const N: usize>(program: &[u8], at: u64) -> anyhow::Result<[u8; N]> {
    usize::try_from(at)
        .ok()
        .and_then(|at| program.get(at..)?.first_chunk::<N>())
        .copied()
        .context("its headers are truncated")
}
