//! The admission endpoints: pure verdicts under a thin HTTP adapter.
//!
//! Each endpoint but [`headroom`] and [`growth`] is one file with one function `fn(&Review, &Settings) -> Verdict` that neither reads nor
//! writes anything. [`router`] is the only place that knows of HTTP.

pub mod aaq_presence;
pub mod aaq_validate;
pub mod body;
pub mod growth;
pub mod headroom;
pub mod metrics;
pub mod mtq_lock;
pub mod pod;
pub mod pod_gate;
pub mod pod_guard;
pub mod pod_identity;
pub mod quota_validate;
pub mod review;
pub mod router;
pub mod secret_path;
pub mod settings;
pub mod verdict;

pub use aaq_presence::AaqSightings;
pub use body::Limits;
pub use growth::{Growth, GrowthVerdict, Judge, growth_router, relay_router};
pub use headroom::{HeadroomEndpoint, headroom_router};
pub use metrics::WebhookMetrics;
pub use review::{Operation, Review, ReviewError};
pub use router::{App, router};
pub use secret_path::{SecretPath, behind};
pub use settings::{AaqPresence, Settings};
pub use verdict::{PatchOp, Verdict};
