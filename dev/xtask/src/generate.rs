//! `xtask gen`: writes the files of [`sluice_packaging`] to `deploy/`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use sluice_packaging::{Files, files};

use crate::shell::root;

/// Writes the files, or with `check` compares them.
pub(crate) fn run(check: bool) -> anyhow::Result<()> {
    let files = files()?;
    let deploy = root().join("deploy");
    if check {
        return compare(&deploy, &files);
    }
    for (path, text) in &files {
        let path = deploy.join(path);
        let folder = path.parent().unwrap_or(&deploy);
        fs::create_dir_all(folder).with_context(|| format!("could not create {}", folder.display()))?;
        fs::write(&path, text).with_context(|| format!("could not write {}", path.display()))?;
    }
    for stale in stale(&deploy, &files)? {
        fs::remove_file(&stale).with_context(|| format!("could not remove {}", stale.display()))?;
    }
    println!("wrote {} files under deploy/", files.len());
    Ok(())
}

/// Files under `deploy/` that are not generated: all are.
fn stale(deploy: &Path, files: &Files) -> anyhow::Result<Vec<PathBuf>> {
    let mut stale = Vec::new();
    let mut folders = vec![deploy.to_owned()];
    while let Some(folder) = folders.pop().filter(|folder| folder.exists()) {
        for entry in fs::read_dir(&folder).with_context(|| format!("could not list {}", folder.display()))? {
            let path = entry.with_context(|| format!("could not list {}", folder.display()))?.path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.strip_prefix(deploy).is_ok_and(|path| files.contains_key(path)) {
                stale.push(path);
            }
        }
    }
    Ok(stale)
}

fn compare(deploy: &Path, files: &Files) -> anyhow::Result<()> {
    let mut different: Vec<String> = files
        .iter()
        .filter(|(path, text)| fs::read_to_string(deploy.join(path)).ok().as_ref() != Some(*text))
        .map(|(path, _)| path.display().to_string())
        .collect();
    different.extend(stale(deploy, files)?.iter().map(|path| format!("{} (stale)", path.display())));
    if !different.is_empty() {
        bail!("these files under deploy/ are not up to date, run `make gen`: {}", different.join(", "));
    }
    println!("deploy/ is up to date");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{compare, files};

    #[test]
    fn a_changed_a_missing_and_a_stale_file_are_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = files().expect("files");
        let missing = compare(folder.path(), &files).expect_err("nothing is there");
        assert!(missing.to_string().contains("install.yaml"), "{missing}");
        for (path, text) in &files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        compare(folder.path(), &files).expect("all there");
        std::fs::write(folder.path().join("crds/old.yaml"), "").expect("a file");
        let stale = compare(folder.path(), &files).expect_err("a stale file");
        assert!(stale.to_string().contains("old.yaml (stale)"), "{stale}");
    }
}
