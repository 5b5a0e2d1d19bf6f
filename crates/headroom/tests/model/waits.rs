//! What an opening waits for, as `waits.rs` does it.

use sluice_headroom::protocol::{Answer, Command, QuotaRef};

use crate::rules::{Rules, Without};
use crate::world::{Run, SERVERS, Snapshot, Stage, World, position};

impl Rules {
    /// How waiting for quota admission ends, once it does. Without a mark that is some time, in which nobody has to have
    /// learned anything. A mark does not say of which window it is.
    pub fn settled(&self, world: &World, run: &Run, marked: Option<&QuotaRef>) -> Option<Answer> {
        let Some(marked) = marked.filter(|_| self.lag && !self.lacks(Without::Mark)) else {
            return Some(Answer::Settled);
        };
        let namespace = &world.namespaces[world.targets[run.target].namespace];
        let marked = position(&marked.name);
        let knows = |known: &Vec<Snapshot>| known[marked].mark.is_some();
        if namespace.known.iter().all(knows) {
            return Some(Answer::Settled);
        }
        // A mark that is gone is not waited for any longer than its time.
        let is_gone = namespace.quotas[marked].mark != Some(run.nonce);
        self.lowered(world, run).or_else(|| is_gone.then_some(Answer::Settled))
    }

    /// Whether this server refuses windows because of a mark that it knows of.
    pub fn refuses_windows(&self, world: &World, namespace: usize, server: usize) -> bool {
        let stored = &world.namespaces[namespace];
        if self.lag {
            stored.known[server].iter().any(|quota| quota.mark.is_some())
        } else {
            stored.quotas.iter().any(|quota| quota.mark.is_some())
        }
    }

    /// How many servers would refuse the window that this opening is about to create.
    pub fn refusals(&self, world: &World, run: &Run) -> usize {
        if run.machine.command() != Command::Lock || run.looks {
            return 0;
        }
        let namespace = world.targets[run.target].namespace;
        (0..SERVERS).filter(|server| self.refuses_windows(world, namespace, *server)).count()
    }

    /// Whether creating the window comes to something. Who is refused because of a mark looks for the window that it is of.
    pub fn can_lock(&self, world: &World, run: &Run) -> bool {
        let is_held = world.namespaces[world.targets[run.target].namespace].window.is_some();
        self.refusals(world, run) < SERVERS || (is_held && !self.lacks(Without::LockBesideMarks))
    }

    pub fn awaited(&self, world: &World, run: &Run) -> Option<Answer> {
        if world.targets[run.target].stage == Stage::Entered {
            return Some(Answer::Seen);
        }
        self.lowered(world, run)
    }

    fn lowered(&self, world: &World, run: &Run) -> Option<Answer> {
        let namespace = &world.namespaces[world.targets[run.target].namespace];
        let is_lowered = |(position, after): &(usize, Snapshot)| {
            let now = &namespace.quotas[*position];
            now.identity == after.identity && now.hard < after.hard && now.used <= after.used
        };
        run.raised.iter().any(is_lowered).then_some(Answer::Lowered)
    }

    /// Whether letting the target go on says that there is room for it. Where nothing was raised quota admission may still
    /// know of less.
    pub fn promises(&self, world: &World, run: &Run) -> bool {
        let target = &world.targets[run.target];
        let is_live = run.is_locked && world.namespaces[target.namespace].life(run.nonce) > 0;
        self.no_refusal && target.stage == Stage::Asking && is_live && !run.raised.is_empty()
    }
}

impl Run {
    /// Its target was promised room, and it has not given up.
    pub fn keeps_promise(&self) -> bool {
        let has_ended = matches!(
            self.machine.command(),
            Command::Restore(_) | Command::Unlock | Command::Admit | Command::Stop(_)
        );
        self.has_promised && !has_ended
    }
}
