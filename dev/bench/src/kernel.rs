//! What the kernel says of a process.

use std::fmt::Display;
use std::time::Duration;

use anyhow::Context as _;

/// A size from `/proc/<process>/status`, in MiB. `process` is a pid, or `self`.
///
/// # Errors
/// When there is no such process, or the kernel does not tell.
pub fn memory_mib(process: impl Display, field: &str) -> anyhow::Result<f64> {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kib.map(|kib| kib / 1024.0).with_context(|| format!("{path} has no {field}"))
}

/// CPU time that a process has used, its own and the kernel's for it.
///
/// # Errors
/// When there is no such process.
pub fn cpu(pid: i32) -> anyhow::Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let stat = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    // User and system time are the 14th and 15th field; the second one may hold spaces and ends with ')'.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * 10))
}
