//! What ends while its list is under way is not seen to end:
//! its absence from the list tells, whatever is answered meanwhile.

use super::stories::{Story, at};
use crate::{Action, Outcome};

/// The list was made when there were no pods any more, and the answer to the release comes before its end.
#[test]
fn a_pod_that_ends_during_a_list_is_forgotten_although_its_release_is_answered_then() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.server.create_pod("a", 1000, 0);
    let release = loop {
        story.see_all(at(0));
        match story.state.plan(at(0)).pop() {
            Some(Action::Record(record)) => {
                let answer = story.server.record(&record);
                story.state.on_outcome(Outcome::Recorded(record.quota, record.uid, answer), at(0));
            }
            Some(Action::Release(release)) => break release,
            other => panic!("{other:?}"),
        }
    };
    let answer = story.server.release(&release);
    story.server.delete_pod("a");
    story.server.log.clear();
    story.state.begin_pods();
    story.state.on_outcome(Outcome::Released(release.pod, release.uid, answer), at(0));
    story.state.end_pods();
    assert!(story.state.index().0.is_empty());
    story.server.create_pod("b", 1000, 0);
    story.run(at(100));
    assert_eq!(story.gated(), Vec::<&str>::new());
}

/// The answer to the charge comes before the end of a list that does not have the quota.
#[test]
fn a_quota_that_ends_during_a_list_is_forgotten_although_a_charge_is_answered_then() {
    let mut story = Story::led();
    story.server.set_hard(1000);
    story.server.create_pod("a", 600, 0);
    story.server.create_pod("b", 600, 0);
    story.see_all(at(0));
    let Some(Action::Record(record)) = story.state.plan(at(0)).into_iter().next() else { unreachable!() };
    let answer = story.server.record(&record);
    story.server.delete_quota();
    story.server.log.clear();
    story.state.begin_quotas();
    story.state.on_outcome(Outcome::Recorded(record.quota, record.uid, answer), at(0));
    story.state.end_quotas(at(0));
    assert!(story.state.index().2.is_empty());
    story.run(at(100));
    assert_eq!(story.gated(), Vec::<&str>::new());
}
