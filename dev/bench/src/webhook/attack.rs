//! One peer that stalls: uploads that do not end and connections that say nothing, made anew as often as they are closed.

use std::net::Ipv4Addr;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Resource, Rlimit};
use sluice_api::Endpoint;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::load::{SERVER_NAME, Target};

/// Uploads at a time, of [`BODY`] bytes each, of which the last one never comes.
pub(super) const UPLOADS: usize = 200;
const BODY: usize = 8 << 20;
/// Connections at a time that say nothing.
pub(super) const IDLE: usize = 2_048;
/// Where it comes from; the API server comes from another address of the machine.
pub(super) const PEER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);
/// How long who was closed waits until it comes again.
const PAUSE: Duration = Duration::from_secs(2);
/// The lowest priority there is.
const LAST: i32 = 19;

/// An attack. It ends when this is dropped.
pub(super) struct Attack {
    over: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.over.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Attack {
    /// Begins on a thread of its own that the scheduler puts last: it has the core of the client to itself while that waits,
    /// and no share in what the client measures.
    pub(super) fn start(target: &Target) -> anyhow::Result<Self> {
        let files = rustix::process::getrlimit(Resource::Nofile);
        let most = Rlimit { current: files.maximum, ..files };
        // If it stays at a default of 1,024 some connections of the attack fail; the figures still come.
        let _ = rustix::process::setrlimit(Resource::Nofile, most);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (target, over) = (target.clone().with_peer(PEER), CancellationToken::new());
        let until = over.clone();
        let thread = std::thread::Builder::new().name("attack".to_owned()).spawn(move || {
            let _ = rustix::process::nice(LAST);
            runtime.block_on(async {
                let _tasks = run(&target);
                until.cancelled().await;
            });
        })?;
        Ok(Self { over, thread: Some(thread) })
    }
}

fn run(target: &Target) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for number in 0..UPLOADS + IDLE {
        let target = target.clone();
        tasks.spawn(async move {
            // Not all at once: it is what they hold that is measured, not how many handshakes a core does.
            tokio::time::sleep(PAUSE * u32::try_from(number % 512).unwrap_or(0) / 512).await;
            loop {
                let _ = if number < UPLOADS { upload(&target).await } else { idle(&target).await };
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
    tasks
}

async fn upload(target: &Target) -> anyhow::Result<()> {
    let mut stream = target.stream().await?;
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: {SERVER_NAME}\r\ncontent-type: application/json\r\ncontent-length: {BODY}\r\n\r\n",
        Endpoint::PodGate.path()
    );
    stream.write_all(head.as_bytes()).await?;
    let piece = [b' '; 16 << 10];
    for _ in 1..BODY / piece.len() {
        stream.write_all(&piece).await?;
    }
    drain(stream).await
}

async fn idle(target: &Target) -> anyhow::Result<()> {
    drain(target.stream().await?).await
}

/// Waits until the server closes.
async fn drain(mut stream: impl tokio::io::AsyncRead + Unpin) -> anyhow::Result<()> {
    let mut answer = [0; 256];
    while stream.read(&mut answer).await? > 0 {}
    Ok(())
}
