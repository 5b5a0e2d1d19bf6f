//! Programs of other people's clusters that write Sluice's objects again and again.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "helpers of tests, which fail by panicking"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::select_all;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams, TypeMeta};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// Who asks cainjector for the bundle of a webhook configuration, by any value.
pub const INJECT: &str = "cert-manager.io/inject-ca-from";
/// Field manager of [`Reapplier::cainjector`].
pub const CAINJECTOR: &str = "cert-manager-cainjector";
/// How long Argo CD waits after a change, and takes together what comes meanwhile.
const HEALS_AFTER: Duration = Duration::from_secs(1);

/// A program that runs until it is dropped.
pub struct Reapplier {
    done: Arc<Mutex<Done>>,
    tasks: Vec<JoinHandle<()>>,
}

/// What it has done.
#[derive(Debug, Default)]
struct Done {
    writes: usize,
    refused: Vec<String>,
}

impl Drop for Reapplier {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Reapplier {
    /// As Flux does: applies all objects, server-side and by force, and again each time `every` has passed.
    ///
    /// # Errors
    /// When the API server does not serve a kind.
    pub async fn flux(client: &Client, objects: &[Value], every: Duration) -> anyhow::Result<Self> {
        let targets = join_all(objects.iter().map(|object| Target::of(client, object))).await;
        let targets: Vec<Target> = targets.into_iter().collect::<anyhow::Result<_>>()?;
        let done = Arc::<Mutex<Done>>::default();
        let doing = Arc::clone(&done);
        let applying = async move {
            let mut ticks = tokio::time::interval(every);
            loop {
                ticks.tick().await;
                for target in &targets {
                    target.apply("kustomize-controller", &doing).await;
                }
            }
        };
        Ok(Self { done, tasks: vec![tokio::spawn(applying)] })
    }

    /// As Argo CD with self-heal does: applies an object whenever it changes.
    ///
    /// # Errors
    /// When the API server does not serve a kind.
    pub async fn argo(client: &Client, objects: &[Value]) -> anyhow::Result<Self> {
        let done = Arc::<Mutex<Done>>::default();
        let mut tasks = Vec::new();
        for object in objects {
            let (target, doing) = (Target::of(client, object).await?, Arc::clone(&done));
            let one = watcher::Config::default().fields(&format!("metadata.name={}", target.name));
            let healing = async move {
                let events = watcher::watcher(target.api.clone(), one);
                // Whatever has come during the wait is healed by one write.
                let seen = events.filter_map(|event| std::future::ready(event.ok()));
                let mut changes = std::pin::pin!(seen.ready_chunks(64));
                while changes.next().await.is_some() {
                    tokio::time::sleep(HEALS_AFTER).await;
                    target.apply("argocd-controller", &doing).await;
                }
            };
            tasks.push(tokio::spawn(healing));
        }
        Ok(Self { done, tasks })
    }

    /// As the admissions enforcer of AKS does: each webhook leaves the namespaces of the platform alone.
    #[must_use]
    pub fn aks(client: &Client) -> Self {
        Self::editing(client, "admissionsenforcer", |object| {
            let required = aks_requirements();
            edit_webhooks(object, |webhook| {
                let selector = &mut webhook["namespaceSelector"];
                let mut expressions = selector["matchExpressions"].as_array().cloned().unwrap_or_default();
                let missing: Vec<_> =
                    required.iter().filter(|each| !expressions.contains(each)).cloned().collect();
                if !missing.is_empty() {
                    expressions.extend(missing);
                    selector["matchExpressions"] = json!(expressions);
                }
            });
        })
    }

    /// As cert-manager's cainjector does: the webhooks of configurations that ask for it trust this authority.
    #[must_use]
    pub fn cainjector(client: &Client, ca_pem: &str) -> Self {
        let bundle = json!(ByteString(ca_pem.as_bytes().to_vec()));
        Self::editing(client, CAINJECTOR, move |object| {
            if object.annotations().contains_key(INJECT) {
                edit_webhooks(object, |webhook| webhook["clientConfig"]["caBundle"] = bundle.clone());
            }
        })
    }

    /// How many objects it has written, each time counted.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.done.lock().unwrap().writes
    }

    /// What was refused of it.
    #[must_use]
    pub fn refused(&self) -> Vec<String> {
        self.done.lock().unwrap().refused.clone()
    }

    /// Edits each webhook configuration whenever it changes, and writes it where the edit changes something.
    fn editing(
        client: &Client,
        manager: &'static str,
        edit: impl Fn(&mut DynamicObject) + Send + 'static,
    ) -> Self {
        let done = Arc::<Mutex<Done>>::default();
        let (client, doing) = (client.clone(), Arc::clone(&done));
        let following = async move {
            let mut events = select_all(configurations(&client).map(|(types, api)| {
                let events = watcher::watcher(api.clone(), watcher::Config::default());
                events.map(move |event| (types.clone(), api.clone(), event)).boxed()
            }));
            while let Some((types, api, event)) = events.next().await {
                let Ok(Event::Apply(mut object) | Event::InitApply(mut object)) = event else { continue };
                let before = object.data.clone();
                edit(&mut object);
                if object.data == before {
                    continue;
                }
                object.types = Some(types);
                let params = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
                // Another write came first: that of the object as it is then comes here as well.
                if api.replace(&object.name_any(), &params, &object).await.is_ok() {
                    doing.lock().unwrap().writes += 1;
                }
            }
        };
        Self { done, tasks: vec![tokio::spawn(following)] }
    }
}

/// What AKS adds to the namespace selector of each webhook.
#[must_use]
pub fn aks_requirements() -> [Value; 2] {
    [("control-plane", "true"), ("kubernetes.azure.com/managedby", "aks")]
        .map(|(key, value)| json!({ "key": key, "operator": "NotIn", "values": [value] }))
}

fn configurations(client: &Client) -> [(TypeMeta, Api<DynamicObject>); 2] {
    let kinds = [
        ApiResource::erase::<MutatingWebhookConfiguration>(&()),
        ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
    ];
    kinds.map(|kind| {
        let types = TypeMeta { api_version: kind.api_version.clone(), kind: kind.kind.clone() };
        (types, Api::all_with(client.clone(), &kind))
    })
}

fn edit_webhooks(object: &mut DynamicObject, edit: impl Fn(&mut Value)) {
    let webhooks = object.data.get_mut("webhooks").and_then(Value::as_array_mut);
    webhooks.into_iter().flatten().for_each(edit);
}

/// An object of a manifest, and where it is applied.
struct Target {
    api: Api<DynamicObject>,
    name: String,
    object: Value,
}

impl Target {
    async fn of(client: &Client, object: &Value) -> anyhow::Result<Self> {
        let read: DynamicObject = serde_json::from_value(object.clone())?;
        let types = read.types.clone().context("an object of a manifest has no kind")?;
        let (resource, capabilities) = pinned_kind(client, &GroupVersionKind::try_from(&types)?).await?;
        let api = match (capabilities.scope, read.namespace()) {
            (Scope::Namespaced, Some(namespace)) => {
                Api::namespaced_with(client.clone(), &namespace, &resource)
            }
            _ => Api::all_with(client.clone(), &resource),
        };
        Ok(Self { api, name: read.name_any(), object: object.clone() })
    }

    /// By force.
    async fn apply(&self, manager: &str, done: &Mutex<Done>) {
        let params = PatchParams::apply(manager).force();
        let applied = self.api.patch(&self.name, &params, &Patch::Apply(&self.object)).await;
        let mut done = done.lock().unwrap();
        match applied {
            Ok(_) => done.writes += 1,
            Err(error) => done.refused.push(format!("{}: {error}", self.name)),
        }
    }
}
