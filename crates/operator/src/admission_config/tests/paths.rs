//! The secret path of the webhook, which comes with the authorities.

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::super::observe::World;
use super::{carry_out, entries, operations, planned, world};

#[test]
fn the_secret_path_goes_to_each_of_our_webhooks_and_stays_while_it_is_not_known() {
    let mut seen = world();
    for configuration in [&mut seen.mutating, &mut seen.validating] {
        for (_, entry) in entries(configuration) {
            entry["clientConfig"]["service"]["path"] = json!("/serve-path");
        }
    }
    let patches = planned(&seen);
    let paths: Vec<Value> = patches
        .iter()
        .flat_map(|step| operations(step).1.as_array().expect("operations").iter().skip(1))
        .map(|operation| operation["value"]["clientConfig"]["service"]["path"].clone())
        .collect();
    let serve = "/secret/serve-path";
    assert_eq!(
        paths,
        [
            serve,
            "/secret/explain",
            serve,
            serve,
            serve,
            serve,
            serve,
            "/secret/growth",
            "/secret/growth",
            "/secret/vm-size",
            "/secret/target",
            "/secret/headroom",
            "/secret/headroom"
        ]
    );
    let blind = World { bundle: None, path: None, ..world() };
    assert_eq!(planned(&blind), []);
}

/// The authorities and the path come from one Secret, which a version without paths has made.
#[test]
fn a_path_that_is_not_known_stays_while_the_authorities_change() {
    let mut world = World { bundle: Some(b"two".to_vec()), path: None, ..world() };
    entries(&mut world.mutating)[0].1["failurePolicy"] = json!("Ignore");
    let steps = planned(&world);
    carry_out(&mut world, &steps);
    assert_eq!(planned(&world), []);
    for configuration in [&mut world.mutating, &mut world.validating] {
        for (name, entry) in entries(configuration) {
            let client = &entry["clientConfig"];
            let path = client["service"]["path"].as_str().expect("a path");
            assert!(path.starts_with("/secret/"), "{name}: {path}");
            assert_eq!(client["caBundle"], json!(ByteString(b"two".to_vec())), "{name}");
        }
    }
    assert_eq!(entries(&mut world.mutating)[0].1["failurePolicy"], json!("Fail"));
    // Nor is anything made without it.
    entries(&mut world.validating).truncate(3);
    world.mutating = Some(None);
    assert_eq!(planned(&world), []);
}
