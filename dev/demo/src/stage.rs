//! Where the story is played: watches feed the board, the board is shown.

use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::stream::{BoxStream, SelectAll, StreamExt as _, select_all};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use sluice_api::{ApplicationAwareResourceQuota, names};
use tokio::time::{Instant, Interval, interval, sleep_until};

use crate::board::Board;
use crate::screen::Screen;
use crate::signals::{Interrupted, Signals};
use crate::table::{Ink, table};

/// How often the times in the table are renewed.
const FRAME: Duration = Duration::from_millis(100);

type Watch<K> = watcher::Result<Event<K>>;

#[expect(clippy::large_enum_variant, reason = "an update is moved once, from a watch to the board")]
enum Update {
    Pod(Watch<Pod>),
    Quota(Watch<ApplicationAwareResourceQuota>),
    Told(Watch<v1::Event>),
}

/// Everything that the story needs to see and to show.
pub struct Stage {
    /// What was observed.
    pub board: Board,
    /// Where it is shown.
    pub screen: Screen,
    updates: SelectAll<BoxStream<'static, Update>>,
    listing: Vec<Pod>,
    trouble: Option<String>,
    signals: Signals,
    started: Instant,
    frames: Interval,
}

impl Stage {
    /// Watches pods, quotas and events of a namespace, which need not be there yet.
    pub fn open(client: &Client, namespace: &str, screen: Screen, signals: Signals) -> Self {
        let any = watcher::Config::default;
        let pods = watcher(Api::namespaced(client.clone(), namespace), any()).default_backoff();
        let quotas = watcher(Api::namespaced(client.clone(), namespace), any()).default_backoff();
        let events = watcher(Api::namespaced(client.clone(), namespace), any()).default_backoff();
        let updates = select_all([
            pods.map(Update::Pod).boxed(),
            quotas.map(Update::Quota).boxed(),
            events.map(Update::Told).boxed(),
        ]);
        Self {
            board: Board::default(),
            screen,
            updates,
            listing: Vec::new(),
            trouble: None,
            signals,
            started: Instant::now(),
            frames: interval(FRAME),
        }
    }

    /// A line of the story.
    ///
    /// # Errors
    /// When nobody reads any more.
    pub fn tell(&mut self, text: &str) -> anyhow::Result<()> {
        let gap = if self.screen.is_live() { "" } else { "\n" };
        self.screen
            .say_in(Ink::Bold, &format!("{gap}{:>5.1} s  {text}", self.started.elapsed().as_secs_f32()))?;
        self.show()
    }

    /// Observes until the condition is met.
    ///
    /// # Errors
    /// When the deadline passes, somebody interrupts or nobody reads any more.
    pub async fn until(
        &mut self,
        deadline: Duration,
        what: &str,
        condition: impl Fn(&Board) -> bool,
    ) -> anyhow::Result<()> {
        let end = Instant::now() + deadline;
        while !condition(&self.board) {
            if !self.step(end).await? {
                let trouble = self.trouble.as_deref().map(|text| format!("; last trouble: {text}"));
                bail!("waited {deadline:?} in vain for {what}{}", trouble.unwrap_or_default());
            }
        }
        Ok(())
    }

    /// Observes for a while, so that people can read.
    ///
    /// # Errors
    /// When somebody interrupts or nobody reads any more.
    pub async fn pause(&mut self, time: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + time;
        while self.step(end).await? {}
        Ok(())
    }

    /// Observes while something is done. It is not abandoned when somebody interrupts, so that what it creates
    /// is known when it is cleaned up.
    ///
    /// # Errors
    /// Its own.
    pub async fn during<T>(&mut self, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                Some(update) = self.updates.next() => self.take(update)?,
            }
        }
    }

    /// Writes the table for the last time; what follows stands below it.
    ///
    /// # Errors
    /// When nobody reads any more.
    pub fn close(mut self) -> anyhow::Result<(Board, Screen)> {
        self.show()?;
        self.screen.leave();
        Ok((self.board, self.screen))
    }

    /// Takes one update or shows the time; false when the time is over.
    async fn step(&mut self, end: Instant) -> anyhow::Result<bool> {
        tokio::select! {
            biased;
            () = self.signals.came(1) => return Err(Interrupted.into()),
            Some(update) = self.updates.next() => self.take(update)?,
            () = sleep_until(end) => return Ok(false),
            _ = self.frames.tick() => self.show()?,
        }
        Ok(true)
    }

    fn take(&mut self, update: Update) -> anyhow::Result<()> {
        let at = self.started.elapsed();
        let lines: Vec<String> = match update {
            Update::Pod(Ok(Event::Init)) => {
                self.listing.clear();
                Vec::new()
            }
            Update::Pod(Ok(Event::InitApply(pod))) => {
                self.listing.push(pod);
                Vec::new()
            }
            Update::Pod(Ok(Event::InitDone)) => {
                let pods = std::mem::take(&mut self.listing);
                self.board.listed(at, &pods)
            }
            Update::Pod(Ok(Event::Apply(pod))) => self.board.pod(at, &pod).into_iter().collect(),
            Update::Pod(Ok(Event::Delete(pod))) => {
                let uid = pod.metadata.uid.unwrap_or_default();
                self.board.gone(at, &uid).into_iter().collect()
            }
            Update::Quota(Ok(Event::Apply(quota) | Event::InitApply(quota))) => {
                self.board.quota(&quota).map(|line| format!("{:<20} {line}", "quota")).into_iter().collect()
            }
            Update::Told(Ok(Event::Apply(event) | Event::InitApply(event))) => {
                told(&mut self.board, &event).into_iter().collect()
            }
            Update::Quota(Ok(_)) | Update::Told(Ok(_)) => Vec::new(),
            Update::Pod(Err(error)) | Update::Quota(Err(error)) | Update::Told(Err(error)) => {
                self.trouble = Some(error.to_string());
                Vec::new()
            }
        };
        if self.screen.is_live() {
            return Ok(());
        }
        for line in lines {
            let seconds = at.as_secs_f32();
            self.screen.say(&format!("{seconds:>5.1} s    {line}")).context("writing to standard output")?;
        }
        Ok(())
    }

    fn show(&mut self) -> anyhow::Result<()> {
        let lines = table(&self.board, self.started.elapsed(), self.screen.style());
        self.screen.draw(&lines).context("writing to standard output")
    }
}

/// What Sluice (and nobody else) tells on a pod.
fn told(board: &mut Board, event: &v1::Event) -> Option<String> {
    if event.reporting_controller.as_deref() != Some(names::EVENT_COMPONENT) {
        return None;
    }
    let regarding = event.regarding.as_ref().filter(|object| object.kind.as_deref() == Some("Pod"))?;
    board.told(regarding.uid.as_deref()?, event.note.as_deref()?)
}
