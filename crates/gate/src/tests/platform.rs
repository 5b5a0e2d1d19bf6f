//! Pods of the platform, that are charged or not: short stories, one behaviour each.

use rstest::rstest;
use serde_json::{Value, json};
use sluice_engine::vm::Calculator;

use super::machines::sized;
use super::owners::{CONTROLLER, kubevirt};
use super::server::uid;
use super::stories::{Story, at};
use super::team::{Controller, pod};
use crate::{Asked, AuditCursor, AuditFinding, Judgement, Platform, PlatformPods};

pub(super) const SOURCE: &str = "v1-p1";
pub(super) const TARGET: &str = "v1-p2";
pub(super) const ATTACHMENT: &str = "hp-volume-a";
const EXPORT: &str = "virt-export-a";
const IMPORTER: &str = "importer-a";
const CDI: &str = "system:serviceaccount:cdi:cdi-sa";

/// `metadata.ownerReferences` of a pod that another controls.
pub(super) fn references((name, uid): &Controller) -> Value {
    json!([{ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": true }])
}

impl Story {
    /// KubeVirt attaches a volume to a launcher.
    pub(super) fn attach(&mut self, name: &str, launcher: &str) {
        self.attach_by(name, launcher, CONTROLLER);
    }

    fn attach_by(&mut self, name: &str, launcher: &str, creator: &str) {
        let controller = self.pod_of(launcher);
        self.server.create_as(name, 50, 0, Some(&controller), Some(creator));
    }

    fn pod_of(&self, name: &str) -> Controller {
        (name.to_owned(), self.server.get(&pod(name)).map_or("uid-0", uid).to_owned())
    }

    fn treating(mut self, pods: PlatformPods) -> Self {
        self.state.config_mut().platform = Platform::new(pods, [CDI.to_owned()]);
        self
    }

    /// A VM of two CPUs runs, and takes all that there is.
    fn full(calculator: Calculator) -> Self {
        let mut story = Self::counting(calculator, 2000);
        story.see_machine(&sized(2, 2), 0);
        story.server.create_pod(SOURCE, 2000, 0);
        story.run(at(0));
        story
    }

    pub(super) fn is_audited(&mut self, now: u64) -> bool {
        let (namespace, _) = self.state.index().1.iter().next().unwrap();
        let mut place = AuditCursor::default();
        loop {
            match self.state.audit(namespace, &mut place, at(now)) {
                AuditFinding::More => {}
                found => return found == AuditFinding::Right,
            }
        }
    }
}

#[rstest]
#[case(Calculator::VirtualResources, "2")]
#[case(Calculator::DedicatedVirtualResources, "0")]
#[case(Calculator::VmiPodUsage, "2")]
#[case(Calculator::GuestEffectiveResources, "2")]
fn in_a_full_quota_volumes_are_attached_to_a_vm_that_is_charged(
    #[case] calculator: Calculator,
    #[case] used: &str,
) {
    let mut story = Story::full(calculator);
    story.attach(ATTACHMENT, SOURCE);
    assert_eq!(story.used_after(100), used);
    assert_eq!(story.held(), Vec::<&str>::new());
    story.server.create_pod(TARGET, 2000, 0);
    story.run(at(200));
    story.attach("hp-volume-b", TARGET);
    assert_eq!(story.used_after(300), used, "so that a migration goes on");
    assert_eq!(story.held(), Vec::<&str>::new());
    assert!(story.is_audited(400));
}

#[test]
fn where_vms_are_charged_by_their_pods_attachments_are_pods() {
    let mut story = Story::full(Calculator::IgnoreVmiCalculator);
    story.attach(ATTACHMENT, SOURCE);
    assert_eq!(story.used_after(100), "2");
    assert_eq!(story.held(), [ATTACHMENT]);
    story.server.set_hard(2050);
    assert_eq!(story.used_after(200), "2050m");
    assert_eq!(story.held(), Vec::<&str>::new());
}

#[test]
fn a_pod_that_only_looks_like_an_attachment_is_charged() {
    let mut story = Story::full(Calculator::VirtualResources);
    story.attach_by("hp-volume-tenant", SOURCE, "system:serviceaccount:team:kubevirt-controller");
    story.attach_by("hp-volume-builder", SOURCE, "system:serviceaccount:team:builder");
    let (name, uid) = story.pod_of(SOURCE);
    story.server.create_as("hp-volume-uid", 50, 0, Some(&(name, uid + "9")), Some(CONTROLLER));
    story.server.create_as("hp-volume-none", 50, 0, None, Some(CONTROLLER));
    // The reference of an export's pod was changed.
    story.attach(EXPORT, SOURCE);
    // A launcher claims to be another's attachment.
    story.attach("virt-launcher-b", SOURCE);
    story.server.create_as("v1-px3", 0, 0, None, None);
    story.run(at(50));
    story.attach("hp-volume-claim", "v1-px3");
    assert_eq!(story.used_after(100), "2");
    let expected = [
        "hp-volume-builder",
        "hp-volume-claim",
        "hp-volume-none",
        "hp-volume-tenant",
        "hp-volume-uid",
        EXPORT,
        "virt-launcher-b",
    ];
    assert_eq!(story.held(), expected);
    assert!(story.is_audited(200));
}

#[test]
fn an_attachment_is_exempt_as_long_as_its_vm_is_charged() {
    let mut story = Story::full(Calculator::VirtualResources);
    story.server.set_hard(2100);
    story.attach(ATTACHMENT, SOURCE);
    story.server.create_pod(TARGET, 2000, 0);
    assert_eq!(story.used_after(100), "2");
    story.server.finish_pod(SOURCE);
    assert_eq!(story.used_after(200), "2", "the VM goes on elsewhere");
    story.server.finish_pod(TARGET);
    assert_eq!(story.used_after(300), "50m", "without a VM it is a pod");
    story.server.create_pod("v1-p3", 2000, 0);
    assert_eq!(story.used_after(400), "2");
    story.server.delete_pod(SOURCE);
    assert_eq!(story.used_after(500), "2050m", "the garbage collector is about to delete it");
    story.server.delete_pod(ATTACHMENT);
    assert_eq!(story.used_after(600), "2");
    assert!(story.is_audited(700));
}

#[test]
fn another_way_of_counting_is_in_force_at_once() {
    let mut story = Story::full(Calculator::VirtualResources);
    story.attach(ATTACHMENT, SOURCE);
    story.run(at(100));
    let mut now = 200;
    for (calculator, used) in [
        (Calculator::IgnoreVmiCalculator, "2050m"),
        (Calculator::VirtualResources, "2"),
        (Calculator::IgnoreVmiCalculator, "2050m"),
        (Calculator::DedicatedVirtualResources, "0"),
    ] {
        story.state.count_machines_by(calculator, at(now));
        assert_eq!(story.used_after(now), used, "{calculator:?}");
        assert!(story.is_audited(now));
        now += 100;
    }
    story.state.set_kubevirt(None, at(now));
    assert_eq!(story.used_after(now), "2050m", "who creates attachments is not known");
    story.state.set_kubevirt(Some(kubevirt()), at(now));
    assert_eq!(story.used_after(now + 100), "0");
    assert!(story.is_audited(now + 200));
}

#[test]
fn a_reference_to_another_pod_is_followed() {
    let mut story = Story::full(Calculator::VirtualResources);
    story.attach(ATTACHMENT, SOURCE);
    assert_eq!(story.used_after(100), "2");
    story.server.adopt_pod(ATTACHMENT, None);
    assert_eq!(story.used_after(200), "2050m");
    let launcher = story.pod_of(SOURCE);
    story.server.adopt_pod(ATTACHMENT, Some(&launcher));
    assert_eq!(story.used_after(300), "2");
    // The launcher names another pod as its controller, so no VM is charged.
    story.server.adopt_pod(SOURCE, Some(&("web".to_owned(), "uid-99".to_owned())));
    assert_eq!(story.used_after(400), "2050m");
    assert!(story.is_audited(500));
}

#[test]
fn of_attachments_held_before_their_vm_was_seen_none_stays() {
    let mut story = Story::counting(Calculator::VirtualResources, 2000);
    story.server.create_pod(SOURCE, 2000, 0);
    story.attach(ATTACHMENT, SOURCE);
    story.server.create_pod("other", 1980, 10);
    story.run(at(0));
    assert_eq!(story.held(), [ATTACHMENT, SOURCE]);
    story.server.delete_pod("other");
    story.see_machine(&sized(2, 2), 100);
    assert_eq!(story.used_after(100), "2");
    assert_eq!(story.held(), Vec::<&str>::new());
}

#[rstest]
#[case(PlatformPods::Exempt, Calculator::IgnoreVmiCalculator, "2", &[])]
#[case(PlatformPods::Exempt, Calculator::VirtualResources, "2", &[])]
#[case(PlatformPods::WithMachine, Calculator::VirtualResources, "2", &[IMPORTER, EXPORT])]
#[case(PlatformPods::WithMachine, Calculator::IgnoreVmiCalculator, "2", &[ATTACHMENT, IMPORTER, EXPORT])]
#[case(PlatformPods::Counted, Calculator::VirtualResources, "2", &[ATTACHMENT, IMPORTER, EXPORT])]
fn what_is_done_with_them_is_the_administrators_choice(
    #[case] pods: PlatformPods,
    #[case] calculator: Calculator,
    #[case] used: &str,
    #[case] held: &[&str],
) {
    let mut story = Story::full(calculator).treating(pods);
    story.attach(ATTACHMENT, SOURCE);
    story.server.create_as(EXPORT, 50, 0, None, Some(CONTROLLER));
    story.server.create_as(IMPORTER, 50, 0, None, Some(CDI));
    story.server.create_as("importer-b", 50, 0, None, Some("system:serviceaccount:team:cdi-sa"));
    story.server.create_as("virt-launcher-b", 50, 0, None, Some(CONTROLLER));
    assert_eq!(story.used_after(100), used);
    let mut expected = [held, &["importer-b", "virt-launcher-b"]].concat();
    expected.sort_unstable();
    assert_eq!(story.held(), expected);
    assert!(story.is_audited(200));
}

#[test]
fn what_may_be_exempt_cannot_be_made_larger() {
    let mut story = Story::full(Calculator::VirtualResources);
    story.server.set_hard(5000);
    story.attach(ATTACHMENT, SOURCE);
    let refused = |asked: &Asked| matches!(asked, Asked::Judged(Judgement::Refused(why)) if why.contains("--platform-pods"));
    story.see_all(at(50));
    assert!(refused(&story.ask(ATTACHMENT, 1000, 50)), "while it is gated");
    story.run(at(100));
    assert_eq!(story.held(), Vec::<&str>::new());
    assert!(refused(&story.ask(ATTACHMENT, 51, 100)));
    assert_eq!(story.ask(ATTACHMENT, 40, 100), Asked::Judged(Judgement::Allowed));
    story.state.count_machines_by(Calculator::IgnoreVmiCalculator, at(200));
    story.run(at(200));
    assert!(refused(&story.ask(ATTACHMENT, 51, 300)), "it may be exempt later");
    story.state.config_mut().platform = Platform::new(PlatformPods::Counted, []);
    assert!(!refused(&story.ask(ATTACHMENT, 51, 300)));
}

/// A VM that is charged by its launcher would be charged that when it is seen, and others nothing of it.
#[rstest]
#[case(Calculator::VmiPodUsage)]
#[case(Calculator::GuestEffectiveResources)]
#[case(Calculator::VirtualResources)]
fn a_launcher_is_not_made_larger_than_it_was_created(#[case] calculator: Calculator) {
    let mut story = Story::full(calculator);
    let refused = |asked: &Asked| {
        matches!(
            asked,
            Asked::Judged(Judgement::Refused(why)) if why.contains("as its virtual machine"),
        )
    };
    for (milli_cpu, is_more) in [(64_000, true), (2001, true), (2000, false), (1000, false)] {
        let asked = story.ask(SOURCE, milli_cpu, 100);
        assert_eq!(refused(&asked), is_more, "{milli_cpu}m: {asked:?}");
    }
    story.server.create_pod("v2-p1", 100, 0);
    story.see_all(at(200));
    assert!(refused(&story.ask("v2-p1", 101, 200)), "while it is gated");
    story.state.count_machines_by(Calculator::IgnoreVmiCalculator, at(300));
    story.run(at(300));
    assert!(!refused(&story.ask(SOURCE, 64_000, 300)), "it is charged as any other pod");
}
