//! `sluice bundle`: what a maintainer needs to help, in one archive, without secrets.

mod archive;
mod collect;
mod destination;
mod index;
mod processes;
mod reader;
mod redact;
mod reduce;
mod sources;
mod tail;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::Context as _;
use jiff::Timestamp;
use kube::api::ListParams;
use serde_json::Value;
use sluice_api::names;
use sluice_gate::plain;
use sluice_manifests::uninstall::Kind;
use sluice_runtime::client::with_deadline;

use super::check;
use super::cluster::{ClusterArgs, Connection};
use super::printed::{Exit, Format, OutputArgs, print, print_value};
use archive::Archive;
use collect::Bundle;
use destination::Destination;
use index::{Index, Why, page};
use reader::{GIVEN_UP, Missed, Reader, while_saying};
use redact::Redactor;

/// Reasons of gaps that are printed.
const SHOWN: usize = 8;
/// Files that come first, and are not in the index themselves.
const FIRST: usize = 2;

/// Flags of `sluice bundle`.
#[derive(Debug, clap::Args)]
pub struct BundleArgs {
    /// File to write, in place of sluice-bundle-TIME.tar.gz in this folder; - is standard output
    #[arg(long, value_name = "PATH")]
    file: Option<String>,
    /// Tenants' objects of all namespaces. It is the default of accounts that may list pods everywhere; those of others
    /// are of one namespace
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Namespace of the installation
    #[arg(long, value_name = "NAME", default_value = names::INSTALL_NAMESPACE)]
    install_namespace: String,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Collects, writes and prints what is in it.
///
/// # Errors
/// When the API server does not answer at all, or the archive cannot be written.
pub async fn run(args: BundleArgs) -> anyhow::Result<ExitCode> {
    let taken = Timestamp::now();
    let name = format!("sluice-bundle-{}", taken.strftime("%Y%m%dT%H%M%SZ"));
    let to = match Destination::of(args.file.as_deref(), &name, args.output.output) {
        Ok(to) => to,
        Err(wrong) => {
            eprintln!("error: {wrong}");
            return Ok(ExitCode::from(destination::WRONG_ARGUMENTS));
        }
    };
    let connection = args.cluster.connect().await?;
    let reader = Reader::new(&connection);
    let bundle = while_saying(&reader, collect(&reader, &args, &name, taken)).await?;
    let Bundle { archive, index, redactor, .. } = bundle;
    let value: Value = serde_json::from_str(&redactor.clean(&index.json().to_string()))?;
    let (page, json) = (redactor.clean(&page(&index)).into_owned(), serde_json::to_string_pretty(&value)?);
    let first = [("index.md", page.as_bytes()), ("index.json", json.as_bytes())];
    let bytes = to.write(|out| archive.write(&first, out))?;
    match args.output.output {
        Format::Json | Format::Yaml => print_value(&value, args.output.output)?,
        Format::Name => print(&format!("{to}\n"))?,
        format @ (Format::Table | Format::Wide) => {
            let text = summary(&index, (&to, bytes), format);
            let text = redactor.clean(&text);
            if to.is_stdout() {
                eprint!("{}", plain(&text));
            } else {
                print(&text)?;
            }
        }
    }
    Ok(if index.is_whole() { Exit::Good } else { Exit::Unknown }.into())
}

async fn collect<'c>(
    reader: &'c Reader<'c>,
    args: &BundleArgs,
    name: &str,
    taken: Timestamp,
) -> anyhow::Result<Bundle<'c>> {
    let connection = reader.connection();
    reader.begin("asking for the version of the API server");
    let server = with_deadline(connection.deadline, connection.client.apiserver_version()).await;
    let server = server.context("could not read the version of the API server")?;
    let mut index = Index {
        taken: Timestamp::from_second(taken.as_second())?.to_string(),
        server: server.git_version,
        installation: args.install_namespace.clone(),
        ..Index::default()
    };
    index.namespace = scope(reader, args, &mut index).await;
    let archive = Archive::new(name.to_owned(), taken);
    let mut bundle = Bundle { reader, archive, index, redactor: Redactor::default() };
    bundle.installation().await?;
    add_check(&mut bundle, connection).await?;
    bundle.processes().await?;
    for source in sources::sources() {
        bundle.list(&source, |_| {}).await?;
    }
    Ok(bundle)
}

/// The namespace of tenants that is read; `None`: all. Who may not see all and has not asked for a namespace gets that of
/// the context.
async fn scope(reader: &Reader<'_>, args: &BundleArgs, index: &mut Index) -> Option<String> {
    if args.all_namespaces {
        return None;
    }
    if args.cluster.namespace.is_some() {
        return args.cluster.namespace.clone();
    }
    let one = ListParams::default().limit(1);
    match reader.page(&Kind::new("v1", "Pod"), None, &one).await {
        Err(Missed::Forbidden) => {
            let name = reader.connection().namespace.clone();
            let why = "this account may not list pods there: give -A to try each kind all the same";
            index.leave_out(format!("tenants' objects of other namespaces than {name}"), why);
            Some(name)
        }
        _ => None,
    }
}

/// What `sluice check` says.
async fn add_check(bundle: &mut Bundle<'_>, connection: &Connection) -> anyhow::Result<()> {
    bundle.reader.begin("checking the installation");
    if bundle.reader.has_given_up() {
        bundle.index.miss("what sluice check says", Why::NoAnswer(GIVEN_UP.to_owned()));
        return Ok(());
    }
    let found = check::found(connection, &bundle.index.installation).await;
    let items = found.get("items").and_then(Value::as_array).into_iter().flatten();
    let text =
        |item: &Value, field: &str| item.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    bundle.index.checks = items.map(|item| (text(item, "name"), text(item, "state"))).collect();
    let text = format!("{}\n", serde_json::to_string_pretty(&found)?);
    bundle.add("check.json", "what sluice check says", None, &text)?;
    Ok(())
}

/// For people: where it is, and what is missing.
fn summary(index: &Index, (to, bytes): (&Destination, u64), format: Format) -> String {
    let (files, objects) = (index.files.len() + FIRST, index.objects());
    let mut text = format!("{to}: {files} files, {objects} objects, {} KiB.\n", bytes.div_ceil(1024));
    let left_out: usize = index.left_out.values().map(BTreeSet::len).sum();
    if left_out > 0 {
        text.push_str(&format!("{left_out} left out: see index.md.\n"));
    }
    if index.is_whole() {
        return text;
    }
    text.push_str("Not read:\n");
    let shown = if format == Format::Wide { usize::MAX } else { SHOWN };
    for gap in index.gaps.iter().take(shown) {
        let more = gap.what.len() - 1;
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let first = gap.what.iter().next().map(String::as_str).unwrap_or_default();
        text.push_str(&format!("  {first}{more}: {}\n", gap.why.words()));
    }
    if index.gaps.len() > shown {
        text.push_str(&format!(
            "  and for {} more reasons: see index.md, or -o wide.\n",
            index.gaps.len() - shown
        ));
    }
    if !index.missing_rights().is_empty() {
        text.push_str("The rules that would allow it are in index.md.\n");
    }
    text
}
