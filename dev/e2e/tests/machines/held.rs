//! Targets of migrations that are held at the gate, and what the leader tells of a VM with one.

use std::time::Instant;

use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use sluice_api::{QuotaReview, QuotaReviewSpec};
use sluice_e2e::objects::{self, is_held};
use sluice_testbed::kubevirt::{MigrationPhase, MigrationScript};
use sluice_testbed::wait;

use crate::context::{Counting, SOON};

#[tokio::test(flavor = "multi_thread")]
async fn of_two_held_targets_the_one_that_kubevirt_gives_up_sooner_goes_first_and_is_told() {
    let counting = Counting::by("IgnoreVmiCalculator").await;
    let team = counting.team("held").await;
    team.quota("all", &[("pods", "3")]).await;
    let vm = |name| team.tenant.kubevirt.vm(team.tenant.name(), name);
    let patient = vm("patient").spec(json!({ "priorityClassName": "system-cluster-critical" }));
    let patient = patient.start().await.unwrap();
    let hasty = vm("hasty").script(MigrationScript::Hold).start().await.unwrap();
    let other = objects::pod("other", &[("cpu", "1m")]);
    objects::create(&team.tenant.client, team.tenant.name(), &other).await.unwrap();
    team.until_used("all", &[("pods", "3")]).await;
    let words = "exceeded quota: all, requested: pods=1, used: pods=3, limited: pods=3";

    let first = patient.migrate().await.unwrap();
    assert_eq!(team.until_told(&first.until_target_pod().await.unwrap()).await, words);
    let second = hasty.migrate_within(250).await.unwrap();
    let told = team.until_told(&second.until_target_pod().await.unwrap()).await;
    assert!(told.starts_with("target of a migration, held since ") && told.ends_with(words), "{told}");
    let uid = second.object().await.unwrap().metadata.uid;
    assert_eq!(team.until_told_of(uid.as_deref()).await, told);

    let reviews: Api<QuotaReview> = Api::namespaced(team.tenant.client.clone(), team.tenant.name());
    let told = || async {
        let spec =
            QuotaReviewSpec { virtual_machine: Some("patient".to_owned()), ..QuotaReviewSpec::default() };
        let mut review = QuotaReview::new("", spec);
        (review.metadata.name, review.metadata.generate_name) = (None, Some("ask-".to_owned()));
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let status = reviews.create(&dry_run, &review).await.ok()?.status?;
        (status.held && status.explanations.len() == 2).then_some(status)
    };
    let status = wait::eventually(SOON, told, "the answer about the VM").await.unwrap();
    let target = first.target_pod().await.unwrap().unwrap().metadata.name.unwrap();
    assert!(status.summary.contains(&format!("patient runs: its pod {target} waits.")), "{status:?}");
    assert!(status.text.contains(&format!("{target} waits for quota: held ")), "{status:?}");

    team.tenant.pods.delete("other", &DeleteParams::default().grace_period(0)).await.unwrap();
    second.until(MigrationPhase::Running).await.unwrap();
    assert!(is_held(&first.target_pod().await.unwrap().unwrap()), "although older and of higher priority");
    hasty.release().await.unwrap();
    second.until_succeeded().await.unwrap();
    first.until_succeeded().await.unwrap();
}

/// Whoever looks at a machine that does not start reads why, at the machine and at its instance.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_does_not_start_says_why_where_people_look_first() {
    let counting = Counting::by("VirtualResources").await;
    let team = counting.team("described").await;
    team.quota("vms", &[("requests.memory", "128Mi")]).await;
    let tenant = &team.tenant;
    let vm = tenant.kubevirt.vm(tenant.name(), "web").virtual_machine().create().await.unwrap();
    let begun = Instant::now();
    for kind in ["vm", "vmi"] {
        let said = || async {
            let described = ["describe", kind, vm.name(), "--namespace", tenant.name()];
            let said = tenant.bed.kubectl(&described).await.ok()?;
            let said = String::from_utf8_lossy(&said.stdout).into_owned();
            said.contains("exceeded quota: vms, requested: requests.memory=256Mi").then_some(said)
        };
        let said =
            wait::eventually(SOON, said, &format!("{kind} to say why it does not start")).await.unwrap();
        println!("described after {:?}", begun.elapsed());
        assert!(said.contains("ExceedsLimit"), "{said}");
    }
}
