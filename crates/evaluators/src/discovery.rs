//! Finds the one process of an evaluator: from what is in its directory to whom to ask.
//!
//! A directory belongs to one evaluator. libsidecar gives its socket a random name and leaves the file behind when it is
//! killed, so there may be any number of sockets that nobody listens on. Nothing here is part of the controller's start.

mod observe;
mod plan;
mod watch;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::link::Incarnation;

pub use plan::{Found, Probe, SocketId, plan};
pub(crate) use watch::follow;

/// Why there is nobody to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absence {
    /// The directory does not exist.
    NoDirectory(PathBuf),
    /// It cannot be read.
    Unreadable(PathBuf, String),
    /// More files are in it than are looked at.
    TooManyFiles,
    /// There is no socket in it.
    NoSocket,
    /// There is none, but something else with this name.
    NotASocket(Arc<str>),
    /// Nobody listens on its sockets.
    NobodyListens,
    /// The process that listens is another user's.
    OtherUser {
        /// Its user, as far as it can be told.
        uid: u32,
        /// The user of this process.
        own: u32,
    },
    /// Several processes listen.
    Several(Vec<Arc<str>>),
    /// A socket cannot be connected to.
    CannotConnect(String),
    /// It says that it is not healthy.
    Unhealthy,
    /// It does not answer whether it is healthy.
    Mute(Duration),
    /// What it answers when asked for its health is no answer.
    NotAnEvaluator(String),
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDirectory(path) => {
                write!(f, "{} does not exist, mount the volume of its socket there", path.display())
            }
            Self::Unreadable(path, why) => write!(f, "{} cannot be read: {why}, allow it", path.display()),
            Self::TooManyFiles => {
                f.write_str("its directory holds more than 1024 files, remove those of others")
            }
            Self::NoSocket => f.write_str("its directory holds no socket, see whether its container runs"),
            Self::NotASocket(name) => write!(
                f,
                "{name} in its directory is no socket, and no other file is, see whether its container runs"
            ),
            Self::NobodyListens => {
                f.write_str("nobody listens on the sockets of its directory, see whether its container runs")
            }
            Self::OtherUser { uid, own } => {
                write!(f, "its socket is user {uid}'s, run its container as user {own}")
            }
            Self::Several(names) => write!(
                f,
                "several processes listen in its directory ({}), give each evaluator its own",
                names.join(", ")
            ),
            Self::CannotConnect(why) => write!(f, "its socket cannot be connected to: {why}"),
            Self::Unhealthy => f.write_str("it answers that it is not healthy, see its log"),
            Self::Mute(timeout) => {
                write!(f, "it does not answer its HealthCheck in {} ms, see its log", timeout.as_millis())
            }
            Self::NotAnEvaluator(why) => write!(
                f,
                "its HealthCheck fails: {why}, see whether it speaks application-aware-quota's protocol"
            ),
        }
    }
}

/// What discovery has found last.
#[derive(Clone, Debug, Default)]
pub(crate) enum Presence {
    /// It has not looked yet.
    #[default]
    Unknown,
    /// Nobody can be asked.
    Absent(Absence),
    /// This one can.
    Here(Incarnation),
}
