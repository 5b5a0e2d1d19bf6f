//! The keeper: the parent of every process of a test bed, which outlives a dying test.
//!
//! `bed-keeper [--grace-ms N] [--log FILE] [--hold FILE] [--remove DIR]… [-- program args…]`
//!
//! It starts the program in a process group of its own, prints its pid as the first line and
//! then obeys lines on standard input, each acknowledged with `ok`: `kill`, `term`, `stop`,
//! `cont`, `keep` (do not remove directories). End of input means that the test process is
//! gone, in whatever way: the program gets SIGTERM, after the grace SIGKILL, and the
//! directories are removed. The exit code is the program's, 128 + signal if one ended it.
//!
//! `--hold FILE` takes a shared lock for the keeper's life. A keeper without a program removes
//! its directories only once it gets the exclusive lock, that is after all the others.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

struct Options {
    grace: Duration,
    log: Option<PathBuf>,
    hold: Option<PathBuf>,
    remove: Vec<PathBuf>,
    program: Vec<OsString>,
}

/// What the thread that reads commands and the thread that waits for the program share.
struct Child {
    group: Pid,
    /// True once the program is dead; its pid stays reserved until after that is set.
    dead: Mutex<bool>,
    died: Condvar,
}

/// Runs the keeper.
///
/// # Errors
/// When the arguments are wrong or the program, its log or its lock file cannot be opened.
pub fn main(args: Vec<OsString>) -> anyhow::Result<ExitCode> {
    if let [first, program, rest @ ..] = args.as_slice()
        && first == "--exec"
    {
        // Second stage, already the child: it must not survive a keeper that is killed.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        let error = Command::new(program).args(rest).exec();
        return Err(error).with_context(|| format!("starting {}", program.display()));
    }
    let options = parse(args)?;
    let lock = options.hold.as_deref().map(|path| File::options().create(true).append(true).open(path));
    let lock = lock.transpose().context("opening the lock file")?;
    if options.program.is_empty() {
        return Ok(keep_directories(&options, lock.as_ref()));
    }
    if let Some(lock) = &lock {
        lock.lock_shared().context("taking the shared lock")?;
    }
    keep_program(&options)
}

fn parse(args: Vec<OsString>) -> anyhow::Result<Options> {
    let mut options = Options {
        grace: Duration::from_secs(1),
        log: None,
        hold: None,
        remove: Vec::new(),
        program: Vec::new(),
    };
    let mut args = args.into_iter();
    while let Some(flag) = args.next() {
        if flag == "--" {
            options.program = args.collect();
            break;
        }
        let value = args.next().with_context(|| format!("{} needs a value", flag.display()))?;
        match flag.to_str() {
            Some("--grace-ms") => {
                let text = value.to_str().context("--grace-ms needs a number")?;
                options.grace = Duration::from_millis(text.parse().context("--grace-ms needs a number")?);
            }
            Some("--log") => options.log = Some(value.into()),
            Some("--hold") => options.hold = Some(value.into()),
            Some("--remove") => options.remove.push(value.into()),
            _ => anyhow::bail!("unknown flag {}", flag.display()),
        }
    }
    Ok(options)
}

fn spawn(options: &Options) -> anyhow::Result<std::process::Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--exec").args(&options.program).stdin(Stdio::null()).process_group(0);
    if let Some(path) = &options.log {
        let log = File::options().create(true).append(true).open(path);
        let log = log.with_context(|| format!("opening the log {}", path.display()))?;
        command.stdout(log.try_clone()?).stderr(log);
    } else {
        command.stdout(Stdio::null());
    }
    command.spawn().context("starting the program")
}

fn keep_program(options: &Options) -> anyhow::Result<ExitCode> {
    let mut process = spawn(options)?;
    let pid = i32::try_from(process.id()).ok().and_then(Pid::from_raw).context("the program has no pid")?;
    answer(&pid.as_raw_nonzero().to_string());
    let child = Arc::new(Child { group: pid, dead: Mutex::new(false), died: Condvar::new() });
    let keep = Arc::new(AtomicBool::new(false));
    let (listener, keep_set, grace) = (Arc::clone(&child), Arc::clone(&keep), options.grace);
    std::thread::spawn(move || {
        obey(Some(&listener), &keep_set);
        end(&listener, grace);
    });
    // The dead program stays a zombie while others may still signal it: its pid is not reused.
    while waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
        .is_err_and(|e| e == rustix::io::Errno::INTR)
    {}
    let _ = kill_process_group(pid, Signal::KILL);
    *child.dead.lock().unwrap_or_else(PoisonError::into_inner) = true;
    child.died.notify_all();
    let status = process.wait().context("waiting for the program")?;
    if !keep.load(Ordering::SeqCst) {
        options.remove.iter().for_each(|dir| remove(dir));
    }
    let code =
        status.code().or_else(|| std::os::unix::process::ExitStatusExt::signal(&status).map(|s| 128 + s));
    Ok(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

fn keep_directories(options: &Options, lock: Option<&File>) -> ExitCode {
    answer("0");
    let keep = AtomicBool::new(false);
    obey(None, &keep);
    if let Some(lock) = lock {
        // An error leaves nothing to wait for; the removal below is retried anyway.
        let _ = lock.lock();
    }
    if !keep.load(Ordering::SeqCst) {
        options.remove.iter().for_each(|dir| remove(dir));
    }
    ExitCode::SUCCESS
}

/// Obeys commands until the end of input.
fn obey(child: Option<&Child>, keep: &AtomicBool) {
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        match line.as_str() {
            "kill" => signal(child, Signal::KILL),
            "term" => {
                signal(child, Signal::TERM);
                signal(child, Signal::CONT);
            }
            "stop" => stop(child),
            "cont" => signal(child, Signal::CONT),
            "keep" => keep.store(true, Ordering::SeqCst),
            _ => {
                answer("unknown command");
                continue;
            }
        }
        answer("ok");
    }
}

/// Sends a signal to the program and to what it has started.
fn signal(child: Option<&Child>, signal: Signal) {
    let Some(child) = child else { return };
    let dead = child.dead.lock().unwrap_or_else(PoisonError::into_inner);
    if !*dead {
        let _ = kill_process_group(child.group, signal);
    }
}

/// Sends a signal to the program alone.
fn signal_program(child: &Child, signal: Signal) {
    let dead = child.dead.lock().unwrap_or_else(PoisonError::into_inner);
    if !*dead {
        let _ = kill_process(child.group, signal);
    }
}

/// SIGSTOP, and waits until every thread has stopped (or the program has ended): until then it may still answer.
///
/// The program stops before what it has started. A shell starts programs by `vfork`, and until such a child has called
/// `exec` its parent cannot stop: with both stopped at once neither would ever get there.
fn stop(child: Option<&Child>) {
    let Some(child) = child else { return };
    signal_program(child, Signal::STOP);
    let _ = waitid(WaitId::Pid(child.group), WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT);
    signal(Some(child), Signal::STOP);
}

fn end(child: &Child, grace: Duration) {
    signal(Some(child), Signal::TERM);
    signal(Some(child), Signal::CONT);
    let dead = child.dead.lock().unwrap_or_else(PoisonError::into_inner);
    let (dead, _) =
        child.died.wait_timeout_while(dead, grace, |dead| !*dead).unwrap_or_else(PoisonError::into_inner);
    drop(dead);
    signal(Some(child), Signal::KILL);
}

/// Removes a directory; writers that are just dying may add a file while it is emptied.
fn remove(dir: &Path) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while let Err(error) = std::fs::remove_dir_all(dir) {
        if error.kind() == std::io::ErrorKind::NotFound || Instant::now() > deadline {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Standard output may be closed when the test process is gone; that must not end the keeper.
fn answer(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
