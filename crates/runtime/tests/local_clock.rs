//! Where the product reads the local clock of day, which may be minutes off. Decisions go by the API server's
//! (`docs/protocols.md`, *The clock*).
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Files of `crates` that do, and what rests on it. None decides about a pod, a quota or a lease.
const READERS: [(&str, &str); 11] = [
    ("controllers/src/gating/tell.rs", "times of conditions of the AAQ"),
    (
        "evaluator-sdk/src/pod.rs",
        "until when a lost pod on a silent node is charged by an evaluator that asks for what Kubernetes counts",
    ),
    ("evaluator-sdk/src/serve.rs", "a name for the socket that none had before"),
    ("headroom/src/loops/grant_status.rs", "times of conditions of budgets"),
    (
        "operator/src/certificates/given.rs",
        "whether a certificate of cert-manager is valid, and how long its authority is published before it is served",
    ),
    (
        "operator/src/certificates/mod.rs",
        "lifetimes of certificates, which begin five minutes before they are issued",
    ),
    ("operator/src/installation/mod.rs", "times of conditions of AAQ and MTQ"),
    ("runtime/src/events.rs", "times of events"),
    ("runtime/src/lease.rs", "times in the Lease, which no replica reads"),
    ("runtime/src/tls.rs", "whether a certificate has expired, long after it was to be replaced"),
    ("sluice/src/cli/bundle.rs", "when a bundle was taken, for its name and its index"),
];

const CLOCKS: [&str; 6] =
    ["Timestamp::now", "SystemTime::now", "Zoned::now", "Utc::now", "Local::now", "OffsetDateTime::now"];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_test = path.ends_with("tests") || path.ends_with("tests.rs");
        if path.is_dir() && !is_test {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test {
            found.push(path);
        }
    }
    found
}

#[test]
fn the_local_clock_is_read_for_what_people_see_and_for_certificates_only() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned();
    let mut readers = BTreeSet::new();
    for member in fs::read_dir(&crates).unwrap() {
        for path in sources(&member.unwrap().path().join("src")) {
            let text = fs::read_to_string(&path).unwrap();
            // Unit tests that have no file of their own are at the end.
            let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            if CLOCKS.iter().any(|clock| product.contains(clock)) {
                readers.insert(path.strip_prefix(&crates).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    let known = BTreeSet::from(READERS.map(|(path, _)| path.to_owned()));
    assert_eq!(readers, known, "use the API server's clock, or say here what rests on the local one");
}
