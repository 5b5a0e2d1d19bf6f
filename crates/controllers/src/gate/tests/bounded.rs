//! Work that is bounded however much there is to do.

use sluice_index::Targeting;

use super::stories::{Story, at};
use crate::gate::{Action, Outcome};

#[test]
fn a_mass_release_asks_for_some_at_a_time_and_forgets_none() {
    let mut story = Story::led();
    for n in 0..1000 {
        story.server.create_pod(&format!("p{n}"), 1, 0);
    }
    story.see_all(at(0));
    let nowhere =
        Targeting::new(kube::core::Expression::Exists("nowhere".to_owned()).into(), super::own_namespace());
    assert_eq!(story.state.retarget(nowhere, at(0)), 1000);
    let asked = story.state.plan(at(0));
    assert_eq!(asked.len(), 256);
    assert!(story.state.plan(at(0)).is_empty(), "the next come when these are answered");
    for action in asked {
        let Action::Release(release) = action else { panic!("{action:?}") };
        let answer = story.server.release(&release);
        story.state.settle(Outcome::Released(release.pod, release.uid, answer), at(1));
    }
    story.run(at(1));
    assert_eq!(story.gated(), Vec::<&str>::new());
}
