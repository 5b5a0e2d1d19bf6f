//! The list after each kind of crash, and what it prints.

use serde_json::{Value, json};

use super::plan::{Leftovers, Seen, plan};

fn lock(name: &str) -> Value {
    json!({ "metadata": { "name": name, "creationTimestamp": "2026-01-01T00:00:00Z" } })
}

fn quota(namespace: &str, memory: &str) -> Value {
    let hard = json!({ "requests.memory": memory, "count/a.b": "4" });
    json!({ "metadata": { "name": "rq", "namespace": namespace }, "spec": { "hard": hard } })
}

/// Of a quota of 1Gi that is raised by this much.
fn record(namespace: &str, more: &str) -> Value {
    let hard = json!({ "requests.memory": "1Gi", "count/a.b": "4" });
    json!({
        "metadata": { "name": "mtq", "namespace": namespace },
        "spec": { "additionalMigrationResources": { "pods": 1 } },
        "status": {
            "additionalMigrationResources": { "requests.memory": more },
            "migrationsToBlockingResourceQuotas": { "migration": ["rq"] },
            "originalBlockingResourceQuotas": [
                { "name": "rq", "spec": { "hard": hard } },
                { "name": "'; reboot", "spec": { "hard": { "'; reboot": "1" } } },
            ],
        },
    })
}

fn listed(locks: Value, records: Value, quotas: Value) -> Leftovers {
    plan(&Seen {
        locks: serde_json::from_value(locks).unwrap(),
        records: serde_json::from_value(records).unwrap(),
        quotas: serde_json::from_value(quotas).unwrap(),
    })
}

#[test]
fn a_locked_namespace_with_a_raised_quota_is_listed_with_its_commands() {
    let others = json!([lock("lock.shop.com"), lock("lock.com"), lock("another")]);
    let quotas = json!([quota("shop", "1536Mi"), quota("bystander", "1536Mi")]);
    let left = listed(others, json!([record("shop", "512Mi")]), quotas);
    insta::assert_snapshot!(left, @r#"
    NAMESPACE  OBJECT                                        STATE
    shop       validatingwebhookconfiguration/lock.shop.com  locks the namespace since 2026-01-01T00:00:00Z
    shop       resourcequota/rq                              requests.memory is raised from 1Gi to 1536Mi
    shop       virtualmachinemigrationresourcequota/mtq      quotas recorded: 2, migrations recorded: 1

    Nothing was changed. Stop managed-tenant-quota (operator and controller) and list again; then run in this order:

    kubectl delete validatingwebhookconfiguration lock.shop.com
    kubectl patch resourcequota rq --namespace shop --type json --patch '[{"op":"test","path":"/spec/hard/requests.memory","value":"1536Mi"},{"op":"replace","path":"/spec/hard/requests.memory","value":"1Gi"}]'
    kubectl patch virtualmachinemigrationresourcequota mtq --namespace shop --subresource status --type json --patch '[{"op":"add","path":"/status/originalBlockingResourceQuotas","value":[]},{"op":"add","path":"/status/migrationsToBlockingResourceQuotas","value":{}}]'
    "#);
    let json: Value = serde_json::from_str(&left.json().unwrap()).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 3);
    assert_eq!(
        json[0],
        json!({
            "namespace": "shop", "object": "validatingwebhookconfiguration/lock.shop.com",
            "state": "locks the namespace since 2026-01-01T00:00:00Z",
            "command": "kubectl delete validatingwebhookconfiguration lock.shop.com",
        })
    );
}

#[test]
fn only_a_limit_that_is_as_it_was_raised_is_lowered() {
    let state = |memory, more| {
        let left = listed(json!([]), json!([record("shop", more)]), json!([quota("shop", memory)]));
        let quota = left.0.into_iter().find(|each| each.object == "resourcequota/rq");
        quota.map(|each| (each.state, each.command.is_some()))
    };
    let stays = |text: &str| Some((text.to_owned(), false));
    assert_eq!(
        state("1536Mi", "512Mi"),
        Some(("requests.memory is raised from 1Gi to 1536Mi".to_owned(), true))
    );
    assert_eq!(state("1Gi", "512Mi"), None);
    assert_eq!(
        state("3Gi", "512Mi"),
        stays("requests.memory is 3Gi, changed since 1Gi was recorded: not restored")
    );
    // What was added is read from a status that a tenant may have written.
    assert_eq!(
        state("512Mi", "-512Mi"),
        stays("requests.memory is 512Mi, below the recorded 1Gi: not restored")
    );
}

#[test]
fn nothing_is_left_where_nothing_is_recorded() {
    let idle = json!({
        "metadata": { "name": "mtq", "namespace": "shop" },
        "spec": { "additionalMigrationResources": { "requests.memory": "512Mi" } },
        "status": { "originalBlockingResourceQuotas": [], "migrationsToBlockingResourceQuotas": {} },
    });
    let left = listed(json!([]), json!([idle]), json!([quota("shop", "1536Mi")]));
    insta::assert_snapshot!(left, @"Nothing is left of a managed-tenant-quota.");
    assert_eq!(left.json().unwrap(), "[]");
}
