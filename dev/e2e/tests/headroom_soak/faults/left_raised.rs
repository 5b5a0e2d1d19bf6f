//! A webhook dies behind its raise and the target is not let in: until the quota is restored, also long after the end of the
//! mark, nothing gets in that its spec would not allow.

use http::Method;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::names;
use sluice_e2e::intruders::editor;
use sluice_e2e::objects::{self, from_json};
use sluice_e2e::pair::{at_second, both};
use sluice_e2e::simulated_webhook::{Review, SimulatedWebhook, Verdict, WebhookOptions, rule};
use sluice_e2e::tenant::{SOON, Tenant, amount, hard};
use sluice_engine::headroom::MARK;
use sluice_engine::{Amount, Format, Quantity};
use sluice_testbed::proxy::{Action, Recorded, Rule};
use sluice_testbed::{Identity, ports, wait};

use crate::faults::gate::{Forwarder, Gate, OWN_WEBHOOK};
use crate::faults::invariants::Invariants;
use crate::faults::world::{self, World, account};

const MEMORY: &str = "requests.memory";
const QUOTA: &str = "rq";
/// What is left in the quota: one pod of [`small`], not two.
const ROOM: &str = "30Mi";
/// How many pods are asked for after the one that fits.
const MORE: usize = 50;
/// What the other webhook says; KubeVirt's controller tries again when a quota changes.
const REFUSED: &str = "exceeded quota: refused by the webhook beside Sluice's";

fn small(memory: &str) -> Pod {
    from_json(json!({
        "metadata": { "generateName": "small-" },
        "spec": { "containers": [
            { "name": "main", "image": "none", "resources": { "requests": { "memory": memory } } },
        ]},
    }))
}

fn is_target(review: Review<'_>) -> bool {
    !review.label("object", names::MIGRATION_JOB_LABEL).is_empty()
}

/// Refuses targets at each of these API servers.
async fn refuse_targets(tenant: &Tenant<'_>, servers: &[Client]) -> SimulatedWebhook {
    let rules = vec![rule(&["CREATE"], &["pods"])];
    let options = WebhookOptions::new("targets.simulated.test", tenant.name(), rules);
    let judge = |review: Review<'_>| {
        if is_target(review) { Verdict::deny(403, REFUSED) } else { Verdict::allow() }
    };
    let sibling = SimulatedWebhook::start(tenant.bed, options, judge).await.unwrap();
    let mut pod = objects::pod("probe", &[]);
    pod.metadata.labels = Some([(names::MIGRATION_JOB_LABEL.to_owned(), "none".to_owned())].into());
    let dry = PostParams { dry_run: true, ..Default::default() };
    for server in servers {
        let pods: Api<Pod> = Api::namespaced(server.clone(), tenant.name());
        let refused = || async {
            let error = pods.create(&dry, &pod).await.err()?;
            error.to_string().contains(REFUSED).then_some(())
        };
        wait::eventually(SOON, refused, "targets to be refused").await.unwrap();
    }
    sibling
}

fn is_raise(request: &Recorded, namespace: &str) -> bool {
    let mark = request.body.as_ref().and_then(|body| body.pointer("/status/hard")?.get(MARK));
    request.method == Method::PATCH
        && request.path.contains(&format!("/namespaces/{namespace}/"))
        && mark.is_some_and(Value::is_string)
}

/// Where the API servers are, and how the webhook reaches them.
struct Place<'w> {
    world: &'w World,
    identity: Identity,
    servers: Vec<Client>,
    args: Vec<String>,
}

impl Place<'_> {
    async fn gate(&self, port: u16) -> Gate {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        Gate::start_at(self.world, &self.identity, port, &args).await
    }

    /// What is left takes one pod in, which the spec has room for, and no other.
    /// Without the controller it stays as it is left.
    async fn takes_nothing_in(&self, controller_is_away: bool) {
        let bed = self.world.bed;
        let tenant = &Tenant::with(bed, "left", &[(OWN_WEBHOOK, "true")]).await;
        let vm = tenant.vm("web").await;
        let room = Amount::from(Quantity::parse(ROOM).unwrap());
        let limit = amount(&tenant.usage(&[MEMORY]).await, MEMORY).saturating_add(room);
        tenant.quota(QUOTA, json!({ MEMORY: limit.quantity(Format::BinarySi).to_string() })).await;
        tenant.unlimited().await;
        let sibling = refuse_targets(tenant, &self.servers).await;
        let next = ports::free().unwrap();
        let gate = self.gate(ports::free().unwrap()).await;
        let forwarder = Forwarder::to(vec![gate.port, next]).await;
        gate.serve_at(bed, forwarder.port, tenant.name(), &self.servers).await;

        let (namespace, victim) = (tenant.name().to_owned(), gate.webhook.clone());
        let raises = Rule::new(Action::ApplyThenLoseResponse)
            .when(move |request| is_raise(request, &namespace))
            .times(1)
            .then(move |_| victim.program.kill());
        let killed = gate.proxy.add(raises);
        let away = controller_is_away.then(|| self.world.without_controller());
        let migration = vm.migrate().await.unwrap();
        killed.wait_applied(1, SOON).await.unwrap();

        let raised = tenant.quotas.get(QUOTA).await.unwrap();
        let end: i64 = hard(&raised)[MARK].0.parse().unwrap();
        let end = Timestamp::from_second(end / 1000).unwrap();
        assert!(amount(&hard(&raised), MEMORY) > limit, "{raised:?}");
        self.lets_one_in(tenant, end).await;
        let quota = tenant.quotas.get(QUOTA).await.unwrap();
        assert!(!controller_is_away || hard(&quota).contains_key(MARK), "nothing restored it: {quota:?}");
        let overdrafts = Invariants::of(bed, tenant.name()).await;
        let above = overdrafts.overdrafts(QUOTA, MEMORY).find(|(_, above)| *above > Amount::ZERO);
        assert_eq!(above, None, "used above the spec");
        drop(away);
        tenant.until_clear().await;

        sibling.stop().await.unwrap();
        let _next = self.gate(next).await;
        tenant.let_in_when_woken(QUOTA, &migration).await;
        migration.until_succeeded().await.unwrap();
        tenant.until_clear().await;
        vm.until_alone().await.unwrap();
        let fits =
            || async { tenant.pods.create(&PostParams::default(), &small("5Mi")).await.ok().map(drop) };
        wait::eventually(SOON, fits, "a pod that fits to be let in").await.unwrap();
        Invariants::of(bed, tenant.name()).await.holds(0);
    }

    /// A tenant asks for the same pod again and again, from before the end of the mark to long after it.
    async fn lets_one_in(&self, tenant: &Tenant<'_>, end: Timestamp) {
        let client = editor(tenant).await.client().unwrap();
        let pods: Api<Pod> = Api::namespaced(client, tenant.name());
        let pod = small("20Mi");
        let ask = || async {
            match pods.create(&PostParams::default(), &pod).await {
                Ok(_) => Some(Timestamp::now()),
                Err(kube::Error::Api(status)) if status.message.contains("exceeded quota") => None,
                // Out of luck with the quota's version.
                Err(kube::Error::Api(status)) if status.code == 409 => None,
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(ask().await, None, "the lock holds until {end}");
        let entered = wait::eventually(SOON, ask, "the pod that fits to be let in").await.unwrap();
        assert!(entered >= end, "{entered} before {end}");
        for number in 0..MORE {
            assert_eq!(ask().await, None, "pod {number} after the one that fits");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_webhook_left_takes_nothing_in_before_the_controller_restores_it() {
    let world = world::shared().await;
    let identity = account(world.bed, names::WEBHOOK).await;
    let servers = vec![world.bed.admin().unwrap()];
    Place { world, identity, servers, args: Vec::new() }.takes_nothing_in(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_webhook_left_takes_nothing_in_while_the_controller_is_away() {
    let world = world::pair().await;
    let identity = account(world.bed, names::WEBHOOK).await;
    let servers = vec![world.bed.admin().unwrap(), at_second(world.bed)];
    let args = both(world.bed).to_vec();
    Place { world: &world, identity, servers, args }.takes_nothing_in(true).await;
}
