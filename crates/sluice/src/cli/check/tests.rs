//! Judgements of what was read. That each fault is found in a real cluster is shown in `dev/e2e`.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it must be")]

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::names;
use sluice_controllers::gating::{self, Gates, LastWord};
use sluice_manifests::{InstallOptions, admission_objects, crds, install_objects, operand_objects};

use super::about::{self, Check, State};
use super::seen::{self, OTHERS, Reached, Read, Seen, lists, other, path_of};
use super::{exit, judge, table, value};
use crate::cli::printed::Exit;

const NOW: &str = "2026-01-01T00:00:00Z";

/// An installation of which nothing is to be said.
fn good() -> Seen {
    let options = InstallOptions { ca_bundle: Some("authority".to_owned()), ..InstallOptions::default() };
    let namespace = options.namespace.clone();
    let shipped = [
        crds(),
        install_objects(&options),
        operand_objects(&options, &Default::default()),
        admission_objects(&options),
    ];
    let mut objects: BTreeMap<String, Read> = BTreeMap::new();
    for mut object in shipped.concat() {
        if object["kind"] == "Deployment" {
            object["status"] = json!({ "readyReplicas": object["spec"]["replicas"] });
        }
        objects.insert(path_of(&object), Read::Is(object));
    }
    for name in [names::LEASE, names::OPERATOR] {
        let lease = json!({ "spec": { "holderIdentity": "one", "renewTime": NOW } });
        objects.insert(seen::lease(&namespace, name), Read::Is(lease));
    }
    let slice = json!({ "endpoints": [{ "conditions": { "ready": true } }] });
    objects.insert(seen::endpoints(&namespace, names::WEBHOOK), Read::Is(json!({ "items": [slice] })));
    let empty = [lists::AAQS, lists::QUOTAS, lists::CLUSTER_QUOTAS, lists::POLICIES, lists::NAMESPACES];
    let empty = empty.map(str::to_owned).into_iter().chain(OTHERS.map(other));
    objects.extend(empty.map(|path| (path, Read::Is(json!({ "items": [] })))));
    Seen {
        namespace,
        options,
        options_fault: None,
        version: Ok((1, 36)),
        now: NOW.parse::<Timestamp>().unwrap(),
        objects,
        reached: Reached::Yes(4),
        gates: gating::Seen { gates: Gates::Policy, last_word: LastWord::Policy },
    }
}

/// State, name and words of what is not good.
fn found(seen: &Seen) -> Vec<(&'static str, &'static str, String)> {
    let checks = judge::after(seen).into_iter().filter(|check| check.state != State::Good);
    checks.map(|check| (check.state.word(), check.about.name, check.found)).collect()
}

fn list(seen: &mut Seen, path: &str, items: Value) {
    seen.objects.insert(path.to_owned(), Read::Is(json!({ "items": items })));
}

#[test]
fn nothing_is_to_be_said_of_what_is_shipped_and_all_that_is_judged_is_read() {
    let seen = good();
    assert_eq!(found(&seen), []);
    let read = seen::paths(&seen.namespace, &seen.options);
    for path in &read {
        // A kustomization has other roles for the same.
        assert!(seen.objects.contains_key(path) || path.contains("/rbac.authorization.k8s.io/"), "{path}");
    }
    for path in seen.objects.keys().filter(|path| read.contains(path)) {
        let mut without = seen.clone();
        without.objects.remove(path);
        assert!(!found(&without).is_empty(), "{path} is read for nothing");
    }
}

#[test]
fn names_are_different_and_pages_exist() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut known = Vec::new();
    for about in about::ALL {
        assert!(!known.contains(&about.name), "{}", about.name);
        known.push(about.name);
        assert!(!about.hint.is_empty(), "{}", about.name);
        let (file, anchor) = about.page.split_once('#').unwrap_or((about.page, ""));
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        let anchors = text.lines().filter(|line| line.starts_with('#')).map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            title
                .chars()
                .filter(|c| c.is_alphanumeric() || " -".contains(*c))
                .collect::<String>()
                .replace(' ', "-")
        });
        assert!(
            !text.is_empty() && (anchor.is_empty() || anchors.into_iter().any(|it| it == anchor)),
            "{}",
            about.page
        );
    }
    let judged: Vec<&str> = judge::after(&good()).iter().map(|check| check.about.name).collect();
    assert!(known.iter().all(|name| judged.contains(name)), "{judged:?}");
    assert_eq!(judged.len(), known.len());
}

#[test]
fn requirements_of_others_beside_the_selector_are_no_fault() {
    let mut seen = good();
    let path = seen::webhooks("MutatingWebhookConfiguration", names::MUTATING_CONFIG);
    let Some(Read::Is(configuration)) = seen.objects.get_mut(&path) else { panic!("{path}") };
    let entries = configuration["webhooks"].as_array_mut().unwrap();
    let entry = entries.iter_mut().find(|it| it["namespaceSelector"]["matchExpressions"].is_array()).unwrap();
    let of_platform = json!({ "key": "control-plane", "operator": "DoesNotExist" });
    entry["namespaceSelector"]["matchExpressions"].as_array_mut().unwrap().push(of_platform);
    assert_eq!(found(&seen), []);

    // The AAQ says which: what followed the default is wrong then.
    let aaq = json!({ "metadata": { "name": "aaq" }, "spec": { "namespaceSelector": { "matchLabels": { "a": "b" } } } });
    list(&mut seen, lists::AAQS, json!([aaq]));
    let names: Vec<&str> = found(&seen).iter().map(|it| it.1).collect();
    assert_eq!(names, ["webhooks", "admission policies"]);
}

#[test]
fn a_right_is_given_by_any_rule_that_covers_it() {
    let mut seen = good();
    let role = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{}", names::CONTROLLER);
    seen.objects.insert(
        role.clone(),
        Read::Is(json!({ "rules": [
        { "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] },
    ] })),
    );
    assert_eq!(found(&seen), []);
    seen.objects.insert(
        role,
        Read::Is(json!({ "rules": [
        { "apiGroups": [""], "resources": ["*"], "verbs": ["*"] },
    ] })),
    );
    let words = found(&seen).remove(0).2;
    assert!(
        words.starts_with("ClusterRole sluice-controller does not give get aaqs.aaq.kubevirt.io; "),
        "{words}"
    );
}

#[test]
fn clocks_and_leases_are_compared_with_the_api_server() {
    for (seconds, expected) in [
        (-31, vec![("failed", "leader", "one, not renewed for 31 s")]),
        (-30, vec![]),
        (15, vec![]),
        (
            16,
            vec![(
                "failed",
                "clocks",
                "the clock of a node is 16 s ahead of that of the API server, by its lease",
            )],
        ),
    ] {
        let mut seen = good();
        let renewed = seen.now + jiff::SignedDuration::from_secs(seconds);
        let lease = json!({ "spec": { "holderIdentity": "one", "renewTime": renewed.to_string() } });
        seen.objects.insert(seen::lease(&seen.namespace, names::LEASE), Read::Is(lease));
        let found = found(&seen);
        let found: Vec<_> =
            found.iter().map(|(state, name, words)| (*state, *name, words.as_str())).collect();
        assert_eq!(found, expected, "{seconds} s");
    }
}

#[test]
fn what_cannot_be_looked_at_is_told_and_ends_otherwise_than_what_fails() {
    let mut seen = good();
    let forbidden = Read::Unknown("forbidden".to_owned());
    seen.objects.insert(lists::QUOTAS.to_owned(), forbidden);
    let checks = judge::after(&seen);
    assert_eq!(found(&seen), [("unknown", "quotas", "forbidden".to_owned())]);
    assert_eq!(exit(&checks), Exit::Unknown);
    let paused = json!({ "metadata": { "name": "team", "annotations": {
        names::PAUSED_ANNOTATION: "2026-01-01T01:00:00Z", names::PAUSED_SINCE_ANNOTATION: NOW,
    } } });
    let mut seen = good();
    list(&mut seen, lists::NAMESPACES, json!([paused]));
    let checks = judge::after(&seen);
    assert_eq!(exit(&checks), Exit::Good, "a warning");
    let said = value(&checks);
    let pauses = said["items"].as_array().unwrap().iter().find(|it| it["name"] == "pauses").unwrap();
    assert_eq!(pauses["found"], "namespace team until 2026-01-01T01:00:00Z");
    seen.version = Ok((1, 30));
    let checks: Vec<Check> = judge::after(&seen);
    assert_eq!(exit(&checks), Exit::Held);
    insta::assert_snapshot!(table(&checks));
}

#[test]
fn the_path_of_the_webhook_is_not_told() {
    let said = "failed to call webhook: Post \"https://10.0.0.1:8443/5ec7e7/explain?timeout=3s\": EOF; https://a/b c";
    assert_eq!(
        seen::without_paths(said),
        "failed to call webhook: Post \"https://10.0.0.1:8443\": EOF; https://a c"
    );
    assert_eq!(seen::without_paths("no address"), "no address");
}
