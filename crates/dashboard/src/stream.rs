//! The changes of one open page as server-sent events.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::Event;
use futures::stream::{self, Stream};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::answer::{Cluster, Drain, Followed};
use crate::model::Shared;
use crate::page::Page;
use crate::pages::{Section, View, sections};

/// At least between two looks: two a second.
const BETWEEN: Duration = Duration::from_millis(500);
/// At most between two looks: ages and the clock go on by themselves.
const TICK: Duration = Duration::from_secs(1);
/// At least between two looks at the VMs of a node, which are lists of all VMs.
const BETWEEN_DRAINS: Duration = Duration::from_secs(10);
/// What takes long is done seldom: a look takes no more than this part of the time.
const PART: u32 = 4;

/// A page that is open.
struct Open {
    model: Shared,
    cluster: Arc<dyn Cluster>,
    page: Page,
    news: watch::Receiver<u64>,
    followed: Option<Followed>,
    /// The last look at a node, and when the next one is due.
    drain: Option<(Result<Drain, String>, Instant)>,
    /// Of each section what was sent last, as a hash.
    sent: HashMap<&'static str, u64>,
    looked: Option<Instant>,
}

/// What changes on a page, from the moment of the call on; first all of it.
pub(crate) fn changes(
    model: Shared,
    cluster: Arc<dyn Cluster>,
    page: Page,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let followed = page.asked().map(|asked| cluster.follow(asked));
    let news = model.changes();
    let open = Open { model, cluster, page, news, followed, drain: None, sent: HashMap::new(), looked: None };
    stream::unfold(open, |mut open| async move {
        loop {
            open.until_due().await;
            open.look_at_node().await;
            let changed = open.changed();
            if !changed.is_empty() {
                return Some((Ok(event(&changed)), open));
            }
        }
    })
}

fn event(changed: &[Section]) -> Event {
    let sections = changed.iter().map(|section| json!({ "id": section.id, "html": section.html }));
    // JSON has no line breaks and no carriage returns, which would end a field.
    Event::default().data(json!(sections.collect::<Vec<_>>()).to_string())
}

impl Open {
    /// Waits for something new or for the next tick.
    async fn until_due(&mut self) {
        let Some(looked) = self.looked else { return };
        let Self { news: of_model, followed, .. } = self;
        let followed = async {
            if let Some(followed) = followed
                && followed.changed().await.is_ok()
            {
                return;
            }
            // One that is not answered any more has no news.
            std::future::pending::<()>().await;
        };
        let news = async {
            tokio::select! {
                _ = of_model.changed() => {}
                () = followed => {}
            }
        };
        let _ = timeout_at(looked + TICK, news).await;
        sleep_until(looked + BETWEEN).await;
    }

    /// Looks at the node of the page, if it is time.
    async fn look_at_node(&mut self) {
        let Page::Drain { node: Some(node) } = &self.page else { return };
        let begun = Instant::now();
        if self.drain.as_ref().is_none_or(|(_, due)| *due <= begun) {
            let drain = self.cluster.drain(node.clone()).await;
            let pause = (begun.elapsed() * PART).max(BETWEEN_DRAINS);
            self.drain = Some((drain, Instant::now() + pause));
        }
    }

    /// The sections that are not as they were sent.
    fn changed(&mut self) -> Vec<Section> {
        self.looked = Some(Instant::now());
        self.news.mark_unchanged();
        let answer = self.followed.as_mut().and_then(|followed| followed.borrow_and_update().clone());
        let now = self.cluster.now();
        let drain = self.drain.as_ref().map(|(drain, _)| drain);
        let mut made = self
            .model
            .look(|model| sections(&self.page, &View { model, answer: answer.as_deref(), drain, now }));
        made.retain(|section| {
            let mut hasher = DefaultHasher::new();
            section.html.hash(&mut hasher);
            let hash = hasher.finish();
            self.sent.insert(section.id, hash) != Some(hash)
        });
        made
    }
}
