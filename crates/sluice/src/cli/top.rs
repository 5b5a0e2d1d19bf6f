//! `sluice top`: who takes how much, by what the status of quotas says.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use serde_json::{Value, json};
use sluice_api::{ApplicationAwareClusterResourceQuota, ApplicationAwareResourceQuota};
use sluice_engine::{Format as NumberFormat, Quantity};
use sluice_gate::{duration, percent, plain};
use sluice_index::{VmimRecord, VmimWire};

use super::cluster::{ClusterArgs, Connection};
use super::list::place;
use super::lists::{Lists, Where};
use super::printed::{Exit, Format, OutputArgs, is_closed, print, print_value, table};
use super::world::World;

/// Between two looks with `--watch`.
const PAUSE: Duration = Duration::from_secs(2);

/// Flags of `sluice top`.
#[derive(Debug, clap::Args)]
pub struct TopArgs {
    /// What to show
    #[arg(value_enum, default_value_t = What::Quotas)]
    what: What,
    /// In all namespaces, and cluster quotas
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Order
    #[arg(long, value_enum, default_value_t = Sort::Percent)]
    sort: Sort,
    /// Only this key of quotas; of pods what they take of it, which is of requests.cpu otherwise
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Only quotas whose namespace or name contains this text
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Again and again, until Ctrl-C
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Each key of each quota
    Quotas,
    /// Namespaces by their fullest quota
    Namespaces,
    /// Pods by what they take of quotas
    Pods,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Sort {
    /// By how full a quota is
    Percent,
    /// By since when its oldest pod waits
    Wait,
    /// By how many pods wait
    Held,
    /// By namespace and name
    Name,
}

/// One key of a quota, or a line about a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    /// Empty for a cluster quota.
    namespace: String,
    name: String,
    key: String,
    used: Option<Quantity>,
    limit: Option<Quantity>,
    percent: i64,
    held: i64,
    since: Option<i64>,
    /// How many migrations of the namespace native quotas have rejected; `None` where that is not asked for.
    blocked: Option<usize>,
}

impl Row {
    fn cells(&self, now: i64) -> Vec<String> {
        let amount = |amount: Option<Quantity>| amount.map(|amount| amount.to_string()).unwrap_or_default();
        let namespace =
            if self.namespace.is_empty() { "(cluster)".to_owned() } else { self.namespace.clone() };
        let oldest = self.since.map(|since| duration(now - since)).unwrap_or_default();
        let mut cells = vec![
            namespace,
            self.name.clone(),
            self.key.clone(),
            amount(self.used),
            amount(self.limit),
            format!("{}%", self.percent),
            self.held.to_string(),
            oldest,
        ];
        cells.extend(self.blocked.map(|count| count.to_string()));
        cells
    }

    fn json(&self) -> Value {
        json!({
            "namespace": self.namespace, "name": self.name, "key": self.key,
            "used": self.used.map(|amount| amount.to_string()), "limit": self.limit.map(|amount| amount.to_string()),
            "percent": self.percent, "held": self.held,
            "heldSince": self.since.and_then(|since| Timestamp::from_second(since).ok()).map(|since| since.to_string()),
        })
    }
}

/// Shows it once, or again and again.
///
/// # Errors
/// When the cluster cannot be read.
pub async fn run(args: TopArgs) -> anyhow::Result<ExitCode> {
    let connection = args.cluster.connect().await?;
    let mut exit = look(&args, &connection).await?;
    while args.watch && !is_closed() {
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            _ = tokio::signal::ctrl_c() => break,
        }
        // A bad day is when people watch.
        match look(&args, &connection).await {
            Ok(seen) => exit = seen,
            Err(error) => eprintln!("{}", plain(&format!("not looked at, tried again in 2 s: {error:#}"))),
        }
    }
    Ok(exit.into())
}

async fn look(args: &TopArgs, connection: &Connection) -> anyhow::Result<Exit> {
    let mut lists = Lists::new(connection);
    let (head, mut rows) = match args.what {
        What::Pods => return pods(args, connection).await,
        What::Quotas => (
            ["NAMESPACE", "QUOTA", "KEY", "USED", "LIMIT", "%", "HELD", "OLDEST"],
            rows(args, &mut lists).await?,
        ),
        What::Namespaces => {
            let rows = rows(args, &mut lists).await?;
            (["NAMESPACE", "FULLEST", "KEY", "USED", "LIMIT", "%", "HELD", "OLDEST"], by_namespace(rows))
        }
    };
    sort(&mut rows, args.sort);
    if args.output.output == Format::Wide {
        let blocked = blocked(args, &mut lists).await?;
        rows.iter_mut().for_each(|row| row.blocked = Some(blocked.get(&row.namespace).copied().unwrap_or(0)));
    }
    let now = connection.now();
    let missing = lists.missing();
    match args.output.output {
        Format::Json | Format::Yaml => {
            let items: Vec<_> = rows.iter().map(Row::json).collect();
            let value = json!({
                "apiVersion": "cli.sluice.dev/v1", "kind": "TopList", "items": items, "missingRights": missing,
            });
            print_value(&value, args.output.output)?;
        }
        Format::Name => {
            let names: std::collections::BTreeSet<String> =
                rows.iter().map(|row| format!("{}/{}\n", row.namespace, row.name)).collect();
            print(&names.into_iter().collect::<String>())?;
        }
        Format::Table | Format::Wide => {
            let is_wide = args.output.output == Format::Wide;
            let head = head.into_iter().chain(is_wide.then_some("BLOCKED MIGRATIONS"));
            let head: Vec<String> = head.map(str::to_owned).collect();
            let text = table(
                &std::iter::once(head).chain(rows.iter().map(|row| row.cells(now))).collect::<Vec<_>>(),
            );
            clear(args);
            if rows.is_empty() && missing.is_empty() {
                let what = if args.key.is_some() || args.filter.is_some() { "such quotas" } else { "quotas" };
                eprintln!("no {what} {}", place(args.all_namespaces, &connection.namespace));
            } else {
                print(&text)?;
            }
        }
    }
    missing.iter().for_each(|right| eprintln!("missing right: {right}"));
    Ok(if missing.is_empty() { Exit::Good } else { Exit::Unknown })
}

/// On a terminal the last look is replaced.
fn clear(args: &TopArgs) {
    if args.watch && std::io::stdout().is_terminal() {
        print!("\u{1b}[2J\u{1b}[H");
    }
}

async fn rows(args: &TopArgs, lists: &mut Lists<'_>) -> anyhow::Result<Vec<Row>> {
    let namespace = lists.connection.namespace.clone();
    let place = if args.all_namespaces { Where::Everywhere } else { Where::Namespace(&namespace) };
    let mut rows = Vec::new();
    for quota in lists.all::<ApplicationAwareResourceQuota>(place).await?.unwrap_or_default() {
        let status = quota.status.unwrap_or_default();
        let since = status.held_since.map(|since| since.0.as_second());
        let about = (quota.metadata.namespace, quota.metadata.name, status.held, since);
        rows.extend(of_quota(about, &quota.spec.hard, &status.used));
    }
    if args.all_namespaces {
        for quota in lists.all_of_cluster::<ApplicationAwareClusterResourceQuota>().await?.unwrap_or_default()
        {
            let status = quota.status.unwrap_or_default();
            let since = status.held_since.map(|since| since.0.as_second());
            let about = (None, quota.metadata.name, status.held, since);
            rows.extend(of_quota(about, &quota.spec.quota.hard, &status.total.used));
        }
    }
    let is_asked = |row: &Row| {
        let filter = args.filter.as_deref().unwrap_or_default();
        args.key.as_ref().is_none_or(|key| row.key == *key)
            && (row.namespace.contains(filter) || row.name.contains(filter))
    };
    rows.retain(is_asked);
    Ok(rows)
}

/// By namespace, how many migrations wait that a native quota has rejected.
async fn blocked(args: &TopArgs, lists: &mut Lists<'_>) -> anyhow::Result<BTreeMap<String, usize>> {
    let namespace = lists.connection.namespace.clone();
    let place = if args.all_namespaces { Where::Everywhere } else { Where::Namespace(&namespace) };
    let mut blocked = BTreeMap::new();
    for wire in lists.all::<VmimWire>(place).await?.unwrap_or_default() {
        let migration = VmimRecord::read(&wire);
        if migration.is_waiting() {
            *blocked.entry(migration.namespace.to_string()).or_default() += 1;
        }
    }
    Ok(blocked)
}

type About = (Option<String>, Option<String>, Option<i64>, Option<i64>);

fn of_quota(
    (namespace, name, held, since): About,
    hard: &BTreeMap<String, Text>,
    used: &BTreeMap<String, Text>,
) -> Vec<Row> {
    let read = |text: Option<&Text>| text.and_then(|text| Quantity::parse(&text.0).ok());
    let row = |(key, limit): (&String, &Text)| {
        let (used, limit) = (read(used.get(key)), read(Some(limit)));
        Row {
            namespace: namespace.clone().unwrap_or_default(),
            name: name.clone().unwrap_or_default(),
            key: key.clone(),
            used,
            limit,
            percent: used.zip(limit).map_or(0, |(used, limit)| percent(used, limit)),
            held: held.unwrap_or_default(),
            since,
            blocked: None,
        }
    };
    hard.iter().map(row).collect()
}

/// Of each namespace the fullest key, and all pods that wait.
fn by_namespace(rows: Vec<Row>) -> Vec<Row> {
    let mut by_name: BTreeMap<String, Row> = BTreeMap::new();
    let mut held: BTreeMap<(String, String), (i64, Option<i64>)> = BTreeMap::new();
    for row in rows {
        held.insert((row.namespace.clone(), row.name.clone()), (row.held, row.since));
        match by_name.get(&row.namespace) {
            Some(known) if known.percent >= row.percent => {}
            _ => drop(by_name.insert(row.namespace.clone(), row)),
        }
    }
    let mut rows: Vec<Row> = by_name.into_values().collect();
    for row in &mut rows {
        let own =
            || held.iter().filter(|((namespace, _), _)| *namespace == row.namespace).map(|(_, told)| told);
        // A pod may wait for several quotas.
        let (most, since) = (own().map(|(held, _)| *held).max(), own().filter_map(|(_, since)| *since).min());
        (row.held, row.since) = (most.unwrap_or_default(), since);
    }
    rows
}

fn sort(rows: &mut [Row], by: Sort) {
    rows.sort_by(|one, other| {
        (&one.namespace, &one.name, &one.key).cmp(&(&other.namespace, &other.name, &other.key))
    });
    match by {
        Sort::Name => {}
        Sort::Percent => rows.sort_by_key(|row| Reverse(row.percent)),
        Sort::Held => rows.sort_by_key(|row| Reverse(row.held)),
        Sort::Wait => rows.sort_by_key(|row| row.since.unwrap_or(i64::MAX)),
    }
}

/// Pods by what they take of a key.
async fn pods(args: &TopArgs, connection: &Connection) -> anyhow::Result<Exit> {
    let world = match args.all_namespaces {
        true => World::everywhere(connection).await?,
        false => World::of_namespace(connection, &connection.namespace).await?,
    };
    let key = args.key.as_deref().unwrap_or("requests.cpu");
    let mut taking = world.look(|state| state.takers_of_key(key));
    taking.sort_by_key(|(namespace, name, amount)| (Reverse(*amount), namespace.clone(), name.clone()));
    let bytes = ["memory", "storage", "hugepages-"].iter().any(|word| key.contains(word));
    let format = if bytes { NumberFormat::BinarySi } else { NumberFormat::DecimalSi };
    let rows = taking
        .into_iter()
        .map(|(namespace, name, amount)| (namespace, name, amount.quantity(format).to_string()));
    let rows: Vec<_> = rows.collect();
    match args.output.output {
        Format::Json | Format::Yaml => {
            let items: Vec<_> = rows
                .iter()
                .map(|(namespace, name, amount)| json!({ "namespace": **namespace, "name": **name, "amount": amount }))
                .collect();
            let value = json!({
                "apiVersion": "cli.sluice.dev/v1", "kind": "TopPodList", "key": key, "items": items,
                "missingRights": world.missing,
            });
            print_value(&value, args.output.output)?;
        }
        Format::Name => print(&rows.iter().map(|(_, name, _)| format!("pod/{name}\n")).collect::<String>())?,
        Format::Table | Format::Wide => {
            let head = vec!["NAMESPACE".to_owned(), "POD".to_owned(), key.to_owned()];
            let rows = rows.iter().map(|(namespace, name, amount)| {
                vec![namespace.to_string(), name.to_string(), amount.clone()]
            });
            let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
            clear(args);
            if rows.len() == 1 && world.knows_pods {
                let place = place(args.all_namespaces, &connection.namespace);
                eprintln!("no pods that take {key} of quotas {place}");
            } else {
                print(&table(&rows))?;
            }
        }
    }
    world.tell_what_is_missing();
    Ok(if world.knows_pods { Exit::Good } else { Exit::Unknown })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(namespace: &str, name: &str, percent: i64, held: i64, since: Option<i64>) -> Row {
        let (namespace, name, key) = (namespace.to_owned(), name.to_owned(), "pods".to_owned());
        Row { namespace, name, key, used: None, limit: None, percent, held, since, blocked: None }
    }

    #[test]
    fn rows_are_sorted_as_asked_and_by_name_where_that_is_equal() {
        let all = [row("b", "q", 50, 0, None), row("a", "q", 50, 3, Some(9)), row("c", "q", 90, 1, Some(5))];
        let sorted = |by| {
            let mut rows = all.to_vec();
            sort(&mut rows, by);
            rows.into_iter().map(|row| row.namespace).collect::<String>()
        };
        assert_eq!(
            [Sort::Percent, Sort::Held, Sort::Wait, Sort::Name].map(sorted),
            ["cab", "acb", "cab", "abc"]
        );
    }

    #[test]
    fn a_namespace_shows_its_fullest_quota_and_its_oldest_wait() {
        let rows = by_namespace(vec![
            row("a", "one", 10, 2, Some(7)),
            row("a", "two", 90, 2, Some(4)),
            row("b", "q", 0, 0, None),
        ]);
        assert_eq!(rows, [row("a", "two", 90, 2, Some(4)), row("b", "q", 0, 0, None)]);
    }
}
