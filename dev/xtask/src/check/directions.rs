//! Which of our crates may use which.

use anyhow::bail;

use super::metadata::Metadata;

/// Crates that ship, and what each may use. What is under `dev/` may use anything that ships.
const MAY_USE: [(&str, &[&str]); 15] = [
    // Pure: no crate of ours, no I/O.
    ("sluice-engine", &[]),
    ("sluice-api", &["sluice-engine"]),
    // Pure: what rules in CEL charge.
    ("sluice-rules", &["sluice-engine"]),
    // Knows Kubernetes and no quota.
    ("sluice-runtime", &[]),
    // For programs of others: no Kubernetes client, no plumbing of ours.
    ("sluice-evaluator-sdk", &["sluice-engine"]),
    // Asks evaluators; knows no quota.
    (
        "sluice-evaluators",
        &["sluice-api", "sluice-engine", "sluice-evaluator-sdk", "sluice-index", "sluice-rules"],
    ),
    // Holds what watches show, and asks nothing.
    ("sluice-index", &["sluice-api", "sluice-engine", "sluice-runtime"]),
    // Head-room: made by the webhook for a target pod, swept by a controller.
    ("sluice-headroom", &["sluice-api", "sluice-engine", "sluice-index", "sluice-runtime"]),
    ("sluice-gate", &["sluice-api", "sluice-engine", "sluice-index", "sluice-runtime"]),
    // Pages about what the gate explains; asks no cluster.
    ("sluice-dashboard", &["sluice-api", "sluice-engine", "sluice-gate", "sluice-index"]),
    ("sluice-manifests", &["sluice-api", "sluice-engine", "sluice-runtime"]),
    (
        "sluice-operator",
        &["sluice-api", "sluice-engine", "sluice-index", "sluice-manifests", "sluice-runtime"],
    ),
    (
        "sluice-webhook",
        &[
            "sluice-api",
            "sluice-engine",
            "sluice-evaluators",
            "sluice-headroom",
            "sluice-index",
            "sluice-runtime",
        ],
    ),
    (
        "sluice-controllers",
        &[
            "sluice-api",
            "sluice-engine",
            "sluice-evaluators",
            "sluice-gate",
            "sluice-index",
            "sluice-manifests",
            "sluice-runtime",
        ],
    ),
    (
        "sluice",
        &[
            "sluice-api",
            "sluice-controllers",
            "sluice-dashboard",
            "sluice-engine",
            "sluice-evaluators",
            "sluice-gate",
            "sluice-headroom",
            "sluice-index",
            "sluice-manifests",
            "sluice-operator",
            "sluice-runtime",
            "sluice-webhook",
        ],
    ),
];

/// Crates without I/O.
const PURE: [&str; 2] = ["sluice-engine", "sluice-rules"];

/// Libraries that would bring I/O or Kubernetes into them.
const NOT_IN_PURE: [&str; 6] = ["futures", "k8s-openapi", "kube", "reqwest", "tokio", "hyper"];

/// Crates under `dev/`: nothing that ships may use them.
const DEV: [&str; 7] = [
    "sluice-bench",
    "sluice-demo",
    "sluice-e2e",
    "sluice-packaging",
    "sluice-testbed",
    "workspace-hack",
    "xtask",
];

/// Reports every dependency that is against the rules.
///
/// # Errors
/// When there is one.
pub(super) fn check() -> anyhow::Result<()> {
    let violations = violations(&Metadata::load()?);
    for violation in &violations {
        eprintln!("{violation}");
    }
    if violations.is_empty() { Ok(()) } else { bail!("{} dependencies are not allowed", violations.len()) }
}

fn violations(metadata: &Metadata) -> Vec<String> {
    let mut violations = Vec::new();
    for package in &metadata.packages {
        let name = package.name.as_str();
        let allowed = MAY_USE.iter().find(|(shipped, _)| *shipped == name).map(|(_, allowed)| *allowed);
        if allowed.is_none() && !DEV.contains(&name) {
            violations.push(format!("{name}: no rule says what it may use; add it to {}", file!()));
        }
        let used = package.dependencies.iter().filter(|dependency| dependency.kind.as_deref() != Some("dev"));
        for dependency in used {
            let other = dependency.name.as_str();
            let Some(allowed) = allowed else { continue };
            if dependency.path.is_some() && !allowed.contains(&other) {
                violations.push(format!("{name} must not depend on {other}"));
            }
            if PURE.contains(&name) && NOT_IN_PURE.contains(&other) {
                violations.push(format!("{name} is pure and must not depend on {other}"));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::violations;
    use crate::check::metadata::Metadata;

    fn package(name: &str, uses: &str, path: bool, kind: Option<&str>) -> Metadata {
        let path = path.then_some("somewhere");
        serde_json::from_value(serde_json::json!({ "packages": [{
            "name": name, "dependencies": [{ "name": uses, "kind": kind, "path": path }],
        }]}))
        .expect("metadata")
    }

    #[test]
    fn a_dependency_against_the_direction_is_reported() {
        for (name, uses, path) in [
            ("sluice-engine", "sluice-api", true),
            ("sluice-engine", "tokio", false),
            ("sluice-rules", "kube", false),
            ("sluice-runtime", "sluice-engine", true),
            ("sluice-webhook", "sluice-controllers", true),
            ("sluice-controllers", "sluice-headroom", true),
            ("sluice", "sluice-testbed", true),
            ("sluice-new", "serde", false),
        ] {
            assert_eq!(violations(&package(name, uses, path, None)).len(), 1, "{name} -> {uses}");
        }
    }

    #[test]
    fn others_are_not() {
        for (name, uses, kind) in [
            ("sluice-index", "sluice-engine", None),
            ("sluice", "sluice-controllers", None),
            ("xtask", "sluice-manifests", None),
            ("sluice-engine", "sluice-testbed", Some("dev")),
        ] {
            assert!(violations(&package(name, uses, true, kind)).is_empty(), "{name} -> {uses}");
        }
    }
}
