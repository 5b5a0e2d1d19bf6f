//! What is above a quota is explained by what exists, or nothing is raised.

use super::*;
use sluice_engine::headroom::{Account, AccountedPod, Stake};
use sluice_engine::{Amount, Charge, Resource};

const MEMORY: &str = "requests.memory";
/// When `spec` of the quotas here was written; seconds.
const WRITTEN: i64 = 1_000;

fn mi(amount: i64) -> Amount {
    Amount::from(quantity(&format!("{amount}Mi")))
}

fn charge(memory: i64) -> Charge {
    Charge::from_pairs([(Resource::Memory, mi(memory))])
}

fn pod(name: &str, since: i64, memory: i64, stake: Stake) -> AccountedPod {
    AccountedPod { name: name.into(), since, charge: charge(memory), facts: ScopeFacts::default(), stake }
}

/// The pod of a VM that is younger than the quota, with 281Mi of KubeVirt's overhead.
fn vm(name: &str, memory: i64) -> AccountedPod {
    pod(name, WRITTEN + 1, memory, Stake::Runs(charge(281)))
}

fn target(name: &str, memory: i64) -> AccountedPod {
    pod(name, WRITTEN + 9, memory, Stake::Passes(charge(memory)))
}

fn other(name: &str, memory: i64) -> AccountedPod {
    pod(name, WRITTEN + 5, memory, Stake::Stays)
}

fn full(hard: &str, used: &str) -> NativeQuota {
    let mut quota = quota("rq", &[(MEMORY, hard)], &[(MEMORY, used)]);
    quota.spec_since = WRITTEN;
    quota
}

/// How much is not explained, in Mi, from pods of VMs alone and from all pods.
fn unexplained(quota: &NativeQuota, pods: &[AccountedPod]) -> [i128; 2] {
    [false, true].map(|is_complete| {
        let account = Account { pods: pods.to_vec(), is_complete };
        account.unexplained(quota, MEMORY).nanos() / mi(1).nanos()
    })
}

#[test]
fn migrations_under_way_and_kubevirts_overhead_explain_what_is_above() {
    let vms = [vm("a", 500), vm("b", 500)];
    assert_eq!(unexplained(&full("1000Mi", "1000Mi"), &vms), [0, 0], "nothing is above");
    let both = [&vms[..], &[target("a2", 500)]].concat();
    assert_eq!(unexplained(&full("1000Mi", "1500Mi"), &both), [0, 0]);
    // A ratio of the overhead that has grown, and nothing migrates.
    let grown = [vm("a", 700), vm("b", 700)];
    assert_eq!(unexplained(&full("1000Mi", "1400Mi"), &grown), [0, 0]);
    let more = [vm("a", 900), vm("b", 900)];
    assert_eq!(unexplained(&full("1000Mi", "1800Mi"), &more), [238, 238], "by more than 2 x 281Mi");
}

#[test]
fn a_leftover_and_a_thief_explain_nothing() {
    for (held, name) in [(other("zombie", 500), "zombie"), (other("thief", 500), "thief")] {
        let pods = [vm("a", 500), held];
        let quota = full("500Mi", "1000Mi");
        assert_eq!(unexplained(&quota, &pods), [219, 219], "all but the overhead of one VM");
        let account = Account { pods: pods.to_vec(), is_complete: true };
        let raised = raises(plan(&need(&[(MEMORY, "500Mi")]), std::slice::from_ref(&quota), &unlimited()));
        let said = account.objections(&need(&[(MEMORY, "500Mi")]), &raised, &[quota]);
        assert_eq!(
            said[0].to_string(),
            format!(
                "quota rq is above its spec.hard in requests.memory by more than migrations under way and KubeVirt's \
                 overhead explain, see pod {name}, a: nothing is raised until that is over"
            )
        );
    }
}

#[test]
fn thefts_do_not_add_up() {
    let quota = full("500Mi", "2500Mi");
    let pods = [vm("a", 500), target("a2", 500), other("one", 500), other("two", 500), other("three", 500)];
    assert_eq!(unexplained(&quota, &pods), [1219, 1219]);
}

/// A quota that is lowered under ten VMs lets all of them move, twice.
#[test]
fn what_was_there_before_the_quota_was_lowered_is_explained() {
    let old = |number: i64| pod(&format!("vm-{number}"), WRITTEN - number, 500, Stake::Runs(charge(1)));
    let mut pods: Vec<_> = (0..10).map(old).collect();
    assert_eq!(unexplained(&full("2500Mi", "5000Mi"), &pods), [0, 0]);
    pods.push(target("moving", 500));
    assert_eq!(unexplained(&full("2500Mi", "5500Mi"), &pods), [0, 0]);
    pods.pop();
    // A pod that came later was let in by a quota with room, so it is no part of what was there.
    pods.push(other("later", 500));
    assert_eq!(unexplained(&full("2500Mi", "5500Mi"), &pods), [490, 490]);
    // Plain pods that were there are only known where all pods are.
    pods.pop();
    let batch = pod("batch", WRITTEN, 500, Stake::Stays);
    let known: Vec<_> = pods.iter().cloned().chain([batch]).collect();
    assert_eq!(unexplained(&full("2500Mi", "5500Mi"), &known), [0, 0]);
}

/// A target that was refused after its charge, and one that is charged and not stored yet: no pod holds anything.
#[test]
fn a_charge_without_a_pod_is_no_ones() {
    assert_eq!(unexplained(&full("500Mi", "1000Mi"), &[vm("a", 500)]), [219, 0]);
}

#[test]
fn only_pods_that_the_quota_is_about_explain_something() {
    let mut quota = full("500Mi", "1000Mi");
    quota.scopes = Scopes::new([ScopeRequirement::exists(Scope::Terminating)]);
    let pods = [vm("a", 500), target("a2", 500)];
    assert_eq!(unexplained(&quota, &pods), [500, 0]);
    let mut terminating = pods;
    terminating.iter_mut().for_each(|pod| pod.facts.terminating = true);
    assert_eq!(unexplained(&quota, &terminating), [0, 0]);
}

#[test]
fn only_memory_grows_by_overhead() {
    let cpu = |amount: &str| Charge::from_pairs([(Resource::Cpu, quantity(amount).into())]);
    let mut quota = quota("rq", &[("requests.cpu", "2")], &[("requests.cpu", "3")]);
    quota.spec_since = WRITTEN;
    let runs = AccountedPod { charge: cpu("3"), ..vm("a", 0) };
    let account = Account { pods: vec![runs], is_complete: true };
    assert_eq!(account.unexplained(&quota, "requests.cpu"), Amount::ONE);
}

#[test]
fn hostile_amounts_do_not_overflow() {
    let most = Amount::from_nanos(i128::MAX);
    let huge = AccountedPod { charge: charge(i64::MAX / (1 << 20)), ..other("huge", 0) };
    let runs = |name| AccountedPod {
        stake: Stake::Runs(Charge::from_pairs([(Resource::Memory, most)])),
        ..vm(name, 1)
    };
    let account = Account { pods: vec![huge, runs("a"), runs("b")], is_complete: true };
    let mut quota = full("1", "1");
    quota.used.insert(MEMORY.into(), most.quantity(Format::DecimalSi));
    assert_eq!(account.unexplained(&quota, MEMORY), Amount::ZERO);
    assert_eq!(account.unexplained(&quota, "no such key"), Amount::ZERO);
}
