//! What the plan looks at: our admission objects, the `AAQ`, the authority, our own namespace.

use std::collections::BTreeMap;
use std::fmt::Debug;

use futures::future::join_all;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration,
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_api::names;
use sluice_engine::vm::Calculator;
use sluice_index::{AaqWire, Aaqs, KubeVirtWire, KubeVirts, Watched as _};
use sluice_manifests::AdmissionPolicy;
use sluice_manifests::certificates::is_path;
use sluice_manifests::uninstall::PART_OF;
use sluice_runtime::watch::{Event, WatchHealth, WatchOptions, watch as watch_kind};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::upkeep::Upkeep;
use super::writers::last_other_writer;
use crate::certificates::observe::{Seen, follow_one};
use crate::certificates::pairs::ca_pair;
use crate::owner::{self, Owner};
use crate::version;

/// Which of our admission objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// The MutatingWebhookConfiguration.
    Mutating,
    /// The ValidatingWebhookConfiguration.
    Validating,
    Policy {
        /// Also of its binding.
        name: &'static str,
        /// Else it validates.
        mutates: bool,
    },
    /// The binding of a policy.
    Binding {
        /// Also of its policy.
        name: &'static str,
        /// Else it validates.
        mutates: bool,
    },
}

impl Kind {
    pub(super) const fn policy(of: &AdmissionPolicy) -> Self {
        Self::Policy { name: of.name, mutates: of.mutates }
    }

    pub(super) const fn binding(of: &AdmissionPolicy) -> Self {
        Self::Binding { name: of.name, mutates: of.mutates }
    }
}

/// An object as it is. What is watched for is known once it was looked for: `Some(None)` says that there is none.
pub(super) type Looked<T> = Option<Option<T>>;

/// What the plan reads of an object's metadata.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Identity {
    pub(super) resource_version: String,
    pub(super) uid: String,
    pub(super) owners: Vec<OwnerReference>,
    /// It has the label of an installation.
    pub(super) is_labelled: bool,
    /// The version of the operator that has written it last.
    pub(super) writer: Option<String>,
    /// Another client than the operator has written it last: the name of its field manager.
    pub(super) last_written_by: Option<String>,
}

impl Identity {
    fn of(metadata: &ObjectMeta) -> Self {
        let label = metadata.labels.as_ref().and_then(|labels| labels.get(PART_OF));
        Self {
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            owners: metadata.owner_references.clone().unwrap_or_default(),
            is_labelled: label.is_some_and(|label| label == names::APP),
            writer: version::writer(metadata),
            last_written_by: last_other_writer(metadata),
        }
    }
}

/// A webhook configuration as far as the plan reads it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Configuration {
    pub(super) identity: Identity,
    /// Names and entries in the object's order.
    pub(super) webhooks: Vec<(String, Value)>,
}

/// A policy or its binding as far as the plan reads it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fixed {
    pub(super) identity: Identity,
    pub(super) spec: Value,
}

/// Everything that the plan depends on; `None` means not known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct World {
    pub(super) mutating: Looked<Configuration>,
    pub(super) validating: Looked<Configuration>,
    /// Policies and bindings that were looked for.
    pub(super) fixed: BTreeMap<Kind, Option<Fixed>>,
    /// PEM.
    pub(super) bundle: Option<Vec<u8>>,
    /// The segment before the webhook's paths. A Secret of a version that had none gets one at once.
    pub(super) path: Option<String>,
    /// The inner `None`: no `AAQ` says anything, the default holds.
    pub(super) selector: Option<Option<LabelSelector>>,
    /// Who creates the targets of migrations that need no gate. The inner `None`: all targets are gated.
    pub(super) lets_in_targets_of: Option<Option<String>>,
    /// To what all of it belongs.
    pub(super) owner: Owner,
    /// Our namespace exists and is not being deleted. Who removes an installation must not get parts of it back.
    pub(super) installed: bool,
    /// How far is kept what an `AAQ` installs.
    pub(super) upkeep: Upkeep,
}

impl World {
    /// The objects that are there.
    pub(super) fn identities(&self) -> impl Iterator<Item = (Kind, &Identity)> {
        let configurations = [(Kind::Mutating, &self.mutating), (Kind::Validating, &self.validating)];
        let configurations = configurations
            .into_iter()
            .filter_map(|(kind, is)| Some((kind, &is.as_ref()?.as_ref()?.identity)));
        let fixed = self.fixed.iter().filter_map(|(kind, is)| Some((*kind, &is.as_ref()?.identity)));
        fixed.chain(configurations)
    }

    /// Who has changed this object last, if that was not the operator.
    pub(super) fn last_other_writer(&self, kind: Kind) -> Option<&str> {
        self.identities().find(|(other, _)| *other == kind)?.1.last_written_by.as_deref()
    }
}

/// The watches that fill a [`World`].
pub(super) struct Sources {
    client: Client,
    namespace: String,
    ca: watch::Receiver<Seen<Secret>>,
    seen: watch::Sender<World>,
}

impl Sources {
    pub(super) fn new(
        client: Client,
        namespace: &str,
        ca: watch::Receiver<Seen<Secret>>,
        seen: watch::Sender<World>,
    ) -> Self {
        Self { client, namespace: namespace.to_owned(), ca, seen }
    }

    /// Follows all of it, with these policies, until `cancel`.
    pub(super) async fn follow(self, policies: &[AdmissionPolicy], cancel: CancellationToken) {
        let client = || self.client.clone();
        let authority = self.pass_on(self.ca.clone(), |world, secret| {
            // An authority that is missing is about to be made; until then the old ones stay trusted.
            world.bundle = secret.and_then(bundle);
            world.path = secret.map(ca_pair).map(|pair| pair.path).filter(|path| is_path(path));
        });
        tokio::join!(
            self.follow_into(Api::all(client()), names::MUTATING_CONFIG, &cancel, |world, object| {
                world.mutating = Some(object.map(mutating));
            }),
            self.follow_into(Api::all(client()), names::VALIDATING_CONFIG, &cancel, |world, object| {
                world.validating = Some(object.map(validating));
            }),
            join_all(policies.iter().map(|policy| self.follow_policy(policy, &cancel))),
            cancel.run_until_cancelled(authority),
            self.follow_into(
                Api::all(client()),
                &self.namespace,
                &cancel,
                |world, object: Option<&Namespace>| {
                    world.installed =
                        object.is_some_and(|object| object.metadata.deletion_timestamp.is_none());
                }
            ),
            self.follow_counting(&cancel),
            owner::follow(client(), &cancel, |owner| self.change(|world| world.owner = owner)),
        );
    }

    async fn follow_policy(&self, of: &AdmissionPolicy, cancel: &CancellationToken) {
        let (policy, binding) = (Kind::policy(of), Kind::binding(of));
        if of.mutates {
            tokio::join!(
                self.follow_fixed(policy, cancel, |object: &MutatingAdmissionPolicy| json(&object.spec)),
                self.follow_fixed(binding, cancel, |object: &MutatingAdmissionPolicyBinding| {
                    json(&object.spec)
                }),
            );
        } else {
            tokio::join!(
                self.follow_fixed(policy, cancel, |object: &ValidatingAdmissionPolicy| json(&object.spec)),
                self.follow_fixed(binding, cancel, |object: &ValidatingAdmissionPolicyBinding| {
                    json(&object.spec)
                }),
            );
        }
    }

    async fn follow_fixed<K>(&self, kind: Kind, cancel: &CancellationToken, spec: impl Fn(&K) -> Value)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        self.follow_into(Api::all(self.client.clone()), kind.name(), cancel, |world, object: Option<&K>| {
            let found =
                object.map(|object| Fixed { identity: Identity::of(object.meta()), spec: spec(object) });
            world.fixed.insert(kind, found);
        })
        .await;
    }

    async fn follow_into<K>(
        &self,
        api: Api<K>,
        name: &str,
        cancel: &CancellationToken,
        store: impl Fn(&mut World, Option<&K>),
    ) where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let (found, changes) = watch::channel(Seen::Unknown);
        tokio::join!(follow_one(api, name, found, cancel.clone()), self.pass_on(changes, store));
    }

    /// Until the watch ends.
    async fn pass_on<K>(
        &self,
        mut changes: watch::Receiver<Seen<K>>,
        store: impl Fn(&mut World, Option<&K>),
    ) {
        while changes.changed().await.is_ok() {
            let seen = changes.borrow_and_update();
            let object = match &*seen {
                Seen::Present(object) => Some(object),
                Seen::Absent => None,
                Seen::Unknown => continue,
            };
            self.change(|world| store(world, object));
        }
    }

    /// The `AAQ`, and which KubeVirt runs.
    async fn follow_counting(&self, cancel: &CancellationToken) {
        let counting = Mutex::new(Counting::default());
        let on_aaq = |event: Event<AaqWire>| {
            let mut counting = counting.lock();
            counting.aaqs.apply(&event);
            if is_complete(&event) {
                counting.calculator =
                    Some(counting.aaqs.holding().map(|aaq| aaq.calculator).unwrap_or_default());
                let selector = counting.aaqs.holding().and_then(|aaq| aaq.selector.clone());
                self.change(|world| {
                    world.selector = Some(selector);
                    world.lets_in_targets_of = counting.lets_in_targets_of();
                });
            }
        };
        let on_kubevirt = |event: Event<KubeVirtWire>| {
            let mut counting = counting.lock();
            counting.kubevirts.apply(&event);
            if is_complete(&event) {
                let oldest = counting.kubevirts.oldest();
                counting.controller =
                    Some(oldest.map(|it| names::kubevirt_controller_username(&it.namespace)));
                self.change(|world| world.lets_in_targets_of = counting.lets_in_targets_of());
            }
        };
        let aaqs: Api<AaqWire> = Api::all(self.client.clone());
        let kubevirts: Api<KubeVirtWire> = Api::all(self.client.clone());
        let if_installed = WatchOptions { absent_is_empty: true, ..WatchOptions::default() };
        let health = WatchHealth::new;
        // If resource versions went back the watches of the Secrets end the process.
        let _ = tokio::join!(
            watch_kind(aaqs, WatchOptions::default(), on_aaq, health("AAQ"), cancel.clone()),
            watch_kind(kubevirts, if_installed, on_kubevirt, health("kubevirts"), cancel.clone()),
        );
    }

    fn change(&self, change: impl FnOnce(&mut World)) {
        self.seen.send_if_modified(|world| {
            let before = world.clone();
            change(world);
            *world != before
        });
    }
}

/// How VMs are counted, and who creates their pods: `None` as long as that is not known.
#[derive(Default)]
struct Counting {
    aaqs: Aaqs,
    calculator: Option<Calculator>,
    kubevirts: KubeVirts,
    controller: Option<Option<String>>,
}

impl Counting {
    fn lets_in_targets_of(&self) -> Option<Option<String>> {
        let calculator = self.calculator?;
        // Where the pods count, a target may take more than its machine is charged, whatever KubeVirt runs.
        if !calculator.counts_machines() || calculator.is_of_pods() {
            return Some(None);
        }
        self.controller.clone()
    }
}

/// Whether all objects of the kind are known after the event.
fn is_complete<K>(event: &Event<K>) -> bool {
    !matches!(event, Event::Init | Event::InitApply(_))
}

fn bundle(secret: &Secret) -> Option<Vec<u8>> {
    let bundle = secret.data.as_ref()?.get(names::CA_BUNDLE)?;
    (!bundle.0.is_empty()).then(|| bundle.0.clone())
}

/// Plain data with string keys always has a JSON form.
fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

fn mutating(object: &MutatingWebhookConfiguration) -> Configuration {
    let webhooks = object.webhooks.iter().flatten();
    let webhooks = webhooks.map(|webhook| (webhook.name.clone(), json(webhook)));
    Configuration { identity: Identity::of(&object.metadata), webhooks: webhooks.collect() }
}

fn validating(object: &ValidatingWebhookConfiguration) -> Configuration {
    let webhooks = object.webhooks.iter().flatten();
    let webhooks = webhooks.map(|webhook| (webhook.name.clone(), json(webhook)));
    Configuration { identity: Identity::of(&object.metadata), webhooks: webhooks.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_need_no_gate_where_guests_are_charged_and_their_creator_is_known() {
        let counting = |calculator: Option<Calculator>, controller: Option<Option<&str>>| {
            let controller = controller.map(|it| it.map(str::to_owned));
            let counting = Counting { calculator, controller, ..Counting::default() };
            counting.lets_in_targets_of()
        };
        let charged = Some(Calculator::default());
        assert_eq!(counting(charged, Some(Some("kubevirt"))), Some(Some("kubevirt".to_owned())));
        assert_eq!(counting(charged, Some(None)), Some(None), "no KubeVirt runs");
        for controller in [Some(Some("kubevirt")), Some(None), None] {
            let of_pods = [Calculator::VmiPodUsage, Calculator::GuestEffectiveResources];
            for calculator in of_pods.into_iter().chain([Calculator::IgnoreVmiCalculator]) {
                assert_eq!(counting(Some(calculator), controller), Some(None), "{calculator:?}");
            }
            assert_eq!(counting(None, controller), None);
        }
        assert_eq!(counting(charged, None), None);
    }
}
