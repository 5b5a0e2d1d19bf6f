//! Certificate and key from two files, read again when they change.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::{RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{CertStore, TlsError};

/// Loads `cert` and `key` into `store` now and after each change, until `cancel`.
///
/// The directories are watched, not the files: the kubelet replaces a mounted Secret by renaming a symbolic link beside
/// them. Files that are missing, half written or do not fit together are logged and left alone until the next change;
/// what was loaded before stays in use.
///
/// # Errors
/// When the directories cannot be watched.
pub async fn watch_files(
    cert: PathBuf,
    key: PathBuf,
    store: Arc<CertStore>,
    cancel: CancellationToken,
) -> Result<(), TlsError> {
    let changed = Arc::new(Notify::new());
    let tell = changed.clone();
    let on_event = move |event: notify::Result<notify::Event>| {
        // Our own reads are events too; answering them would never end.
        if !event.is_ok_and(|event| event.kind.is_access()) {
            tell.notify_one();
        }
    };
    let mut directories = vec![directory_of(&cert), directory_of(&key)];
    directories.dedup();
    let watching = |path: &Path, source| TlsError::Watch { path: path.display().to_string(), source };
    let mut watcher = notify::recommended_watcher(on_event).map_err(|source| watching(&cert, source))?;
    for directory in &directories {
        watcher
            .watch(directory, RecursiveMode::NonRecursive)
            .map_err(|source| watching(directory, source))?;
    }
    loop {
        load(&cert, &key, &store).await;
        tokio::select! {
            () = changed.notified() => {}
            () = cancel.cancelled() => return Ok(()),
        }
    }
}

fn directory_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

async fn load(cert: &Path, key: &Path, store: &CertStore) {
    let (chain, secret) = match (tokio::fs::read(cert).await, tokio::fs::read(key).await) {
        (Ok(chain), Ok(secret)) => (chain, secret),
        (Err(error), _) => {
            return tracing::warn!(file = %cert.display(), %error, "cannot read the serving certificate");
        }
        (_, Err(error)) => {
            return tracing::warn!(file = %key.display(), %error, "cannot read the serving key");
        }
    };
    if let Err(error) = store.set_pem(&chain, &secret) {
        tracing::warn!(file = %cert.display(), %error, "serving certificate refused; the previous one stays in use");
    }
}
