//! Where the story is played: watches feed the board, the board is shown.

use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::stream::{BoxStream, SelectAll, StreamExt as _};
use tokio::time::{Instant, Interval, interval, sleep_until};

use crate::screen::Screen;
use crate::signals::{Interrupted, Signals};
use crate::table::{Ink, Style};

/// How often the times in the table are renewed.
const FRAME: Duration = Duration::from_millis(100);

/// Updates of several watches, as they come.
pub type Updates<U> = SelectAll<BoxStream<'static, U>>;

/// What is observed in an act, and how it looks.
pub trait View {
    /// What a watch tells.
    type Update: Send + 'static;

    /// Takes one update, seen so long after the start; the lines that tell what is new.
    ///
    /// # Errors
    /// What a watch complains about. It goes on by itself.
    fn take(&mut self, at: Duration, update: Self::Update) -> Result<Vec<String>, String>;

    /// The table, no line wider than the terminal.
    fn table(&self, now: Duration, style: Style) -> Vec<String>;
}

/// Everything that an act needs to see and to show.
pub struct Stage<B: View> {
    /// What was observed.
    pub board: B,
    /// Where it is shown.
    pub screen: Screen,
    updates: Updates<B::Update>,
    trouble: Option<String>,
    signals: Signals,
    started: Instant,
    frames: Interval,
}

impl<B: View + Default> Stage<B> {
    /// An act that observes these updates.
    pub fn open(updates: Updates<B::Update>, screen: Screen, signals: Signals) -> Self {
        Self {
            board: B::default(),
            screen,
            updates,
            trouble: None,
            signals,
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

    /// Observes until the condition is met.
    ///
    /// # Errors
    /// When the deadline passes, the user interrupts or the output is closed.
    pub async fn until(
        &mut self,
        deadline: Duration,
        what: &str,
        condition: impl Fn(&B) -> bool,
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
    /// When the user interrupts or the output is closed.
    pub async fn pause(&mut self, time: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + time;
        while self.step(end).await? {}
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

    /// Writes the table for the last time; what follows stands below it.
    ///
    /// # Errors
    /// When the output is closed.
    pub fn close(mut self) -> anyhow::Result<(B, Screen)> {
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

    fn take(&mut self, update: B::Update) -> anyhow::Result<()> {
        let at = self.started.elapsed();
        let lines = self.board.take(at, update).unwrap_or_else(|trouble| {
            self.trouble = Some(trouble);
            Vec::new()
        });
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
