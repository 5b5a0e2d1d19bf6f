//! Another calculator, or another KubeVirt: all VMs are counted anew, some at a time.

use rstest::rstest;
use sluice_engine::vm::Calculator;

use super::machines::{CLAIMS, SOURCE, TARGET, sized, sized_of};
use super::owners::kubevirt;
use super::stories::{Story, at};

#[test]
fn another_calculator_is_in_force_at_once() {
    let mut story = Story::counting(Calculator::VirtualResources, 3000);
    story.see_machine(&sized(2, 2), 0);
    for pod in [SOURCE, TARGET, CLAIMS] {
        story.server.create_pod(pod, 100, 0);
    }
    assert_eq!(story.used_after(0), "2100m");
    for (step, (calculator, used)) in [
        (Calculator::VmiPodUsage, "200m"),
        (Calculator::IgnoreVmiCalculator, "300m"),
        (Calculator::DedicatedVirtualResources, "100m"),
        (Calculator::GuestEffectiveResources, "200m"),
        (Calculator::VirtualResources, "2100m"),
    ]
    .into_iter()
    .enumerate()
    {
        let now = 100 * (step as u64 + 1);
        story.state.count_machines_by(calculator, at(now));
        assert_eq!(story.used_after(now), used, "{calculator:?}");
    }
    story.state.set_kubevirt(None, at(1000));
    assert_eq!(story.used_after(1000), "300m", "who creates launchers is not known");
}

#[rstest]
#[case(1)]
#[case(6)]
#[case(1000)]
fn another_way_of_counting_is_worked_off_some_at_a_time(#[case] at_a_time: usize) {
    let mut story = Story::counting(Calculator::VirtualResources, 10_000);
    story.state.config_mut().reclassified_pods = at_a_time;
    for vm in ["v1", "v2", "v3"] {
        story.see_machine(&sized_of(vm, 2, 2), 0);
        story.server.create_pod(&format!("{vm}-p1"), 100, 0);
    }
    story.server.create_pod(TARGET, 100, 0);
    story.server.create_pod(CLAIMS, 100, 0);
    assert_eq!(story.used_after(0), "6100m");
    story.attach("hp-volume-a", SOURCE);
    story.attach("hp-volume-b", "v3-p1");
    assert_eq!(story.used_after(50), "6100m");
    story.state.delete_machine(&sized_of("v3", 2, 2), at(100));
    story.machines.as_mut().unwrap().remove("v3");
    let (mut now, calculators) = (
        100,
        [
            (Calculator::IgnoreVmiCalculator, "600m"),
            (Calculator::VmiPodUsage, "450m"),
            (Calculator::VirtualResources, "4250m"),
            (Calculator::DedicatedVirtualResources, "250m"),
            (Calculator::VirtualResources, "4250m"),
        ],
    );
    for (calculator, used) in calculators {
        now += 100;
        // One that is not in force for long enough to be worked off.
        story.state.count_machines_by(Calculator::GuestEffectiveResources, at(now));
        story.run_once(at(now));
        story.state.count_machines_by(calculator, at(now));
        assert_eq!(story.used_after(now), used, "{calculator:?}");
        assert!(story.is_audited(now));
    }
    story.state.set_kubevirt(None, at(1000));
    assert_eq!(story.used_after(1000), "600m", "who creates launchers and attachments is not known");
    story.state.set_kubevirt(Some(kubevirt()), at(1100));
    assert_eq!(story.used_after(1100), "4250m");
    assert!(story.is_audited(1100));
}

#[test]
fn no_pod_goes_before_all_vms_are_counted_anew() {
    let mut story = Story::counting(Calculator::IgnoreVmiCalculator, 5000);
    story.state.config_mut().reclassified_pods = 1;
    for vm in ["v1", "v2"] {
        story.see_machine(&sized_of(vm, 2, 2), 0);
        story.server.create_pod(&format!("{vm}-p1"), 100, 0);
    }
    assert_eq!(story.used_after(0), "200m");
    story.state.count_machines_by(Calculator::VirtualResources, at(100));
    story.server.create_pod("web", 2000, 0);
    story.server.create_pod(TARGET, 100, 0);
    assert_eq!(story.used_after(100), "4");
    assert_eq!(story.held(), ["web"]);
}

#[test]
fn what_comes_and_goes_while_vms_are_counted_anew_is_counted_so() {
    for steps in 0..12 {
        let mut story = Story::counting(Calculator::IgnoreVmiCalculator, 10_000);
        story.state.config_mut().reclassified_pods = 1;
        for vm in ["v2", "v4"] {
            story.see_machine(&sized_of(vm, 2, 2), 0);
            story.server.create_pod(&format!("{vm}-p1"), 100, 0);
        }
        story.server.create_pod("v3-p1", 100, 0);
        assert_eq!(story.used_after(0), "300m");
        story.state.count_machines_by(Calculator::VirtualResources, at(100));
        for _ in 0..steps {
            story.run_once(at(100));
        }
        for vm in ["v1", "v5"] {
            story.server.create_pod(&format!("{vm}-p1"), 100, 0);
            story.see_machine(&sized_of(vm, 1, 1), 100);
        }
        story.server.create_pod("v2-p2", 100, 0);
        story.server.finish_pod("v2-p1");
        story.server.delete_pod("v4-p1");
        story.server.create_pod("v6-p1", 100, 0);
        story.attach("hp-volume-a", "v1-p1");
        story.used_after(100);
        assert_eq!(story.used_after(200), "4100m", "after {steps} steps");
        assert_eq!(story.held(), ["v6-p1"], "after {steps} steps: its VM is not known");
        assert!(story.is_audited(300));
    }
}
