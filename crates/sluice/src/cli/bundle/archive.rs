//! The archive while it is made: compressed in memory, within a bound, and written with the index first.

use std::io::{self, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use tar::{Builder, EntryType, Header};

/// Bytes of the largest archive.
pub const LARGEST: usize = 20 << 20;
/// Bytes that are left for the index.
const FOR_INDEX: usize = 1 << 20;
/// Compression adds at most so many bytes to a text that it cannot make smaller, and tar adds a header.
const ADDED: usize = 16 << 10;

/// There is no room for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the archive is full ({} MiB)", LARGEST >> 20)]
pub struct Full;

/// Files of a bundle.
pub struct Archive {
    folder: String,
    taken: Timestamp,
    files: Builder<GzEncoder<Vec<u8>>>,
    largest: usize,
}

impl Archive {
    /// An empty one whose files are in this folder.
    pub fn new(folder: String, taken: Timestamp) -> Self {
        let files = Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        Self { folder, taken, files, largest: LARGEST }
    }

    /// Bytes that may be added, however badly they are compressed.
    pub fn room(&mut self) -> io::Result<usize> {
        // What the encoder keeps back counts too.
        self.files.get_mut().flush()?;
        let taken = self.files.get_ref().get_ref().len();
        Ok(self.largest.saturating_sub(taken + FOR_INDEX + ADDED))
    }

    /// Adds a file, if it fits.
    ///
    /// # Errors
    /// The inner one when it does not fit: then nothing was added.
    pub fn add(&mut self, path: &str, text: &[u8]) -> io::Result<Result<(), Full>> {
        if text.len() > self.room()? {
            return Ok(Err(Full));
        }
        append(&mut self.files, &format!("{}/{path}", self.folder), text, self.taken)?;
        Ok(Ok(()))
    }

    /// The whole archive: the files of `first`, in their order, before all others.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(self, first: &[(&str, &[u8])], to: impl Write) -> io::Result<()> {
        let rest = self.files.into_inner()?.finish()?;
        let mut head = Builder::new(Vec::new());
        for (path, text) in first {
            append(&mut head, &format!("{}/{path}", self.folder), text, self.taken)?;
        }
        let mut out = GzEncoder::new(to, Compression::default());
        // Without the mark of an end, which that of the rest is.
        out.write_all(head.get_ref())?;
        io::copy(&mut GzDecoder::new(rest.as_slice()), &mut out)?;
        out.finish()?.flush()
    }
}

fn append(files: &mut Builder<impl Write>, path: &str, text: &[u8], taken: Timestamp) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_size(text.len() as u64);
    header.set_mtime(u64::try_from(taken.as_second()).unwrap_or_default());
    files.append_data(&mut header, path, text)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn archive() -> Archive {
        Archive::new("bundle".to_owned(), Timestamp::UNIX_EPOCH)
    }

    /// Paths and contents, in order.
    fn files(archive: &[u8]) -> Vec<(String, String)> {
        let mut archive = tar::Archive::new(GzDecoder::new(archive));
        let read = |entry: io::Result<tar::Entry<'_, _>>| {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            (path, text)
        };
        archive.entries().unwrap().map(read).collect()
    }

    #[test]
    fn the_index_comes_first_though_it_is_known_last() {
        let mut archive = archive();
        let long = format!("logs/{}.log", "x".repeat(300));
        for (path, text) in [("a.yaml", "a: 1\n"), (&*long, "line\n")] {
            archive.add(path, text.as_bytes()).unwrap().unwrap();
        }
        let mut written = Vec::new();
        archive.write(&[("index.md", b"# Index\n"), ("index.json", b"{}")], &mut written).unwrap();
        let expected =
            [("index.md", "# Index\n"), ("index.json", "{}"), ("a.yaml", "a: 1\n"), (&*long, "line\n")];
        assert_eq!(files(&written), expected.map(|(path, text)| (format!("bundle/{path}"), text.to_owned())));
    }

    #[test]
    fn an_archive_is_never_larger_than_its_bound() {
        let mut archive = archive();
        archive.largest = FOR_INDEX + ADDED + 100_000;
        // A generator that no compression foresees.
        let mut state = 1_u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let mut text = || (0..30_000).map(|_| noise()).collect::<Vec<u8>>();
        let mut is_added = |at: usize| archive.add(&format!("{at}.log"), &text()).unwrap().is_ok();
        let added = (0..10).filter(|at| is_added(*at)).count();
        assert_eq!(added, 3);
        let largest = archive.largest;
        let mut written = Vec::new();
        archive.write(&[], &mut written).unwrap();
        assert!(written.len() > 90_000 && written.len() < largest, "{}", written.len());
        assert_eq!(files_of_noise(&written), 3);
    }

    fn files_of_noise(archive: &[u8]) -> usize {
        tar::Archive::new(GzDecoder::new(archive)).entries().unwrap().count()
    }

    #[test]
    fn what_compresses_well_may_be_more_than_the_bound() {
        let mut archive = archive();
        archive.largest = FOR_INDEX + ADDED + 100_000;
        let added = (0..20).filter(|at| archive.add(&format!("{at}.log"), &[b'x'; 50_000]).unwrap().is_ok());
        assert_eq!(added.count(), 20);
    }
}
