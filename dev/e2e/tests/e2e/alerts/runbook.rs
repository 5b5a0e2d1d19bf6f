//! The page of an alert: its commands work while the alert fires.

use super::scene::Scene;
use crate::documented::{Page, Step};

pub struct Runbook {
    page: Page,
}

/// Whether a process has to run that may be what is missing.
fn asks_process(step: &Step) -> bool {
    step.command.contains("port-forward") || step.command.starts_with("curl ")
}

impl Runbook {
    pub fn open(alert: &str) -> Self {
        let page = Page::open(&format!("docs/runbooks/{alert}.md"));
        assert!(!page.steps().is_empty(), "{alert}");
        Self { page }
    }

    /// What is asked of the cluster.
    pub async fn while_it_fires(&mut self, scene: &Scene<'_>) {
        self.run(scene, |step| !asks_process(step)).await;
    }

    /// What is asked of a process that runs.
    pub async fn afterwards(mut self, scene: &Scene<'_>) {
        self.run(scene, asks_process).await;
        self.page.finish();
    }

    /// What the page shows the output of: the alert does not fire, and what a log would have is not there.
    pub async fn when_all_is_well(mut self, scene: &Scene<'_>) {
        self.run(scene, Step::is_shown).await;
        self.page.finish();
    }

    async fn run(&mut self, scene: &Scene<'_>, takes: impl Fn(&Step) -> bool) {
        for step in self.page.steps().iter().filter(|step| takes(step)) {
            self.page.check(&scene.programs, step).await;
        }
    }
}
