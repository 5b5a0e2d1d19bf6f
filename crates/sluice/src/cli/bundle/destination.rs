//! Where a bundle is written.

use std::fmt::{self, Display, Formatter};
use std::fs::OpenOptions;
use std::io::{self, IsTerminal as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use crate::cli::printed::Format;

/// Exit code of clap for arguments that are wrong.
pub const WRONG_ARGUMENTS: u8 = 2;

/// A file, or standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    Stdout,
    File(PathBuf),
}

/// Why nothing can be written.
#[derive(Debug, thiserror::Error)]
pub enum DestinationError {
    #[error("--file -: standard output is a terminal: redirect it, or give the path of a file")]
    Terminal,
    #[error(
        "--file -: the archive takes standard output, so -o {0} has no place there: leave one of them out"
    )]
    Taken(&'static str),
    #[error("--file {}: it is a folder: give the path of a file", .0.display())]
    Folder(PathBuf),
    #[error("--file {}: its folder does not exist: create it, or give another path", .0.display())]
    NoFolder(PathBuf),
    #[error("could not write {path}: {source}: give --file with a path that can be written")]
    Write { path: String, source: io::Error },
}

impl Destination {
    /// That of the flags; `name` is that of the file without them. What cannot be is told before anything is read.
    pub fn of(file: Option<&str>, name: &str, format: Format) -> Result<Self, DestinationError> {
        let path = match file {
            Some("-") => {
                let taken = match format {
                    Format::Json => Some("json"),
                    Format::Yaml => Some("yaml"),
                    Format::Name => Some("name"),
                    Format::Table | Format::Wide => None,
                };
                return match taken {
                    Some(format) => Err(DestinationError::Taken(format)),
                    None if io::stdout().is_terminal() => Err(DestinationError::Terminal),
                    None => Ok(Self::Stdout),
                };
            }
            Some(path) => PathBuf::from(path),
            None => PathBuf::from(format!("{name}.tar.gz")),
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if path.is_dir() {
            Err(DestinationError::Folder(path))
        } else if folder.is_some_and(|folder| !folder.is_dir()) {
            Err(DestinationError::NoFolder(path))
        } else {
            Ok(Self::File(path))
        }
    }

    pub const fn is_stdout(&self) -> bool {
        matches!(self, Self::Stdout)
    }

    /// Writes, and says how many bytes. A reader of standard output that has gone is no error. A file is for its owner
    /// alone: names and amounts of tenants are in it.
    pub fn write(
        &self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<u64, DestinationError> {
        let failed = |source| DestinationError::Write { path: self.to_string(), source };
        match self {
            Self::Stdout => {
                let mut out = Counted { to: io::stdout().lock(), bytes: 0 };
                match write(&mut out) {
                    Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(failed(error)),
                    _ => Ok(out.bytes),
                }
            }
            Self::File(path) => {
                let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
                let mut out = Counted { to: file.map_err(failed)?, bytes: 0 };
                write(&mut out).map_err(failed)?;
                Ok(out.bytes)
            }
        }
    }
}

impl Display for Destination {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("standard output"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Counts what is written.
struct Counted<W> {
    to: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_is_told_before_anything_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let inside = |name: &str| folder.path().join(name).display().to_string();
        let of = |file: Option<&str>, format| Destination::of(file, "sluice-bundle-1", format);
        assert_eq!(of(None, Format::Json).unwrap(), Destination::File("sluice-bundle-1.tar.gz".into()));
        assert!(of(Some(&inside("a.tar.gz")), Format::Table).is_ok());
        let wrong = |file: &str, format| of(Some(file), format).unwrap_err().to_string();
        assert!(wrong(&inside("none/a.tar.gz"), Format::Table).contains("its folder does not exist"));
        assert!(wrong(&inside(""), Format::Table).contains("it is a folder"));
        assert!(wrong("-", Format::Json).contains("-o json has no place there"));
    }

    #[test]
    fn a_file_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar.gz");
        let bytes = Destination::File(path.clone()).write(|out| out.write_all(b"abc")).unwrap();
        assert_eq!(bytes, 3);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let gone = Destination::File(folder.path().join("none/a")).write(|_| Ok(())).unwrap_err();
        assert!(gone.to_string().contains("could not write"), "{gone}");
    }

    #[test]
    fn a_reader_that_has_gone_is_no_error() {
        let gone = |_: &mut dyn Write| Err(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(Destination::Stdout.write(gone).is_ok());
    }
}
