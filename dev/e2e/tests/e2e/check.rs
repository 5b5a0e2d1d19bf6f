//! `sluice check` on a real control plane: each fault is made alone, is found under its name and no other, and is gone once
//! it is undone. Programs run beside the control plane; simulated nodes run the pods of their Deployments.

mod faults;
mod scene;

use std::time::Duration;

use sluice_testbed::{Bed, BedOptions, wait};

use scene::Scene;

/// A condition is told anew within half a minute, and a lease that nobody renews is found after as long.
const FOUND: Duration = Duration::from_secs(150);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_is_found_alone_with_a_remedy_and_a_page() {
    let bed = Bed::start(BedOptions::default()).await.unwrap();
    let mut scene = Scene::on(&bed).await;
    let good = async |scene: &Scene<'_>, after: &str| {
        let nothing = || async { scene.check().await.is_good().then_some(()) };
        if let Err(error) = wait::eventually(FOUND, nothing, "nothing to be found").await {
            panic!("{after}: {error}: {}", scene.check().await.text);
        }
    };
    good(&scene, "at first").await;
    eprintln!("{}", scene.table().await);
    eprintln!("nothing is wrong: said in {:?}", scene.check().await.took);

    let faults = faults::all(&scene).await;
    assert!(faults.len() >= 20, "{}", faults.len());
    for fault in faults {
        let undo = scene.make(&fault).await;
        let alone = || async {
            let said = scene.check().await;
            let is_alone = said.found == [(fault.state.to_owned(), fault.name.to_owned())];
            (is_alone && said.words.contains(fault.words)).then_some(said)
        };
        let found = wait::eventually(FOUND, alone, fault.what).await;
        let found = match found {
            Ok(found) => found,
            Err(error) => panic!("{error}: {}", scene.check().await.text),
        };
        let code = if fault.state == "failed" { 3 } else { 0 };
        assert_eq!(found.code, code, "{}: {}", fault.what, found.text);
        assert!(!found.text.contains("/explain"), "the path of the webhook: {}", found.text);
        for remedy in &found.remedies {
            assert!(!remedy.is_empty(), "{}: {}", fault.what, found.text);
        }
        eprintln!("{:<44} {} {}: {}", fault.what, fault.state, fault.name, found.words);
        scene.undo(undo).await;
        good(&scene, fault.what).await;
    }
}
