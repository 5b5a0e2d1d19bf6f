//! `sluice dashboard`: a page about quotas in the browser of the same machine, by the rights of who runs it.

mod answers;
mod feed;
mod namespaces;
mod record;
mod recorded;
mod source;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;

use anyhow::Context as _;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use sluice_dashboard::{Asked, Cluster, Drain, DrainRow, Followed, Model, Shared, bind};
use sluice_gate::plain;

use super::cluster::{ClusterArgs, Connection};
use super::drain_check;
use super::printed::print;
use namespaces::Namespaces;
use record::Record;

/// Flags of `sluice dashboard`.
#[derive(Debug, clap::Args)]
pub struct DashboardArgs {
    /// Port on loopback; 0 is any that is free
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Open the page in a browser, by xdg-open
    ///
    /// Other users of the machine can read the address meanwhile, among the arguments of programs, and be faster.
    #[arg(long)]
    open: bool,
    /// Show a bundle of `sluice bundle` in place of a cluster, which is not asked then
    #[arg(long, value_name = "BUNDLE")]
    from: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Serves until Ctrl-C.
///
/// # Errors
/// When the cluster does not answer, the file is no bundle, or the port is taken.
pub async fn run(args: DashboardArgs) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.from {
        return of_record(&args, path).await;
    }
    let connection = args.cluster.connect().await?;
    // Wrong credentials and addresses are told here, and not on a page.
    connection.version().await.context("could not ask the cluster")?;
    let connection = connection.quiet();
    let page = Shared::new(Model::new(&args.cluster.context_name()));
    let answers = Answers {
        namespaces: Arc::new(Namespaces::new(connection.clone(), page.clone())),
        connection: connection.clone(),
    };
    serve(&args, page.clone(), Arc::new(answers), feed::run(&connection, &page)).await
}

/// Serves a bundle.
async fn of_record(args: &DashboardArgs, path: &Path) -> anyhow::Result<ExitCode> {
    let record = Record::open(path)?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let page = Shared::new(record.model(&name));
    serve(args, page, Arc::new(record), std::future::pending()).await
}

/// Serves the page until Ctrl-C, or until `fed` ends.
async fn serve(
    args: &DashboardArgs,
    page: Shared,
    answers: Arc<dyn Cluster>,
    fed: impl Future<Output = ()>,
) -> anyhow::Result<ExitCode> {
    let bound = bind(args.port, page, answers, |next| {
        say(&format!("A browser has come in. For another one: {next}\n"));
    });
    let bound = bound.await.with_context(|| format!("could not listen on port {} of loopback", args.port))?;
    let entrance = bound.entrance();
    say(&format!("Open {entrance}\nThe address is for one browser, once. Ctrl-C ends it.\n"));
    if args.open {
        open(&entrance);
    }
    tokio::select! {
        served = bound.serve() => served.context("could not serve the page")?,
        () = fed => {}
        ended = ended() => ended.context("could not wait for Ctrl-C")?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A reader that has gone is no reason to end.
fn say(text: &str) {
    if let Err(error) = print(&text) {
        tracing::warn!(%error, "could not print");
    }
}

async fn ended() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted,
        _ = terminated.recv() => Ok(()),
    }
}

fn open(address: &str) {
    let mut command = tokio::process::Command::new("xdg-open");
    command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        // What it becomes is the desktop's matter.
        Ok(child) => drop(child),
        Err(error) => eprintln!("could not start xdg-open: {error}: open the address yourself"),
    }
}

/// Answers by what `sluice why` and `sluice drain-check` do.
struct Answers {
    connection: Connection,
    namespaces: Arc<Namespaces>,
}

impl Cluster for Answers {
    fn now(&self) -> i64 {
        self.connection.now()
    }

    fn follow(&self, asked: Asked) -> Followed {
        self.namespaces.follow(asked)
    }

    fn drain(&self, node: String) -> BoxFuture<'static, Result<Drain, String>> {
        let connection = self.connection.clone();
        async move {
            let (rows, missing) =
                drain_check::look(&connection, &node).await.map_err(|error| plain(&format!("{error:#}")))?;
            let rows = rows.into_iter().map(|row| DrainRow {
                is_good: row.is_good(),
                namespace: row.namespace,
                vm: row.vm,
                room: [row.native.to_owned(), row.sluice.to_owned(), row.headroom],
                result: row.result,
                message: row.message,
            });
            Ok(Drain { rows: rows.collect(), missing })
        }
        .boxed()
    }
}
