//! Names that exist in the cluster, for a command line that is being written. They are read with the user's own rights;
//! where nothing can be read there are none.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use clap::{Arg, Args as _, Command, FromArgMatches as _};
use clap_complete::engine::{CompletionCandidate, ValueCompleter};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, ResourceExt as _};
use rustix::process::{Signal, kill_current_process_group, setsid};
use sluice_api::names::API_VERSION;
use sluice_runtime::client::{ClientOptions, connect};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use super::names::NamesOf;
use crate::cli::cluster::ClusterArgs;
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

/// The flags of the words so far that say which cluster is meant, and how and by whose rights it is asked, as each command
/// reads them; `None`: a command would refuse them.
fn cluster(words: &[String]) -> Option<ClusterArgs> {
    let command = ClusterArgs::augment_args(Command::new("").no_binary_name(true));
    let written = written(&command, words);
    ClusterArgs::from_arg_matches(&command.try_get_matches_from(written).ok()?).ok()
}

/// The flags of this command among the words, with their values.
fn written<'w>(command: &Command, words: &'w [String]) -> Vec<&'w str> {
    let mut words = words.iter().map(String::as_str);
    let mut written = Vec::new();
    while let Some(word) = words.next() {
        let (flag, value) = word.split_once('=').map_or((word, None), |(flag, value)| (flag, Some(value)));
        let is_it = |arg: &&Arg| {
            arg.get_long().is_some_and(|long| flag.strip_prefix("--") == Some(long))
                || arg.get_short().is_some_and(|short| flag == format!("-{short}"))
        };
        let Some(arg) = command.get_arguments().find(is_it) else { continue };
        if value.is_some() || !arg.get_action().takes_values() {
            written.push(word);
        } else if let Some(value) = words.next() {
            written.extend([word, value]);
        }
    }
    written
}

fn contexts(words: &[String]) -> Vec<String> {
    let file = cluster(words).and_then(|cluster| cluster.file().ok());
    file.map(|file| file.contexts.into_iter().map(|context| context.name).collect()).unwrap_or_default()
}

/// In the middle of a command line completion asks for no password, and does not wait for a plug-in of the kubeconfig that
/// does not end.
fn listed(words: &[String], kind: (GroupVersionKind, bool)) -> Vec<String> {
    let Some(cluster) = cluster(words) else { return Vec::new() };
    // A plug-in is waited for by the thread that asks for its answer. Another one has to be there for the time to pass.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let Ok(runtime) = runtime else { return Vec::new() };
    // A plug-in finds no terminal then, and all that it starts is in a group of this process. Where a shell has made this
    // process the first of a group, that is not to be had.
    let is_alone = setsid().is_ok();
    let asked = runtime.spawn(names_of(cluster, kind));
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
    cluster: ClusterArgs,
    (kind, is_namespaced): (GroupVersionKind, bool),
) -> Option<Vec<String>> {
    let options = ClientOptions { is_unattended: true, ..cluster.options(&Arc::default()).ok()? };
    let client = connect(&options).await.ok()?;
    let namespace = cluster.namespace.unwrap_or_else(|| client.default_namespace().to_owned());
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
    use std::path::Path;

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
    fn names_are_asked_for_as_the_flags_say() {
        let typed = "sluice why pod --kubeconfig=/a/b -n team --as=jane --as-group g --as-group=h --token t -o json \
            -s https://a:1 --certificate-authority /ca --client-certificate=/c --client-key /k --tls-server-name b x";
        let read = cluster(&words(typed)).unwrap();
        assert_eq!(read.namespace.as_deref(), Some("team"));
        let read = read.options(&Arc::default()).unwrap();
        assert_eq!(read.kubeconfig.as_deref(), Some(Path::new("/a/b")));
        let named = [read.impersonate, read.impersonate_uid, read.token, read.context];
        assert_eq!(named.map(Option::unwrap_or_default), ["jane", "", "t", ""]);
        assert_eq!(read.impersonate_groups, ["g", "h"]);
        assert_eq!(read.server.unwrap().url, "https://a:1");
        let files = [read.tls.authority, read.tls.certificate, read.tls.key];
        assert_eq!(files.map(Option::unwrap), ["/ca", "/c", "/k"].map(Path::new));
        assert_eq!((read.tls.server_name.as_deref(), read.tls.insecure), (Some("b"), false));
        let unchecked = cluster(&words("sluice why pod --insecure-skip-tls-verify x -n")).unwrap();
        assert_eq!(unchecked.namespace, None, "it is still being written");
        assert!(unchecked.options(&Arc::default()).unwrap().tls.insecure);
        let refused =
            cluster(&words("sluice why pod --insecure-skip-tls-verify --certificate-authority /ca x"));
        assert!(refused.is_none(), "{refused:?}");
    }
}
