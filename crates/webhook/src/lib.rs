//! The admission endpoints.
//!
//! `http/` turns requests into reviews and verdicts into answers, `review/` is what both are made of, `endpoints/` has one
//! file for each decision and binds it to its row of [`sluice_api::Endpoint`].

mod aaq_presence;
pub mod endpoints;
mod evaluator_sightings;
mod http;
mod review;
mod settings;

pub use crate::http::body::{BodyLimits, HeldBody};
pub use crate::http::metrics::WebhookMetrics;
pub use crate::http::secret_path::{SecretPath, behind};
pub use crate::http::{App, router};
pub use aaq_presence::AaqSightings;
pub use endpoints::{AsyncEndpoint, AsyncEndpoints, Decision, decisions};
pub use evaluator_sightings::{EvaluatorSightings, SeenEvaluators};
pub use review::{Operation, PatchOp, Review, ReviewError, UserInfo, Verdict};
pub use settings::{AaqPresence, Settings};
