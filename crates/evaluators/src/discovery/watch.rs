//! Follows a directory: looks again at each change and when the connection ends.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::net::UnixStream;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::observe::{File, files, probe};
use super::plan::{Found, Probe, SocketId, plan};
use super::{Absence, Presence};
use crate::link::{Incarnation, Link};

/// How long a HealthCheck may take.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(1);
/// While there is nobody to ask, or a new socket that nobody listens on, the directory is looked at after these times too:
/// a process that has made its socket listens a moment later, which is no event.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LAST_LOOK: Duration = Duration::from_secs(1);
/// A socket that nobody has listened on for so long never comes alive again.
const DEAD_AFTER: Duration = Duration::from_secs(10);

/// Keeps `presence` what `directory` holds, until nobody follows it. `unwanted` is the number of an incarnation whose
/// connection is to be ended, if it is still there, and made anew.
pub(crate) async fn follow(
    directory: PathBuf,
    presence: watch::Sender<Presence>,
    mut unwanted: watch::Receiver<u64>,
) {
    let changed = Arc::new(Notify::new());
    let mut seeker = Seeker {
        own: rustix::process::getuid().as_raw(),
        directory,
        refused: HashMap::new(),
        current: None,
        incarnations: 0,
    };
    let mut watcher = None;
    let mut looks = 0_u32;
    while !presence.is_closed() {
        // A directory that is made later, or replaced, has to be watched then.
        if watcher.is_none() || seeker.current.is_none() {
            watcher = watched(&seeker.directory, &changed);
        }
        let found = seeker.look().await;
        let is_settled = matches!(found, Presence::Here(_)) && !seeker.has_young_refused();
        looks = if is_settled { 0 } else { (looks + 1).min(1_000) };
        tell(&presence, found);
        let current = seeker.current.as_ref().map(|(_, incarnation)| incarnation.link.clone());
        let ended = async {
            match &current {
                Some(link) => link.closed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = ended => seeker.current = None,
            () = tokio::time::sleep(LAST_LOOK.min(FIRST_LOOK * looks)), if !is_settled => {}
            () = changed.notified() => {}
            Ok(()) = unwanted.changed() => seeker.disconnect_up_to(*unwanted.borrow_and_update()),
            () = presence.closed() => return,
        }
    }
}

/// Wakes those who follow only if something has changed.
fn tell(presence: &watch::Sender<Presence>, found: Presence) {
    presence.send_if_modified(|before| {
        let is_same = match (&*before, &found) {
            (Presence::Absent(before), Presence::Absent(now)) => before == now,
            (Presence::Here(before), Presence::Here(now)) => before.number == now.number,
            _ => false,
        };
        if !is_same {
            match &found {
                Presence::Absent(absence) => tracing::warn!(%absence, "evaluator cannot be asked"),
                Presence::Here(it) => tracing::info!(incarnation = it.number, "evaluator can be asked"),
                Presence::Unknown => {}
            }
            *before = found;
        }
        !is_same
    });
}

fn watched(directory: &Path, changed: &Arc<Notify>) -> Option<RecommendedWatcher> {
    let tell = changed.clone();
    let on_event = move |event: notify::Result<notify::Event>| {
        // Our own reads are events too; answering them would never end.
        if !event.is_ok_and(|event| event.kind.is_access()) {
            tell.notify_one();
        }
    };
    let mut watcher = notify::recommended_watcher(on_event).ok()?;
    watcher.watch(directory, RecursiveMode::NonRecursive).ok()?;
    Some(watcher)
}

struct Seeker {
    own: u32,
    directory: PathBuf,
    /// Sockets that nobody listened on, since when.
    refused: HashMap<SocketId, Instant>,
    current: Option<(SocketId, Incarnation)>,
    incarnations: u64,
}

impl Seeker {
    fn disconnect(&mut self) {
        if let Some((_, incarnation)) = self.current.take() {
            incarnation.link.close();
        }
    }

    fn disconnect_up_to(&mut self, unwanted: u64) {
        if self.current.as_ref().is_some_and(|(_, incarnation)| incarnation.number <= unwanted) {
            self.disconnect();
        }
    }

    /// Whether there is a socket that may still come alive.
    fn has_young_refused(&self) -> bool {
        self.refused.values().any(|since| since.elapsed() <= DEAD_AFTER)
    }

    async fn look(&mut self) -> Presence {
        let files = match files(&self.directory).await {
            Ok(files) => files,
            Err(absence) => {
                self.disconnect();
                return Presence::Absent(absence);
            }
        };
        let (seen, mut streams) = self.probes(&files).await;
        match plan(&seen, self.own) {
            Found::Nothing(absence) => {
                self.disconnect();
                Presence::Absent(absence)
            }
            Found::One(socket) => {
                if let Some((_, incarnation)) =
                    self.current.as_ref().filter(|(current, it)| *current == socket && !it.link.is_closed())
                {
                    return Presence::Here(incarnation.clone());
                }
                self.disconnect();
                match streams.remove(&socket) {
                    Some(stream) => self.connect(socket, stream).await,
                    None => Presence::Absent(Absence::NobodyListens),
                }
            }
        }
    }

    async fn probes(&mut self, files: &[File]) -> (Vec<(SocketId, Probe)>, HashMap<SocketId, UnixStream>) {
        let now = Instant::now();
        self.refused.retain(|socket, _| files.iter().any(|file| file.id == *socket));
        let mut seen = Vec::with_capacity(files.len());
        let mut streams = HashMap::new();
        for file in files {
            let is_current = self
                .current
                .as_ref()
                .is_some_and(|(socket, incarnation)| *socket == file.id && !incarnation.link.is_closed());
            let is_dead = self.refused.get(&file.id).is_some_and(|since| now - *since > DEAD_AFTER);
            let outcome = match (is_current, is_dead) {
                (true, _) => Probe::Live,
                (_, true) => Probe::Refused,
                _ => {
                    let (outcome, stream) = probe(file, self.own).await;
                    streams.extend(stream.map(|stream| (file.id.clone(), stream)));
                    outcome
                }
            };
            if outcome == Probe::Refused {
                self.refused.entry(file.id.clone()).or_insert(now);
            }
            seen.push((file.id.clone(), outcome));
        }
        (seen, streams)
    }

    async fn connect(&mut self, socket: SocketId, stream: UnixStream) -> Presence {
        let link = match Link::over(stream).await {
            Ok(link) => link,
            Err(error) => return Presence::Absent(Absence::CannotConnect(shown(&error))),
        };
        let absence = match link.is_healthy(HEALTH_TIMEOUT).await {
            Some(Ok(true)) => {
                self.incarnations += 1;
                let incarnation = Incarnation { number: self.incarnations, link: Arc::new(link) };
                self.current = Some((socket, incarnation.clone()));
                return Presence::Here(incarnation);
            }
            Some(Ok(false)) => Absence::Unhealthy,
            Some(Err(error)) => Absence::NotAnEvaluator(shown(&error)),
            None => Absence::Mute(HEALTH_TIMEOUT),
        };
        Presence::Absent(absence)
    }
}

fn shown(error: &crate::CallError) -> String {
    sluice_engine::evaluation::one_line(&error.to_string(), 100).into_owned()
}
