//! Packages that are there in more than one version: each with the reason, or it is a violation.

use std::collections::BTreeMap;

use super::metadata::Metadata;

/// Packages that may be there twice, and why. An entry that is no longer needed is a violation too.
const EXPLAINED: [(&str, &str); 9] = [
    ("base64", "k8s-openapi and tower-http use 0.22, kube 0.23"),
    ("bit-vec", "yasna (rcgen) uses 0.9, proptest 0.10"),
    ("cpufeatures", "sha2 0.10 uses 0.2, chacha20 (rand) 0.3"),
    ("getrandom", "ring, which is locked but not built, uses 0.2, ahash 0.3, rand and tempfile 0.4"),
    ("hashbrown", "dashmap (stateright) uses 0.14, kube-runtime 0.16, we and indexmap 0.17"),
    ("rand", "stateright uses 0.9, proptest 0.10"),
    ("rand_core", "rand 0.9 (stateright) uses 0.9, rand 0.10 its own"),
    ("syn", "derives are on their way from 2 to 3"),
    ("untrusted", "aws-lc-rs uses 0.7, rustls-webpki 0.9"),
];

pub(crate) fn violations(metadata: &Metadata) -> Vec<String> {
    check(metadata, &EXPLAINED)
}

fn check(metadata: &Metadata, explained: &[(&str, &str)]) -> Vec<String> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in &metadata.packages {
        versions.entry(&package.name).or_default().push(&package.version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    let mut violations: Vec<String> = versions
        .iter()
        .filter(|(name, _)| !explained.iter().any(|(known, _)| known == *name))
        .map(|(name, versions)| {
            format!(
                "{name} is there in the versions {}: align them or explain it in {}",
                versions.join(", "),
                file!()
            )
        })
        .collect();
    let needless = explained.iter().filter(|(name, _)| !versions.contains_key(name));
    violations
        .extend(needless.map(|(name, why)| format!("{name} is there once now, remove its reason: {why}")));
    violations
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::check::metadata::Metadata;

    #[test]
    fn an_unexplained_second_version_and_a_needless_reason_are_reported() {
        let package = |name: &str, version: &str| {
            serde_json::json!({
                "name": name, "version": version, "license": null, "source": "registry", "dependencies": [],
            })
        };
        let packages = [package("a", "1.0.0"), package("a", "2.0.0"), package("b", "1.0.0")];
        let metadata: Metadata =
            serde_json::from_value(serde_json::json!({ "packages": packages })).expect("metadata");
        assert_eq!(check(&metadata, &[]).len(), 1);
        assert!(check(&metadata, &[("a", "why")]).is_empty());
        assert_eq!(check(&metadata, &[("a", "why"), ("b", "why")]).len(), 1);
    }
}
