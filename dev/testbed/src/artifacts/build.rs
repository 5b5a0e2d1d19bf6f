//! How a program of the test bed is compiled: in the foreground with progress, or beside something else.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::Artifact;
use crate::program::{Program, ProgramSpec};

impl Artifact {
    /// Builds into a temporary directory and renames it, so that an entry is whole or absent.
    pub(super) fn build(&self, cache: &Path, entry: &Path) -> anyhow::Result<()> {
        let fresh = tempfile::Builder::new().prefix(&format!("{}-build-", self.name)).tempdir_in(cache)?;
        let (name, version, minutes) = (&self.name, &self.version, self.minutes);
        say(&format!("building {name} {version}, once: about {minutes} min on two cores"));
        let started = Instant::now();
        let mut child = Command::new("go")
            .args(self.go_arguments(&fresh.path().join(&self.name)))
            .env("CGO_ENABLED", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting go build")?;
        let stderr = child.stderr.take().context("go build has no stderr")?;
        let tail = self.report(stderr, started);
        let status = child.wait().context("waiting for go build")?;
        if !status.success() {
            bail!("building {} {} failed ({status}):\n{}", self.name, self.version, tail.join("\n"));
        }
        let fresh = fresh.keep();
        if let Err(error) = fs::rename(&fresh, entry) {
            let _ = fs::remove_dir_all(&fresh);
            return Err(error).with_context(|| format!("installing {}", entry.display()));
        }
        say(&format!("built {} {} in {} s", self.name, self.version, started.elapsed().as_secs()));
        Ok(())
    }

    /// Prints a progress line every few seconds; returns the last lines for an error message.
    fn report(&self, stderr: impl std::io::Read + Send + 'static, started: Instant) -> Vec<String> {
        let (lines, received) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
        let (mut packages, mut downloads, mut tail) = (0_usize, 0_usize, Vec::new());
        let mut next = started + Duration::from_secs(5);
        loop {
            match received.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let download = line.starts_with("go: downloading");
                    downloads += usize::from(download);
                    packages += usize::from(!download && !line.contains(' '));
                    tail.push(line);
                    let surplus = tail.len().saturating_sub(30);
                    tail.drain(..surplus);
                }
                Err(RecvTimeoutError::Disconnected) => return tail,
                Err(RecvTimeoutError::Timeout) => {
                    next += Duration::from_secs(5);
                    let (name, seconds) = (&self.name, started.elapsed().as_secs());
                    say(&format!(
                        "  {name}: {seconds} s, {downloads} modules fetched, {packages} packages built"
                    ));
                }
            }
        }
    }

    /// Compiles the packages of the program with the lowest priority and keeps none of it but Go's cache: a build is
    /// quicker afterwards. It ends when it is dropped.
    pub(super) fn compile_beside(&self, log: &Path) -> anyhow::Result<Program> {
        let go = ["nice", "-n", "19", "go"].map(OsString::from).into_iter();
        let args = go.chain(self.go_arguments(Path::new("/dev/null"))).collect();
        Program::spawn(ProgramSpec {
            name: format!("compiling {}", self.name),
            exe: "/usr/bin/env".into(),
            args,
            env: vec![("CGO_ENABLED".into(), "0".into())],
            log: log.to_owned(),
            grace: Duration::from_millis(100),
            hold: None,
        })
    }

    fn go_arguments(&self, output: &Path) -> Vec<OsString> {
        let [modfile, ldflags] =
            [("-modfile", self.modfile.display().to_string()), ("-ldflags", self.ldflags.clone())]
                .map(|(flag, value)| format!("{flag}={value}"));
        let folder = self.module.as_os_str();
        // DWARF would be compiled, and left out by the linker.
        let fixed = ["-v", "-buildvcs=false", "-gcflags=all=-dwarf=false"];
        let first = [OsString::from("build"), OsString::from("-C"), folder.to_owned()].into_iter();
        let last = ["-o".into(), output.as_os_str().to_owned(), self.package.into()];
        first.chain(fixed.map(OsString::from)).chain([modfile.into(), ldflags.into()]).chain(last).collect()
    }
}

/// Writes past the test harness's capture: a first build takes minutes and must not look dead.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "test bed: {line}");
}
