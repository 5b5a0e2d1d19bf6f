//! Where an act is played: watches feed the board, the board is shown.

use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::stream::StreamExt as _;
use kube::runtime::watcher;
use tokio::time::{Instant, Interval, interval, sleep_until};

use crate::follow::{Update, Updates};
use crate::scene::{SOON, Scene};
use crate::screen::Screen;
use crate::signals::{Interrupted, Signals};
use crate::table::{Ink, Style};

/// How often the times in the table are renewed.
const FRAME: Duration = Duration::from_millis(100);

/// How what is observed in an act looks.
pub trait View {
    /// The table, no line wider than the terminal.
    fn table(&self, now: Duration, style: Style) -> Vec<String>;

    /// The last line; none if there is nothing to say.
    fn summary(&self) -> Option<String>;
}

/// Everything that an act needs to see and to show.
pub struct Stage<B> {
    /// What was observed.
    pub board: B,
    screen: Screen,
    updates: Updates<B>,
    /// Watches that have not begun.
    awaited: usize,
    trouble: Option<String>,
    signals: Signals,
    /// Time to read after each step.
    pace: Duration,
    started: Instant,
    frames: Interval,
}

impl<B: View + Default> Stage<B> {
    /// An act that observes these updates.
    pub fn open(scene: &Scene, updates: Updates<B>, screen: Screen) -> Self {
        Self {
            board: B::default(),
            screen,
            awaited: updates.len(),
            updates,
            trouble: None,
            signals: scene.signals.clone(),
            pace: scene.pace,
            started: Instant::now(),
            frames: interval(FRAME),
        }
    }

    /// A line of the story.
    ///
    /// # Errors
    /// When the output is closed.
    pub fn tell(&mut self, text: &str) -> anyhow::Result<()> {
        let gap = if self.screen.is_live() { "" } else { "\n" };
        self.screen
            .say_in(Ink::Bold, &format!("{gap}{:>5.1} s  {text}", self.started.elapsed().as_secs_f32()))?;
        self.show()
    }

    /// A step: tells what comes, does it, observes until it has come true, and leaves time to read.
    ///
    /// # Errors
    /// When it does not come true in time, the user interrupts or the output is closed.
    pub async fn step(
        &mut self,
        words: &str,
        work: impl Future<Output = anyhow::Result<()>>,
        what: &str,
        condition: impl Fn(&B) -> bool,
    ) -> anyhow::Result<()> {
        self.tell(words)?;
        self.during(work).await?;
        self.until(what, condition).await?;
        self.pause().await
    }

    /// Observes until the condition is met.
    ///
    /// # Errors
    /// When the deadline passes, the user interrupts or the output is closed.
    pub async fn until(&mut self, what: &str, condition: impl Fn(&B) -> bool) -> anyhow::Result<()> {
        self.wait(what, |stage| condition(&stage.board)).await
    }

    /// Observes until every watch has begun: what happens from then on will be seen.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub async fn watching(&mut self) -> anyhow::Result<()> {
        self.wait("the watches to begin", |stage| stage.awaited == 0).await
    }

    async fn wait(&mut self, what: &str, condition: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        let end = Instant::now() + SOON;
        while !condition(self) {
            if !self.observe(end).await? {
                let trouble = self.trouble.as_deref().map(|text| format!("; last trouble: {text}"));
                bail!("waited {SOON:?} in vain for {what}{}", trouble.unwrap_or_default());
            }
        }
        Ok(())
    }

    /// Observes for a while, so that people can read.
    ///
    /// # Errors
    /// When the user interrupts or the output is closed.
    pub async fn pause(&mut self) -> anyhow::Result<()> {
        let end = Instant::now() + self.pace;
        while self.observe(end).await? {}
        Ok(())
    }

    /// Observes while something is done. It is not abandoned when the user interrupts, so that what it creates
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

    /// Leaves the last table, and what came of the act unless the user interrupted.
    ///
    /// # Errors
    /// What went wrong when it was played, or when the output is closed.
    pub fn close(mut self, played: anyhow::Result<()>) -> anyhow::Result<Screen> {
        self.show()?;
        self.screen.leave();
        let interrupted = played.as_ref().is_err_and(|error| error.is::<Interrupted>());
        if let Some(summary) = self.board.summary().filter(|_| !interrupted) {
            let ink = if played.is_ok() { Ink::Green } else { Ink::Red };
            self.screen.say("")?;
            self.screen.say_in(ink, &summary)?;
        }
        played.map(|()| self.screen)
    }

    /// Takes one update or shows the time; false when the time is over.
    async fn observe(&mut self, end: Instant) -> anyhow::Result<bool> {
        tokio::select! {
            biased;
            () = self.signals.came(1) => return Err(Interrupted.into()),
            Some(update) = self.updates.next() => self.take(update)?,
            () = sleep_until(end) => return Ok(false),
            _ = self.frames.tick() => self.show()?,
        }
        Ok(true)
    }

    fn take(&mut self, update: watcher::Result<Update<B>>) -> anyhow::Result<()> {
        let at = self.started.elapsed();
        let lines = match update {
            Ok(update) => {
                self.awaited -= usize::from(update.begins);
                (update.take)(&mut self.board, at)
            }
            Err(error) => {
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
        let lines = self.board.table(self.started.elapsed(), self.screen.style());
        self.screen.draw(&lines).context("writing to standard output")
    }
}
