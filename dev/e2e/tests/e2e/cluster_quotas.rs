//! Quotas over several namespaces: charged as one, shown in each.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_api::{
    ApplicationAwareAppliedClusterResourceQuota as Mirror, ApplicationAwareClusterResourceQuota as Acrq,
    ClusterQuotaCharge, ClusterQuotaStatus, names,
};
use sluice_e2e::objects::{self, TARGETED, apply_aaq, from_json};
use sluice_e2e::{Running, Setup};
use sluice_testbed::{Bed, wait};
use tokio::sync::OnceCell;

use crate::context::{SOON, idle_options, kubectl};
use crate::team::Team;
use crate::why::said;

/// Label and annotation by which the quotas of these tests select.
const OWNER: &str = "example.com/owner";

/// A control plane with an AAQ that allows cluster quotas; other suites want none.
async fn allowing() -> &'static Running<'static> {
    static SHARED: OnceCell<Running<'static>> = OnceCell::const_new();
    let start = || async {
        let bed = Bed::start_shared(idle_options()).await.unwrap();
        let controller_args = vec!["--in-flight-grace=3".to_owned()];
        let running = Running::on(bed, Setup { controller_args, ..Setup::default() }).await.unwrap();
        allow(bed).await;
        running
    };
    SHARED.get_or_init(start).await
}

/// Applies the AAQ that allows cluster quotas.
pub async fn allow(bed: &Bed) {
    let spec = json!({ "configuration": { "allowApplicationAwareClusterResourceQuota": true } });
    apply_aaq(&bed.admin().unwrap(), spec).await.unwrap();
}

/// A cluster quota and the namespaces of its owner.
pub struct Owner {
    pub name: String,
    pub client: Client,
    pub quotas: Api<Acrq>,
    pub teams: Vec<Team>,
}

impl Owner {
    /// With so many namespaces, and no quota yet.
    async fn new(name: &str, namespaces: usize) -> Self {
        Self::on(allowing().await.bed, name, namespaces).await
    }

    /// As [`Self::new`], on another control plane.
    pub async fn on(bed: &Bed, name: &str, namespaces: usize) -> Self {
        let labels: Vec<(&str, &str)> = TARGETED.iter().copied().chain([(OWNER, name)]).collect();
        let mut teams = Vec::new();
        for _ in 0..namespaces {
            teams.push(Team::with(bed, name, &labels).await);
        }
        let client = bed.admin().unwrap();
        Self { name: name.to_owned(), quotas: Api::all(client.clone()), client, teams }
    }

    pub async fn limit(&self, hard: Value) {
        self.try_limit(hard, &PostParams::default()).await.unwrap();
    }

    async fn limit_by(&self, selector: Value, hard: Value) {
        self.try_limit_by(selector, hard, &PostParams::default()).await.unwrap();
    }

    /// Creates the quota, or returns why not.
    pub async fn try_limit(&self, hard: Value, params: &PostParams) -> kube::Result<Acrq> {
        self.try_limit_by(json!({ "labels": { "matchLabels": { OWNER: self.name } } }), hard, params).await
    }

    async fn try_limit_by(&self, selector: Value, hard: Value, params: &PostParams) -> kube::Result<Acrq> {
        let quota: Acrq = from_json(json!({
            "apiVersion": names::API_VERSION, "kind": "ApplicationAwareClusterResourceQuota",
            "metadata": { "name": self.name },
            "spec": { "quota": { "hard": hard }, "selector": selector },
        }));
        self.quotas.create(params, &quota).await
    }

    /// Changes the specification of the quota.
    pub async fn edit(&self, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.quotas.patch(&self.name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn until(&self, what: &str, holds: impl Fn(&ClusterQuotaStatus) -> bool + Send) {
        let holds = |quota: Option<&Acrq>| quota.and_then(|quota| quota.status.as_ref()).is_some_and(&holds);
        wait::wait_for(&self.quotas, &self.name, SOON, what, holds).await.unwrap();
    }

    /// Waits until the total says so, and each namespace in turn.
    pub async fn until_used(&self, key: &str, total: &str, each: &[&str]) {
        let wanted: Vec<(String, String)> = self
            .teams
            .iter()
            .zip(each)
            .map(|(team, used)| (team.namespace.name.clone(), (*used).to_owned()))
            .collect();
        self.until(&format!("{total} of {key} in all, {wanted:?}"), |status| {
            let text = |amounts: &sluice_api::QuotaAmounts| amounts.used.get(key).map(|used| used.0.clone());
            let of = |name: &str| {
                let entry = status.namespaces.iter().flatten().find(|entry| entry.namespace == name);
                entry.and_then(|entry| text(&entry.status))
            };
            text(&status.total).as_deref() == Some(total)
                && wanted.iter().all(|(name, used)| of(name).as_ref() == Some(used))
        })
        .await;
    }

    pub async fn mirror(&self, team: &Team, what: &str, holds: impl Fn(&Mirror) -> bool + Send) {
        let mirrors = Api::<Mirror>::namespaced(self.client.clone(), &team.namespace.name);
        wait::wait_for(&mirrors, &self.name, SOON, what, |mirror| mirror.is_some_and(&holds)).await.unwrap();
    }
}

pub fn used(mirror: &Mirror, key: &str) -> Option<(String, Vec<(String, String)>)> {
    let status = mirror.status.as_ref()?;
    let text = |amounts: &sluice_api::QuotaAmounts| amounts.used.get(key).map(|used| used.0.clone());
    let namespaces = status.namespaces.iter().flatten();
    let each = namespaces.map(|entry| (entry.namespace.clone(), text(&entry.status).unwrap_or_default()));
    Some((text(&status.total)?, each.collect()))
}

#[tokio::test]
async fn two_namespaces_share_what_there_is() {
    let owner = Owner::new("shares", 3).await;
    owner.limit(json!({ "requests.cpu": "2" })).await;
    let [one, other, idle] = &owner.teams[..] else { panic!("three") };
    one.pod("a", &[("cpu", "1500m")]).await;
    one.until_released("a").await;
    other.pod("b", &[("cpu", "600m")]).await;
    owner.until("a pod to be held", |status| status.held == Some(1)).await;
    owner.until_used("requests.cpu", "1500m", &["1500m", "0", "0"]).await;
    other.pod("c", &[("cpu", "500m")]).await;
    other.until_released("c").await;
    owner.until_used("requests.cpu", "2", &["1500m", "500m", "0"]).await;
    assert_eq!(other.held().await, ["b"]);
    let events: Api<k8s_openapi::api::events::v1::Event> =
        Api::namespaced(owner.client.clone(), &other.namespace.name);
    let told = || async {
        let events = events.list(&ListParams::default()).await.ok()?;
        events
            .items
            .into_iter()
            .find_map(|event| event.note.filter(|note| note.contains("exceeded quota: shares")))
    };
    wait::eventually(SOON, told, "an event about the held pod").await.unwrap();
    for (team, own) in [(one, "1500m"), (other, "500m"), (idle, "0")] {
        let wanted = Some(("2".to_owned(), vec![(team.namespace.name.clone(), own.to_owned())]));
        owner.mirror(team, &format!("{wanted:?}"), |mirror| used(mirror, "requests.cpu") == wanted).await;
    }
    is_explained(&owner, &[one, other]).await;
    one.pods.delete("a", &DeleteParams::default()).await.unwrap();
    other.until_released("b").await;
    owner.until_used("requests.cpu", "1100m", &["0", "1100m", "0"]).await;
}

/// Of all namespaces to whoever names none, and of one that it is about.
async fn is_explained(owner: &Owner, [one, other]: &[&Team; 2]) {
    let bed = allowing().await.bed;
    let why = ["why", "clusterquota", owner.name.as_str()];
    let (text, _) = said(bed, 3, &why).await;
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let [one, other] = [one, other].map(|team| team.namespace.name.as_str());
    assert!(
        text.starts_with("cluster shares  held 1, oldest ") && text.contains(&format!("({other}/b, since "))
    );
    assert_eq!(rows[2], ["requests.cpu", "2", "2", "100%", "2", "0", "0"], "{text}");
    assert!(text.contains(&format!("  Largest of requests.cpu: {one} 1500m, {other} 500m.\n")), "{text}");
    assert!(text.contains("  Source: recomputed from lists.\n"), "{text}");
    let (text, _) = said(bed, 3, &[&why[..], &["-n", other]].concat()).await;
    assert!(text.starts_with("cluster shares  held 1, oldest ") && !text.contains(one), "{text}");
    let (_, error) = said(bed, 4, &[&why[..], &["-n", "default"]].concat()).await;
    assert!(
        error.contains("cluster quota shares is not about namespace default: name one of its"),
        "{error}"
    );
    let (_, error) = said(bed, 4, &["why", "clusterquota", "share"]).await;
    assert!(error.ends_with("error: share not found: is it shares?\n"), "{error}");
}

/// The flood is older and claims the highest priority that a tenant can.
#[tokio::test]
async fn the_namespace_that_uses_less_goes_first() {
    let owner = Owner::new("fair", 2).await;
    owner.limit(json!({ "requests.cpu": "2" })).await;
    let [flood, neighbour] = &owner.teams[..] else { panic!("two") };
    let classes = Api::<PriorityClass>::all(owner.client.clone());
    let highest: PriorityClass =
        from_json(json!({ "metadata": { "name": "fair-highest" }, "value": 1_000_000_000 }));
    classes.create(&PostParams::default(), &highest).await.unwrap();
    for name in ["a", "b"] {
        flood.pod(name, &[("cpu", "1")]).await;
        flood.until_released(name).await;
    }
    for at in 0..20 {
        let mut urgent = objects::pod(&format!("flood-{at:02}"), &[("cpu", "1")]);
        urgent.spec.as_mut().unwrap().priority_class_name = Some("fair-highest".to_owned());
        objects::create(&owner.client, &flood.namespace.name, &urgent).await.unwrap();
    }
    neighbour.pod("late", &[("cpu", "1")]).await;
    owner.until("all of them to be held", |status| status.held == Some(21)).await;
    flood.pods.delete("a", &DeleteParams::default()).await.unwrap();
    neighbour.until_released("late").await;
    owner.until_used("requests.cpu", "2", &["1", "1"]).await;
    assert_eq!(flood.held().await.len(), 20);
    neighbour.pods.delete("late", &DeleteParams::default()).await.unwrap();
    flood.until_released_count(2).await;
    classes.delete("fair-highest", &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_namespace_joins_and_leaves_with_its_pods() {
    let owner = Owner::new("joins", 1).await;
    let stranger = Team::on(allowing().await.bed, "joins-later").await;
    stranger.pod("runs", &[("cpu", "3")]).await;
    stranger.until_released("runs").await;
    owner.limit(json!({ "cpu": "3", "pods": "10" })).await;
    owner.teams[0].pod("a", &[("cpu", "1")]).await;
    owner.teams[0].until_released("a").await;
    stranger.label(json!({ OWNER: owner.name })).await;
    owner.until_used("cpu", "4", &["1"]).await;
    owner.teams[0].pod("b", &[("cpu", "1")]).await;
    stranger.pod("c", &[("cpu", "1")]).await;
    owner.until("both pods to be held", |status| status.held == Some(2)).await;
    owner.mirror(&stranger, "a mirror", |_| true).await;
    stranger.label(json!({ OWNER: null })).await;
    owner.teams[0].until_released("b").await;
    stranger.until_released("c").await;
    owner.until_used("cpu", "2", &["2"]).await;
    let mirrors = Api::<Mirror>::namespaced(owner.client.clone(), &stranger.namespace.name);
    wait::wait_for(&mirrors, &owner.name, SOON, "no mirror", |mirror| mirror.is_none()).await.unwrap();
}

#[tokio::test]
async fn annotations_select_too() {
    let owner = Owner::new("annotated", 2).await;
    owner.limit_by(json!({ "annotations": { OWNER: "a b" } }), json!({ "pods": "1" })).await;
    let namespaces = Api::<Namespace>::all(owner.client.clone());
    let annotate = async |value: Value| {
        let patch = json!({ "metadata": { "annotations": { OWNER: value } } });
        let name = &owner.teams[0].namespace.name;
        namespaces.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    annotate(json!("a b")).await;
    owner.until_used("pods", "0", &["0"]).await;
    for (team, pods) in owner.teams.iter().zip([2, 2]) {
        for number in 0..pods {
            team.pod(&format!("p{number}"), &[]).await;
        }
    }
    owner.teams[1].until_all_released(2).await;
    owner.teams[0].until_released_count(1).await;
    owner.until_used("pods", "1", &["1"]).await;
    annotate(json!("a c")).await;
    owner.teams[0].until_all_released(2).await;
}

#[tokio::test]
async fn its_limits_its_own_end_and_a_quota_beside_it() {
    let owner = Owner::new("edited", 2).await;
    owner.limit(json!({ "pods": "1" })).await;
    let [one, other] = &owner.teams[..] else { panic!("two") };
    one.quota("own", &[("pods", "2")]).await;
    for number in 0..3 {
        one.pod(&format!("p{number}"), &[]).await;
    }
    other.pod("p0", &[]).await;
    owner.until("three pods to be held", |status| status.held == Some(3)).await;
    owner.edit(json!({ "quota": { "hard": { "pods": "3" } } })).await;
    owner.until_used("pods", "3", &["2", "1"]).await;
    one.until_used("own", "pods", "2").await;
    let quota = owner.quotas.get(&owner.name).await.unwrap();
    let charges = Api::<ClusterQuotaCharge>::namespaced(owner.client.clone(), names::INSTALL_NAMESPACE);
    let charge = quota.metadata.uid.unwrap();
    assert_eq!(charges.get(&charge).await.unwrap().spec.quota, owner.name);
    owner.quotas.delete(&owner.name, &DeleteParams::default()).await.unwrap();
    one.until_released_count(2).await;
    wait::wait_for(&charges, &charge, SOON, "no charge", |charge| charge.is_none()).await.unwrap();
    let mirrors = Api::<Mirror>::namespaced(owner.client.clone(), &one.namespace.name);
    wait::wait_for(&mirrors, &owner.name, SOON, "no mirror", |mirror| mirror.is_none()).await.unwrap();
}

#[tokio::test]
async fn a_mirror_that_is_edited_or_deleted_is_put_right() {
    let owner = Owner::new("mirrored", 1).await;
    owner.limit(json!({ "pods": "5" })).await;
    let team = &owner.teams[0];
    let wanted = Some(("0".to_owned(), vec![(team.namespace.name.clone(), "0".to_owned())]));
    owner.mirror(team, "a mirror", |mirror| used(mirror, "pods") == wanted).await;
    let mirrors = Api::<Mirror>::namespaced(owner.client.clone(), &team.namespace.name);
    let edit = json!({ "spec": { "quota": { "hard": { "pods": "50" } } } });
    mirrors.patch(&owner.name, &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    let is_right = |mirror: &Mirror| mirror.spec.quota.hard.get("pods").is_some_and(|pods| pods.0 == "5");
    owner.mirror(team, "the limit of the quota", is_right).await;
    let old = mirrors.get(&owner.name).await.unwrap().metadata.uid;
    mirrors.delete(&owner.name, &DeleteParams::default()).await.unwrap();
    owner.mirror(team, "another mirror", |mirror| mirror.metadata.uid != old && is_right(mirror)).await;
}

/// What it said last may have been another leader's word, so its room is kept until requests of such a one are dead.
#[tokio::test]
async fn a_charge_that_is_deleted_is_made_anew_and_gives_no_room_away() {
    let owner = Owner::new("lost", 2).await;
    owner.limit(json!({ "pods": "3" })).await;
    let [one, other] = &owner.teams[..] else { panic!("two") };
    one.pod("a", &[]).await;
    other.pod("a", &[]).await;
    owner.until_used("pods", "2", &["1", "1"]).await;
    let charges = Api::<ClusterQuotaCharge>::namespaced(owner.client.clone(), names::INSTALL_NAMESPACE);
    let name = owner.quotas.get(&owner.name).await.unwrap().metadata.uid.unwrap();
    charges.delete(&name, &DeleteParams::default()).await.unwrap();
    one.pod("b", &[]).await;
    one.pod("c", &[]).await;
    one.until_released_count(2).await;
    owner.until_used("pods", "3", &["2", "1"]).await;
    let says = |charge: Option<&ClusterQuotaCharge>| {
        let status = charge.and_then(|charge| charge.status.as_ref());
        status.and_then(|status| status.used.get("pods")).is_some_and(|pods| pods.0 == "3")
    };
    wait::wait_for(&charges, &name, SOON, "what is used", says).await.unwrap();
    assert_eq!(one.held().await.len(), 1);
}

/// As `examples/README.md` has it.
#[tokio::test]
async fn the_example_works() {
    const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cluster-quota");
    let bed = allowing().await.bed;
    kubectl(bed, &["apply", "-f", FILES]).await;
    let quotas = Api::<Acrq>::all(bed.admin().unwrap());
    let says = |quota: Option<&Acrq>| {
        let status = quota.and_then(|quota| quota.status.as_ref());
        status.is_some_and(|status| {
            status.held == Some(1) && status.requests.as_deref() == Some("pods: 2/10, requests.cpu: 2/2")
        })
    };
    wait::wait_for(&quotas, "shop", SOON, "two pods to be counted and one held", says).await.unwrap();
    let listed = kubectl(bed, &["get", "acrq", "shop"]).await;
    assert!(listed.contains("pods: 2/10, requests.cpu: 2/2"), "{listed}");
    let mirrors = Api::<Mirror>::namespaced(bed.admin().unwrap(), "shop-web");
    let own = |mirror: Option<&Mirror>| {
        let used = mirror.and_then(|mirror| used(mirror, "requests.cpu"));
        used == Some(("2".to_owned(), vec![("shop-web".to_owned(), "1500m".to_owned())]))
    };
    wait::wait_for(&mirrors, "shop", SOON, "a mirror", own).await.unwrap();
    println!("{listed}{}", kubectl(bed, &["get", "aacrq", "--namespace", "shop-web"]).await);
    kubectl(bed, &["delete", "--namespace", "shop-web", "pod", "front", "--grace-period=0", "--force"]).await;
    let all = |quota: Option<&Acrq>| quota.and_then(|quota| quota.status.as_ref()?.held) == Some(0);
    wait::wait_for(&quotas, "shop", SOON, "no pod to be held", all).await.unwrap();
}
