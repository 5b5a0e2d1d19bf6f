//! The HTTP contract of application-aware-quota's server (`pkg/aaq-server/aaq-handler.go`): paths, bodies in, answers out.
//! Nothing about quotas is decided here.

pub(crate) mod body;
mod handler;
pub(crate) mod metrics;
mod request_error;
pub(crate) mod secret_path;

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::Router;
use axum::extract::Request;
use axum::routing::post;
use sluice_api::Endpoint;

use crate::aaq_presence::AaqSightings;
use crate::endpoints::Decision;
use crate::evaluator_sightings::SeenEvaluators;
use crate::settings::{AaqPresence, Settings};
use body::{BodyLimits, BodyReader};
use handler::Handler;
use metrics::WebhookMetrics;

/// What the endpoints of a process share.
#[derive(Debug)]
pub struct App {
    settings: ArcSwap<Settings>,
    metrics: WebhookMetrics,
    bodies: BodyReader,
}

impl App {
    /// An application that starts with `settings`.
    pub fn new(settings: Settings, limits: BodyLimits, metrics: WebhookMetrics) -> Arc<Self> {
        Arc::new(Self { settings: ArcSwap::from_pointee(settings), metrics, bodies: BodyReader::new(limits) })
    }

    /// Tells all later verdicts whether an `AAQ` exists, and what it allows.
    pub fn set_aaq(&self, aaq: AaqPresence) {
        self.settings.rcu(|settings| Settings { aaq, ..Settings::clone(settings) });
    }

    /// Tells all later verdicts which namespaces these target, and which sidecars they name.
    pub fn set_by(&self, aaqs: &AaqSightings) {
        self.settings.rcu(|settings| Settings {
            targeting: aaqs.targeting(&settings.exempt),
            sidecars: aaqs.sidecars(),
            ..Settings::clone(settings)
        });
    }

    /// Tells all later verdicts which `Evaluator`s there are.
    pub fn set_evaluators(&self, evaluators: &Arc<SeenEvaluators>) {
        self.settings
            .rcu(|settings| Settings { evaluators: Arc::clone(evaluators), ..Settings::clone(settings) });
    }

    /// Tells all later verdicts whether the cluster has OpenShift's ClusterResourceQuota.
    pub fn set_cluster_resource_quotas(&self, is_served: Option<bool>) {
        self.settings
            .rcu(|settings| Settings { cluster_resource_quotas: is_served, ..Settings::clone(settings) });
    }

    /// Tells all later verdicts the username of KubeVirt's controller; `None` if it is not known.
    pub fn set_kubevirt_controller(&self, username: Option<String>) {
        self.settings
            .rcu(|settings| Settings { kubevirt_controller: username.clone(), ..Settings::clone(settings) });
    }
}

/// Serves these endpoints, each at its path.
pub fn router(app: &Arc<App>, endpoints: impl IntoIterator<Item = (Endpoint, Decision)>) -> Router {
    let mut paths = BTreeMap::<_, Vec<_>>::new();
    for (endpoint, decision) in endpoints {
        paths.entry(endpoint.path()).or_default().push((endpoint, decision));
    }
    paths.into_iter().fold(Router::new(), |router, (path, endpoints)| {
        let handler = Arc::new(Handler::new(Arc::clone(app), endpoints));
        router.route(path, post(move |request: Request| async move { handler.handle(request).await }))
    })
}
