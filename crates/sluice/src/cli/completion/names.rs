//! Names that exist in the cluster, for a command line that is being written. They are read with the user's own rights;
//! where nothing can be read there are none.

use std::ffi::OsStr;
use std::time::Duration;

use clap_complete::engine::{CompletionCandidate, ValueCompleter};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::config::Kubeconfig;
use kube::{Api, ResourceExt as _};
use rustix::process::{Signal, kill_current_process_group, setsid};
use sluice_api::names::API_VERSION;
use sluice_runtime::client::{ClientOptions, Server, connect};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use crate::cli::why::kind::Kind;

/// A person waits for the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// So many names are offered at most.
const MOST: u32 = 500;
const KUBEVIRT: &str = "kubevirt.io";
/// What `why` knows, as it is written in its help.
const KINDS: [&str; 11] = [
    "pod",
    "vm",
    "vmi",
    "migration",
    "quota",
    "clusterquota",
    "deployment",
    "statefulset",
    "daemonset",
    "replicaset",
    "job",
];

/// Whose names are meant.
#[derive(Clone, Copy, Debug)]
pub enum NamesOf {
    /// `TYPE NAME`, or `TYPE/NAME`.
    Subject,
    Nodes,
    Namespaces,
    Quotas,
    /// Of the kubeconfig.
    Contexts,
}

impl ValueCompleter for NamesOf {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        let words = super::words();
        let current = current.to_string_lossy();
        let all = match wanted(*self, &current, &words) {
            Names::These(names) => names,
            Names::Contexts => contexts(&words),
            Names::Objects { kind, before } => {
                listed(&words, kind).into_iter().map(|name| format!("{before}{name}")).collect()
            }
        };
        all.into_iter().filter(|name| name.starts_with(&*current)).map(CompletionCandidate::new).collect()
    }
}

/// What a word may be.
#[derive(Debug, PartialEq, Eq)]
enum Names {
    These(Vec<String>),
    Contexts,
    /// Names of objects, with what stands before them.
    Objects {
        kind: (GroupVersionKind, bool),
        before: String,
    },
}

fn wanted(of: NamesOf, current: &str, words: &[String]) -> Names {
    let none = || Names::These(Vec::new());
    let objects = |kind, before| Names::Objects { kind, before };
    match of {
        NamesOf::Contexts => Names::Contexts,
        NamesOf::Nodes => objects((GroupVersionKind::gvk("", "v1", "Node"), false), String::new()),
        NamesOf::Namespaces => objects((GroupVersionKind::gvk("", "v1", "Namespace"), false), String::new()),
        NamesOf::Quotas => objects(kind_of(Kind::Quota), String::new()),
        NamesOf::Subject => match current.split_once('/') {
            Some((kind, _)) => {
                Kind::read(kind).map_or_else(none, |read| objects(kind_of(read), format!("{kind}/")))
            }
            None => {
                // Flags may stand between the type and the name.
                let before = words.iter().skip_while(|word| *word != "why").skip(1);
                let kind = before.filter(|word| *word != current).find_map(|word| Kind::read(word));
                kind.map_or_else(
                    || Names::These(KINDS.map(str::to_owned).to_vec()),
                    |kind| objects(kind_of(kind), String::new()),
                )
            }
        },
    }
}

/// The kind, and whether its objects are in namespaces.
fn kind_of(kind: Kind) -> (GroupVersionKind, bool) {
    let (group, version) = API_VERSION.split_once('/').unwrap_or_default();
    let ours = |name| GroupVersionKind::gvk(group, version, name);
    match kind {
        Kind::Pod => (GroupVersionKind::gvk("", "v1", "Pod"), true),
        Kind::Vm => (GroupVersionKind::gvk(KUBEVIRT, "v1", "VirtualMachine"), true),
        Kind::Vmi => (GroupVersionKind::gvk(KUBEVIRT, "v1", "VirtualMachineInstance"), true),
        Kind::Migration => (GroupVersionKind::gvk(KUBEVIRT, "v1", "VirtualMachineInstanceMigration"), true),
        Kind::Quota => (ours("ApplicationAwareResourceQuota"), true),
        Kind::ClusterQuota => (ours("ApplicationAwareClusterResourceQuota"), false),
        Kind::Workload(group, version, name) => (GroupVersionKind::gvk(group, version, name), true),
    }
}

/// The values of a flag among the words so far.
fn flags(words: &[String], names: &[&str]) -> Vec<String> {
    let mut words = words.iter();
    let mut values = Vec::new();
    while let Some(word) = words.next() {
        let joined = || names.iter().find_map(|name| word.strip_prefix(name)?.strip_prefix('='));
        match joined() {
            Some(value) => values.push(value.to_owned()),
            None if names.contains(&word.as_str()) => values.extend(words.next().cloned()),
            None => {}
        }
    }
    values
}

/// The flags that say which cluster is meant and by whose rights, as far as they are written.
fn options(words: &[String]) -> ClientOptions {
    let all = |names: &[&str]| flags(words, names);
    let last = |name: &str| all(&[name]).pop();
    let url = all(&["--server", "-s"]).pop().and_then(|url| url.parse().ok());
    ClientOptions {
        kubeconfig: last("--kubeconfig").map(Into::into),
        context: last("--context"),
        cluster: last("--cluster"),
        user: last("--user"),
        server: url.map(|url| Server { url, tls_name: last("--tls-server-name") }),
        token: last("--token"),
        impersonate: last("--as"),
        impersonate_groups: all(&["--as-group"]),
        impersonate_uid: last("--as-uid"),
        is_unattended: true,
        user_agent: concat!("sluice-cli/", env!("CARGO_PKG_VERSION")).to_owned(),
        ..ClientOptions::default()
    }
}

fn contexts(words: &[String]) -> Vec<String> {
    let read = match flags(words, &["--kubeconfig"]).pop() {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    read.map(|file| file.contexts.into_iter().map(|context| context.name).collect()).unwrap_or_default()
}

/// In the middle of a command line completion asks for no password, and does not wait for a plug-in of the kubeconfig that
/// does not end.
fn listed(words: &[String], kind: (GroupVersionKind, bool)) -> Vec<String> {
    // A plug-in is waited for by the thread that asks for its answer. Another one has to be there for the time to pass.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let Ok(runtime) = runtime else { return Vec::new() };
    // A plug-in finds no terminal then, and all that it starts is in a group of this process. Where a shell has made this
    // process the first of a group, that is not to be had.
    let is_alone = setsid().is_ok();
    let asked = runtime.spawn(names_of(options(words), flags(words, &["--namespace", "-n"]).pop(), kind));
    let names = runtime.block_on(async {
        match timeout(PATIENCE, asked).await {
            Ok(answered) => answered.ok().flatten(),
            Err(_) => {
                if is_alone {
                    end_plug_ins();
                }
                None
            }
        }
    });
    runtime.shutdown_background();
    names.unwrap_or_default()
}

async fn names_of(
    options: ClientOptions,
    namespace: Option<String>,
    (kind, is_namespaced): (GroupVersionKind, bool),
) -> Option<Vec<String>> {
    let client = connect(&options).await.ok()?;
    let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = match is_namespaced {
        true => Api::namespaced_with(client, &namespace, &resource),
        false => Api::all_with(client, &resource),
    };
    let list = api.list_metadata(&ListParams::default().limit(MOST)).await.ok()?;
    Some(list.items.iter().map(|object| object.name_any()).collect())
}

/// Ends all of the group but this process, for which the signal has another meaning from now on.
fn end_plug_ins() {
    if signal(SignalKind::terminate()).is_ok() {
        // A plug-in that has ended needs no signal.
        let _ = kill_current_process_group(Signal::TERM);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn types_come_first_and_then_names_of_the_type() {
        let Names::These(types) = wanted(NamesOf::Subject, "v", &words("sluice why v")) else {
            panic!("no types")
        };
        assert!(types.iter().all(|kind| Kind::read(kind).is_some()) && types.len() == KINDS.len());
        let of =
            |kind: &str| match wanted(NamesOf::Subject, "x", &words(&format!("sluice why {kind} -n a x"))) {
                Names::Objects { kind: (kind, is_namespaced), before } => (kind.kind, is_namespaced, before),
                other => panic!("{other:?}"),
            };
        assert_eq!(of("vm"), ("VirtualMachine".to_owned(), true, String::new()));
        assert_eq!(of("acrq"), ("ApplicationAwareClusterResourceQuota".to_owned(), false, String::new()));
        assert_eq!(of("sts"), ("StatefulSet".to_owned(), true, String::new()));
        let slash = wanted(NamesOf::Subject, "po/tr", &words("sluice why po/tr"));
        assert!(matches!(slash, Names::Objects { before, .. } if before == "po/"));
        assert_eq!(wanted(NamesOf::Subject, "x/tr", &words("sluice why x/tr")), Names::These(Vec::new()));
        let same = wanted(NamesOf::Subject, "pod", &words("sluice why pod"));
        assert!(matches!(same, Names::These(_)), "the type is still being written: {same:?}");
    }

    #[test]
    fn names_are_asked_for_by_the_rights_that_the_flags_name() {
        let typed = "sluice why pod --kubeconfig=/a/b -n team --as=jane --as-group g --as-group=h --token t --user u x";
        let read = options(&words(typed));
        assert_eq!(read.kubeconfig.as_deref(), Some(std::path::Path::new("/a/b")));
        let named = [read.impersonate, read.impersonate_uid, read.token, read.user, read.context];
        assert_eq!(named.map(Option::unwrap_or_default), ["jane", "", "t", "u", ""]);
        assert_eq!(read.impersonate_groups, ["g", "h"]);
        assert_eq!(flags(&words("sluice why pod -n"), &["-n"]), [""; 0], "it is still being written");
    }
}
