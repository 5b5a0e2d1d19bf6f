//! VMs that the watch of VMs shows later than their pods are seen.

use sluice_engine::vm::Calculator;

use super::machines::sized;
use super::stories::{Story, at};

const SOURCE: &str = "v1-p1";
const TARGET: &str = "v1-p2";

#[test]
fn a_target_waits_for_what_its_vm_is_to_have_although_no_watch_has_shown_that() {
    let mut story = Story::counting(Calculator::VirtualResources, 2500);
    story.see_machine(&sized(2, 2), 0);
    story.server.create_pod(SOURCE, 100, 0);
    assert_eq!(story.used_after(0), "2");
    story.change_machine(&sized(2, 3));
    story.server.create_pod(TARGET, 100, 0);
    assert_eq!(story.used_after(100), "2");
    assert_eq!(story.held(), [TARGET]);
    story.server.set_hard(3000);
    assert_eq!(story.used_after(200), "3");
    assert_eq!(story.held(), Vec::<&str>::new());
}

#[test]
fn a_vm_that_takes_less_than_was_seen_gives_the_rest_back() {
    let mut story = Story::counting(Calculator::VirtualResources, 3000);
    story.see_machine(&sized(3, 3), 0);
    story.change_machine(&sized(2, 2));
    story.server.create_pod(SOURCE, 100, 0);
    assert_eq!(story.used_after(0), "2");
    assert_eq!(story.held(), Vec::<&str>::new());
}

#[test]
fn a_vm_whose_end_no_watch_has_shown_gets_no_pod() {
    let mut story = Story::counting(Calculator::VirtualResources, 2000);
    story.state.apply_machine(&sized(2, 2), at(0));
    story.server.create_pod(SOURCE, 100, 0);
    assert_eq!(story.used_after(0), "0");
    assert_eq!(story.held(), [SOURCE]);
    let told = "held: its VirtualMachineInstance is not known; create the pod again if that is gone";
    assert_eq!(story.told_of(SOURCE), [("UnknownMachine", told)]);
}

#[test]
fn a_vm_that_cannot_be_read_is_read_again_later() {
    let mut story = Story::counting(Calculator::VirtualResources, 2000);
    story.see_machine(&sized(2, 2), 0);
    let known = story.machines.take();
    story.server.create_pod(SOURCE, 100, 0);
    assert_eq!(story.used_after(0), "2", "it is charged meanwhile");
    assert_eq!(story.held(), [SOURCE]);
    assert!(story.state.next_due_ms(at(60)).is_some_and(|due| due > 0), "and not asked about all the time");
    story.machines = known;
    assert_eq!(story.used_after(200), "2");
    assert_eq!(story.held(), Vec::<&str>::new());
}

#[test]
fn of_pods_from_before_there_was_a_stamp_the_oldest_one_is_the_launcher() {
    let mut story = Story::counting(Calculator::VirtualResources, 3000);
    story.see_machine(&sized(2, 2), 0);
    for pod in ["v1-pu1", "v1-pu2"] {
        story.server.create_pod(pod, 100, 0);
        story.server.ungate_pod(pod);
    }
    assert_eq!(story.used_after(0), "2100m");
    story.server.create_pod(TARGET, 100, 0);
    assert_eq!(story.used_after(100), "2100m", "a migration");
    assert_eq!(story.held(), Vec::<&str>::new());
    story.server.finish_pod("v1-pu1");
    assert_eq!(story.used_after(200), "2", "the next one is as old as any now");
    story.server.delete_pod("v1-pu2");
    assert_eq!(story.used_after(300), "2");
}
