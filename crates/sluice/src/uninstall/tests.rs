//! What is printed, and which arguments go together.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it must be"
)]

use std::collections::BTreeMap;

use clap::Parser;
use sluice_manifests::uninstall::{Collection, Found, Part, Seen, Wish, definitions, inventory, plan};

use super::UninstallArgs;
use super::release::Released;
use super::report::{Action, Report};
use super::requests::said;
use super::restore::Restored;

#[derive(Debug, Parser)]
struct Command {
    #[command(flatten)]
    args: UninstallArgs,
}

fn parse(line: &str) -> Result<UninstallArgs, clap::Error> {
    let words = ["uninstall"].into_iter().chain(line.split_whitespace());
    Command::try_parse_from(words).map(|command| command.args)
}

fn full() -> Seen {
    let found =
        |index: usize| Found { uid: index.to_string(), is_ours: true, replicas: 1, ..Found::default() };
    // An installation has the names of one naming.
    let is_own = |part: &Part| !part.object.name.starts_with("aaq-");
    let parts = inventory("sluice-system").into_iter().filter(is_own).enumerate();
    Seen {
        namespace: "sluice-system".to_owned(),
        parts: parts.map(|(index, part)| (part, found(index))).collect(),
        definitions: Vec::new(),
        collections: BTreeMap::from([
            (Collection::Quotas, 12),
            (Collection::ManagedQuotas, 2),
            (Collection::Aaqs, 1),
        ]),
        ending: BTreeMap::new(),
        processes: 4,
        held: 300,
        raised: 1,
        finalized: 0,
    }
}

#[test]
fn what_users_have_written_is_deleted_only_with_two_flags() {
    assert_eq!(parse("").unwrap().wish(), Wish::default());
    assert!(!parse("").unwrap().is_unsure());
    assert!(parse("--delete-quotas").unwrap().is_unsure());
    assert!(!parse("--delete-quotas --yes").unwrap().is_unsure());
    assert!(!parse("--delete-quotas --dry-run").unwrap().is_unsure(), "it changes nothing");
    assert!(parse("--delete-crds --yes").is_err(), "they take the quotas along");
    assert!(parse("--keep-quotas --delete-quotas").is_err());
    let all = parse("--delete-quotas --delete-crds --yes --keep-objects").unwrap().wish();
    assert_eq!(all, Wish { keep_objects: true, quotas: true, definitions: true, ..Wish::default() });
}

#[test]
fn a_dry_run_says_what_would_be_done() {
    let (seen, wish) = (full(), Wish::default());
    let mut report = Report::new("sluice-system", true);
    plan(&seen, &wish).iter().for_each(|step| report.planned(step, &seen));
    report.end(&seen, &wish);
    let said = report.to_string();
    let lines: Vec<_> =
        said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in [
        "ACTION KIND OBJECTS",
        "stop Deployment sluice-operator, sluice-controller, sluice-webhook",
        "release Pod 300",
        "restore ResourceQuota 1",
        "delete ResourceQuota 2",
        "keep ApplicationAwareResourceQuota 12",
        "keep AAQ 1",
    ] {
        assert!(lines.iter().any(|each| each == line), "{line}:\n{said}");
    }
    let last = lines.last().unwrap();
    assert!(last.starts_with("would release 300 pods, restore 1 quota, delete "), "{last}");
    assert!(last.ends_with(", keep 13 objects, leave 0 objects; nothing was changed"), "{last}");
}

#[test]
fn what_is_left_is_told_with_a_remedy() {
    let mut seen = full();
    seen.parts.retain(|(part, _)| part.object.kind.kind == "Service");
    seen.parts.truncate(1);
    seen.parts[0].1.is_ours = false;
    let mut report = Report::new("sluice-system", false);
    let webhook = "pod a/b: refused by webhook x";
    let released = |pods, left| Released { pods, left, why: Some(webhook.to_owned()), ..Released::default() };
    report.released(&released(299, 2));
    // A later round gets further.
    report.released(&released(1, 1));
    report.restored(&Restored { quotas: 1, left: vec![("shop/quota".to_owned(), "forbidden".to_owned())] });
    report.count(Action::Delete, "ResourceQuota", 2);
    report.left_namespace("sluice-system", "in it is an object of others: Pod web", "move it");
    report.end(&seen, &Wish::default());
    assert!(report.is_anything_left());
    let said = report.to_string();
    for part in [
        "1: they wait still: pod a/b: refused by webhook x: see to that",
        "shop/quota: status.hard is above spec.hard still: forbidden",
        "it has not Sluice's label: if it is of Sluice, kubectl delete services sluice-",
        "in it is an object of others: Pod web: move it",
        "released 300 pods, restored 1 quota, deleted 2 objects, kept 13 objects, left 4 objects\n",
    ] {
        assert!(said.contains(part), "{part}:\n{said}");
    }
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["rows"][0], serde_json::json!({ "action": "release", "kind": "Pod", "count": 300 }));
    assert_eq!(json["namespace"], "sluice-system");
    assert_eq!(json["dryRun"], false);
}

#[test]
fn what_does_not_end_and_what_is_of_others_is_told() {
    let mut seen = Seen { namespace: "sluice-system".to_owned(), ..Seen::default() };
    seen.ending = BTreeMap::from([(Collection::Mirrors, 2), (Collection::Quotas, 5)]);
    let of_others = Found { is_of_others: true, ..Found::default() };
    seen.definitions = definitions().into_iter().take(1).map(|object| (object, of_others.clone())).collect();
    let mut report = Report::new("sluice-system", false);
    report.running(vec!["sluice-controller-1".to_owned()]);
    report.end(&seen, &Wish { quotas: false, definitions: true, ..Wish::default() });
    report.kept_home("sluice-system");
    let said = report.to_string();
    for part in [
        "pod sluice-controller-1: its node does not answer",
        "2: they wait for their finalizers: kubectl get applicationawareappliedclusterresourcequotas.",
        "it has an owner, or a label of another program",
        "sluice-system: it goes after everything else",
        "left 5 objects\n",
    ] {
        assert!(said.contains(part), "{part}:\n{said}");
    }
    let mut report = Report::new("sluice-system", false);
    report.again();
    assert!(report.is_anything_left());
}

#[test]
fn a_quota_that_is_raised_still_keeps_its_guards() {
    assert_eq!(Restored { quotas: 3, left: Vec::new() }.holds_up(), None);
    let left = vec![("shop/quota".to_owned(), "forbidden".to_owned())];
    let said = Restored { quotas: 3, left }.holds_up().unwrap();
    assert!(said.ends_with("what guards them stays: shop/quota: forbidden"), "{said}");
}

#[test]
fn nothing_to_do_is_one_line() {
    let report = Report::new("sluice-system", false);
    assert!(!report.is_anything_left());
    let nothing = "released 0 pods, restored 0 quotas, deleted 0 objects, kept 0 objects, left 0 objects\n";
    assert_eq!(report.to_string(), nothing);
}

#[test]
fn missing_rights_are_named_once() {
    let steps = plan(&full(), &Wish::default());
    let all: Vec<_> = sluice_manifests::uninstall::rights(&steps, "sluice-system").into_iter().collect();
    let said = said(&all);
    assert!(said.contains("delete validatingadmissionpolicies.admissionregistration.k8s.io"), "{said}");
    assert_eq!(said.matches("delete clusterroles.").count(), 1, "{said}");
}
