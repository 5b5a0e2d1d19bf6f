//! Processes of a bed and of a test, each under a keeper (see `keeper.rs`).

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Condvar, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::sync::watch;

use crate::process::ProcessId;

type Mutex<T> = std::sync::Mutex<T>;

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code, or 128 + the number of the signal that ended it.
    pub code: i32,
}

/// What to start.
#[derive(Clone, Debug)]
pub struct ProgramSpec {
    /// Name for messages.
    pub name: String,
    pub exe: PathBuf,
    /// Arguments.
    pub args: Vec<OsString>,
    /// Additional environment.
    pub env: Vec<(OsString, OsString)>,
    /// File that receives standard output and error (appended).
    pub log: PathBuf,
    /// Time between SIGTERM and SIGKILL when the program is dropped or the test process ends.
    pub grace: Duration,
    /// File whose shared lock marks that this program may still use the bed's directory.
    pub(crate) hold: Option<PathBuf>,
}

/// A running keeper: the pipe to it and the way it ended.
pub(crate) struct Keeper {
    pipe: Mutex<Option<(ChildStdin, BufReader<ChildStdout>)>>,
    exit: Arc<ExitCell>,
}

struct ExitCell {
    value: Mutex<Option<Exit>>,
    set: Condvar,
    told: watch::Sender<Option<Exit>>,
}

impl Keeper {
    /// Starts a keeper; returns it with the pid of its program (0 without one).
    pub(crate) fn start(args: &[OsString], env: &[(OsString, OsString)]) -> anyhow::Result<(Self, u32)> {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new(env!("SLUICE_BED_KEEPER"));
        command.args(args).envs(env.iter().map(|(name, value)| (name, value)));
        // A group of its own: Ctrl-C at the terminal reaches the test, not the keeper.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("starting the keeper of a test bed process")?;
        let stdin = child.stdin.take().context("the keeper has no stdin")?;
        let mut stdout = BufReader::new(child.stdout.take().context("the keeper has no stdout")?);
        let mut line = String::new();
        stdout.read_line(&mut line).context("reading the pid from the keeper")?;
        let pid = line.trim().parse().context("the keeper could not start the program")?;
        let exit = Arc::new(ExitCell {
            value: Mutex::new(None),
            set: Condvar::new(),
            told: watch::Sender::new(None),
        });
        let cell = Arc::clone(&exit);
        std::thread::spawn(move || cell.fill(child));
        Ok((Self { pipe: Mutex::new(Some((stdin, stdout))), exit }, pid))
    }

    /// Sends one command and waits for its acknowledgement; false when the keeper is gone.
    pub(crate) fn send(&self, command: &str) -> bool {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((stdin, stdout)) = pipe.as_mut() else { return false };
        let mut line = String::new();
        writeln!(stdin, "{command}").is_ok() && stdout.read_line(&mut line).is_ok() && line.trim() == "ok"
    }

    /// Ends the keeper's input, upon which it ends its program.
    pub(crate) fn close(&self) {
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn exit(&self) -> Option<Exit> {
        *self.exit.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until the keeper (and so its program) has ended, at most for the given time.
    pub(crate) fn join(&self, limit: Duration) -> Option<Exit> {
        let value = self.exit.value.lock().unwrap_or_else(PoisonError::into_inner);
        *self
            .exit
            .set
            .wait_timeout_while(value, limit, |v| v.is_none())
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }
}

impl ExitCell {
    fn fill(&self, mut keeper: Child) {
        let code = keeper.wait().ok().and_then(|status| status.code()).unwrap_or(-1);
        let exit = Some(Exit { code });
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = exit;
        self.set.notify_all();
        self.told.send_replace(exit);
    }
}

/// A running program. Dropping it stops it (SIGTERM, then SIGKILL after the grace).
pub struct Program {
    name: String,
    process: ProcessId,
    log: PathBuf,
    grace: Duration,
    keeper: Keeper,
}

impl Program {
    /// Starts a program with a grace of one second; output goes to `log`.
    ///
    /// # Errors
    /// When the program cannot be started; a program that does not exist is seen by [`Self::wait`].
    pub fn start<A: Into<OsString>, N: Into<OsString>, V: Into<OsString>>(
        name: &str,
        exe: impl Into<PathBuf>,
        args: impl IntoIterator<Item = A>,
        env: impl IntoIterator<Item = (N, V)>,
        log: impl Into<PathBuf>,
    ) -> anyhow::Result<Self> {
        Self::spawn(ProgramSpec {
            name: name.to_owned(),
            exe: exe.into(),
            args: args.into_iter().map(Into::into).collect(),
            env: env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            log: log.into(),
            grace: Duration::from_secs(1),
            hold: None,
        })
    }

    /// Starts what the specification says.
    ///
    /// # Errors
    /// When the program does not exist or the keeper cannot be started.
    pub fn spawn(spec: ProgramSpec) -> anyhow::Result<Self> {
        ensure!(spec.exe.is_file(), "starting {}: no program {}", spec.name, spec.exe.display());
        let mut args: Vec<OsString> = vec!["--grace-ms".into(), spec.grace.as_millis().to_string().into()];
        args.extend(["--log".into(), spec.log.clone().into()]);
        if let Some(hold) = &spec.hold {
            args.extend(["--hold".into(), hold.into()]);
        }
        args.extend(["--".into(), spec.exe.into()]);
        args.extend(spec.args);
        let (keeper, pid) =
            Keeper::start(&args, &spec.env).with_context(|| format!("starting {}", spec.name))?;
        // One that ends at once tells its keeper how, and has no entry in /proc any more.
        let process = ProcessId::of(pid).unwrap_or_else(|_| ProcessId::ended(pid));
        Ok(Self { name: spec.name, process, log: spec.log, grace: spec.grace, keeper })
    }

    /// The program's name for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.process.pid
    }

    /// Its pid with start time, to check later that it is really gone.
    #[must_use]
    pub const fn process(&self) -> &ProcessId {
        &self.process
    }

    /// SIGKILL; returns when the program is dead (blocks for some milliseconds).
    pub fn kill(&self) {
        self.keeper.send("kill");
        self.keeper.join(Duration::from_secs(10));
    }

    /// SIGTERM; does not wait.
    pub fn terminate(&self) {
        self.keeper.send("term");
    }

    /// SIGSTOP; returns when every thread of the program has stopped.
    pub fn pause(&self) {
        self.keeper.send("stop");
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.keeper.send("cont");
    }

    /// Waits until the program has ended.
    pub async fn wait(&self) -> Exit {
        let mut told = self.keeper.exit.told.subscribe();
        match told.wait_for(Option::is_some).await {
            Ok(exit) => exit.unwrap_or(Exit { code: -1 }),
            Err(_) => Exit { code: -1 },
        }
    }

    /// True until the program has ended.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.keeper.exit().is_none()
    }

    /// What it wrote so far.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// SIGTERM, SIGKILL after the grace; returns when the program is dead.
    pub fn stop(&self) {
        self.keeper.close();
        self.keeper.join(self.grace + Duration::from_secs(10));
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Starts a program without a keeper: it survives this process.
pub(crate) fn start_detached(spec: ProgramSpec) -> anyhow::Result<ProcessId> {
    use std::os::unix::process::CommandExt as _;
    let log = fs::File::options().create(true).append(true).open(&spec.log).context("opening the log")?;
    let mut command = Command::new(&spec.exe);
    command.args(spec.args).envs(spec.env).process_group(0).stdin(Stdio::null());
    let child = command.stdout(log.try_clone()?).stderr(log).spawn();
    let child = child.with_context(|| format!("starting {}", spec.name))?;
    ProcessId::of(child.id())
}
