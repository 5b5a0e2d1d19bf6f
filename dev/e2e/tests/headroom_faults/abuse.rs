//! A tenant with `edit` while a window of ours stands still: nobody gets in but the target.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use kube::api::PostParams;
use rstest::rstest;
use serde_json::json;
use sluice_e2e::call;
use sluice_e2e::intruders::{Flood, Tally, editor, grant, growth, waiting_intruder};
use sluice_e2e::tenant::{Tenant, hard, spec_hard, used};
use sluice_testbed::Identity;
use sluice_testbed::kubevirt::{MigrationPhase, Vm};
use sluice_testbed::proxy::{Action, Recorded, Rule};
use tokio::sync::Mutex;

use crate::account::Account;
use crate::gate::{Entry, Forwarder, Gate};
use crate::steps::Step;
use crate::stop::Stop;
use crate::world;

const SOON: Duration = Duration::from_secs(60);
/// Well below the two seconds that one of our requests may take: one that is given up while the API server does it is not
/// in the audit log as what it is.
const LONG: Duration = Duration::from_millis(1_500);
/// A little less than what quota admission is asked for.
const LESS_LONG: Duration = Duration::from_millis(900);
/// So many attempts show that the loops run.
const MANY: usize = 50;

/// Before what a window stands still.
#[derive(Clone, Copy, Debug)]
enum Before {
    /// The raise is written; the question whether quota admission knows of it is on its way.
    Answer,
    /// The raise is written and the webhook has answered; the API server has not heard it.
    Target,
    /// The target is in; the quota is still raised.
    Restoration,
}

/// A virtual machine and a small pod that fill a quota, somebody with `edit`, and a webhook of their own.
struct Stage {
    tenant: Tenant<'static>,
    vm: Vm,
    editor: Identity,
    gate: Gate,
    forwarder: Forwarder,
}

impl Stage {
    async fn set(prefix: &str) -> Self {
        let world = world::shared().await;
        let tenant = Tenant::on(world.bed, prefix).await;
        let own = waiting_intruder(json!({ "name": "own" }));
        tenant.pods.create(&PostParams::default(), &own).await.unwrap();
        let vm = tenant.vm("web").await;
        tenant.full_quota("full", &["requests.memory"]).await;
        tenant.unlimited().await;
        let editor = editor(&tenant).await;
        let gate = Gate::behind(world, &[]).await;
        let forwarder = Forwarder::to(vec![gate.port]).await;
        let entry = Entry::new(world.bed, forwarder.port, &[tenant.name()]);
        entry.in_force(world.bed, &[tenant.name()], std::slice::from_ref(&gate)).await;
        Self { tenant, vm, editor, gate, forwarder }
    }

    /// Migrates the machine, and does something while the window stands still.
    async fn migrate(&self, before: Before, act: impl Future<Output = ()>) {
        match before {
            Before::Answer => {
                self.delayed(LESS_LONG, asks_after_a_raise(self.tenant.name()), act).await;
            }
            Before::Restoration => self.delayed(LONG, restores(self.tenant.name()), act).await,
            Before::Target => self.unheard(act).await,
        }
        self.tenant.until_clear().await;
    }

    async fn delayed(
        &self,
        time: Duration,
        which: impl Fn(&Recorded) -> bool + Send + Sync + 'static,
        act: impl Future<Output = ()>,
    ) {
        let late = self.gate.proxy.add(Rule::new(Action::Delay(time)).when(which).times(1));
        let migration = self.vm.migrate().await.unwrap();
        late.wait_applied(1, SOON).await.unwrap();
        act.await;
        migration.until_succeeded().await.unwrap();
        self.gate.proxy.remove(&late);
    }

    /// The webhook waits for a target that it has let in; when it gives up, it cannot restore at once.
    async fn unheard(&self, act: impl Future<Output = ()>) {
        let stop = Stop::default();
        stop.hold_all(&self.gate.proxy, self.tenant.name(), Action::Pass, Step::is_restore);
        self.forwarder.let_answers_through(false);
        let migration = self.vm.migrate().await.unwrap();
        stop.until_all_stand().await;
        act.await;
        self.forwarder.let_answers_through(true);
        migration.until(MigrationPhase::Scheduling).await.unwrap();
        stop.let_go();
        migration.until_succeeded().await.unwrap();
    }

    /// Nothing was refused to the target and nothing is left. Returns how often the editor was locked out of pods.
    async fn holds(&self) -> usize {
        let account = Account::of(self.tenant.bed, self.tenant.name()).await;
        account.holds();
        assert_eq!(account.raises(), 1, "{account:#?}");
        assert_eq!(self.tenant.rejected_attempts().await, 0);
        self.vm.until_alone().await.unwrap();
        let full = |quota: &_| hard(quota) == spec_hard(quota) && used(quota) == spec_hard(quota);
        self.tenant.until_quota("full", "to be as it was", full).await;
        self.locked_out(&account).await
    }

    /// Whatever the editor asked for while the quota was raised was refused by the window.
    async fn locked_out(&self, account: &Account) -> usize {
        let spans = account.raised_spans();
        let events = self.tenant.bed.audit_events_with(self.editor.user()).await.unwrap();
        let text = |event: &serde_json::Value, at: &str| {
            event.pointer(at).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
        };
        let while_raised = events.iter().filter(|event| {
            let (from, to) = (text(event, "/requestReceivedTimestamp"), text(event, "/stageTimestamp"));
            text(event, "/objectRef/resource") == "pods"
                && text(event, "/objectRef/namespace") == self.tenant.name()
                && spans.iter().any(|span| *span.0 < *from && *to < *span.1)
        });
        let refused = while_raised.filter(|event| event["responseStatus"]["code"] != 429);
        let said: Vec<String> = refused.map(|event| text(event, "/responseStatus/message")).collect();
        for said in &said {
            assert!(said.contains("(window "), "not refused by the window: {said}");
        }
        said.len()
    }

    /// Tries to let the small pod grow.
    async fn grow(&self) -> call::Answer {
        let path = format!("/api/v1/namespaces/{}/pods/own/resize", self.tenant.name());
        let client = self.editor.client().unwrap();
        call::call(&client, Method::PATCH, &path, call::STRATEGIC, &growth()).await.unwrap()
    }
}

fn restores(namespace: &str) -> impl Fn(&Recorded) -> bool + Send + Sync + 'static {
    let namespace = namespace.to_owned();
    move |request| Step::of(request, &namespace).is_some_and(|step| step.is_restore())
}

/// The same dry run is sent before the raise.
fn asks_after_a_raise(namespace: &str) -> impl Fn(&Recorded) -> bool + Send + Sync + 'static {
    let (namespace, raised) = (namespace.to_owned(), AtomicBool::new(false));
    move |request| {
        let Some(step) = Step::of(request, &namespace) else { return false };
        raised.fetch_or(step.is_raise(), Ordering::SeqCst);
        step.is_drain() && raised.load(Ordering::SeqCst)
    }
}

#[rstest]
#[case::before_the_answer(Before::Answer)]
#[case::before_the_target(Before::Target)]
#[case::before_the_restoration(Before::Restoration)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_one_pod_of_a_flood_gets_into_a_window_of_ours_that_stands_still(#[case] before: Before) {
    static ONE_FLOOD: Mutex<()> = Mutex::const_new(());
    let _one = ONE_FLOOD.lock().await;
    let stage = Stage::set("held").await;
    let flood = Flood::start(&stage.tenant, &stage.editor);
    flood.until_more(Tally::over_quota, MANY, "the loops to run").await;
    stage.migrate(before, flood.until_more(Tally::locked_out, MANY, "the loops to be locked out")).await;
    flood.until_more(Tally::over_quota, MANY, "the loops to run into the quota again").await;
    let locked_out = stage.holds().await;
    flood.until_more(Tally::over_quota, MANY, "the loops to run after all is over").await;
    let tally = flood.end().await;
    println!("{before:?}: {tally:?}, {locked_out} locked out while the quota was raised");
    assert_eq!(tally.let_in(), 0);
    assert!(locked_out >= MANY / 2, "{locked_out}");
}

#[rstest]
#[case::before_the_target(Before::Target)]
#[case::before_the_restoration(Before::Restoration)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pod_grows_into_a_window_of_ours_that_stands_still(#[case] before: Before) {
    let stage = Stage::set("grow").await;
    grant(&stage.tenant, &stage.editor, "", "pods/resize").await;
    let full = stage.grow().await;
    assert!(full.code == 403 && full.message().contains("exceeded quota"), "{full:?}");
    let locked = async {
        let answer = stage.grow().await;
        assert!(answer.code == 403 && answer.message().contains("(window "), "{answer:?}");
    };
    stage.migrate(before, locked).await;
    assert!(stage.holds().await >= 1, "it was tried while the quota was raised");
    let after = stage.grow().await;
    assert!(after.code == 403 && after.message().contains("exceeded quota"), "{after:?}");
}
