//! Options that are read from files. A field that nothing knows is an error: it would otherwise have no effect, unseen.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Toleration;
use serde::de::DeserializeOwned;
use sluice_manifests::{Resources, TolerationEntry};

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    /// It cannot be read.
    #[error("{field}: could not read {}: {error}: give a file that can be read", .path.display())]
    Read {
        /// As the command line has it.
        field: &'static str,
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// It says something else.
    #[error("{field}: {} is not {what}: {error}: correct the file", .path.display())]
    Content {
        /// As the command line has it.
        field: &'static str,
        path: PathBuf,
        /// What it should be.
        what: &'static str,
        /// In one line.
        error: String,
    },
}

pub(super) fn tolerations(path: &Path) -> Result<Vec<Toleration>, FileError> {
    const FIELD: &str = "tolerations";
    let given: Vec<TolerationEntry> =
        read(FIELD, path, "a list of tolerations, as in spec.tolerations of a pod")?;
    Ok(given.into_iter().map(Toleration::from).collect())
}

pub(super) fn resources(path: &Path) -> Result<Resources, FileError> {
    read("resources", path, "a map of controller, webhook and operator to cpu and memory")
}

fn read<T: DeserializeOwned>(field: &'static str, path: &Path, what: &'static str) -> Result<T, FileError> {
    let text = std::fs::read_to_string(path).map_err(|error| FileError::Read {
        field,
        path: path.to_owned(),
        error,
    })?;
    serde_saphyr::from_str(&text).map_err(|error| {
        // What follows shows the line of the file.
        let error = error.to_string().lines().next().unwrap_or_default().to_owned();
        FileError::Content { field, path: path.to_owned(), what, error }
    })
}

/// `key=value`; whether it is a label is for [`sluice_manifests::InstallOptions::validate`].
pub(super) fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) =
        text.split_once('=').ok_or_else(|| format!("{text:?} has no \"=\": write key=value"))?;
    Ok((key.to_owned(), value.to_owned()))
}
