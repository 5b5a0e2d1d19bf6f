//! Looks at a directory and at its sockets. No decisions.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;

use super::Absence;
use super::plan::{Probe, SocketId};

/// Most files that are looked at.
const MOST_FILES: usize = 1024;

/// A file of the directory.
pub(super) struct File {
    pub(super) id: SocketId,
    pub(super) path: PathBuf,
    pub(super) owner: u32,
    pub(super) is_socket: bool,
}

pub(super) async fn files(directory: &Path) -> Result<Vec<File>, Absence> {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Absence::NoDirectory(directory.to_owned()),
        _ => Absence::Unreadable(directory.to_owned(), error.kind().to_string()),
    };
    let mut entries = tokio::fs::read_dir(directory).await.map_err(unreadable)?;
    let mut files = Vec::new();
    while let Some(entry) = entries.next_entry().await.map_err(unreadable)? {
        if files.len() >= MOST_FILES {
            return Err(Absence::TooManyFiles);
        }
        let path = entry.path();
        // A file that has gone meanwhile is not there. Links are not followed.
        let Ok(metadata) = tokio::fs::symlink_metadata(&path).await else { continue };
        files.push(file(&entry.file_name().to_string_lossy(), path, &metadata));
    }
    Ok(files)
}

fn file(name: &str, path: PathBuf, metadata: &Metadata) -> File {
    let id = SocketId {
        name: sluice_engine::evaluation::one_line(name, 64).into(),
        inode: (metadata.dev(), metadata.ino()),
        changed: i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec()),
    };
    File { id, path, owner: metadata.uid(), is_socket: metadata.file_type().is_socket() }
}

/// Connects to a file; the connection is there if somebody of user `own` listens.
pub(super) async fn probe(file: &File, own: u32) -> (Probe, Option<UnixStream>) {
    if !file.is_socket {
        return (Probe::NotASocket, None);
    }
    let stream = match UnixStream::connect(&file.path).await {
        Ok(stream) => stream,
        Err(error) => {
            let probe = match error.kind() {
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Probe::Refused,
                io::ErrorKind::PermissionDenied => Probe::OtherUser(file.owner),
                kind => Probe::Failed(kind.to_string()),
            };
            return (probe, None);
        }
    };
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == own => (Probe::Live, Some(stream)),
        Ok(peer) => (Probe::OtherUser(peer.uid()), None),
        Err(error) => (Probe::Failed(error.kind().to_string()), None),
    }
}
