//! The gate: from a created pod to a released one (`docs/protocols.md`, *The gate*).
//!
//! ```text
//!  watches ──▶ apply_…, delete_… ─┐
//!                                 ├─▶ State ──▶ plan ──▶ actions ──▶ apply ──▶ outcomes ──▶ on_outcome ─┐
//!                                 └─────────────────────────────────────────────────────────────────────┘
//! ```
//! Everything up to the actions is synchronous and free of I/O; requests run beside it. A pod is charged to its
//! quotas' status first, and its gate is removed when every one of them has recorded the charge.

mod accounts;
mod action;
mod admission;
mod admit;
mod apply;
mod audit;
mod backoff;
mod change_evaluators;
mod cluster;
pub mod cluster_quota_status;
mod conditions;
mod config;
mod contest;
mod evaluate;
mod evaluators;
mod explain;
mod feed;
mod handle;
mod messages;
mod metrics;
mod orders;
mod other_pods;
mod platform;
mod recorder;
mod recording;
mod releaser;
mod reporter;
mod run;
mod shadow;
mod shadow_asks;
mod stage;
mod state;
mod stats;
mod tables;
mod targeting;
mod tell;
#[cfg(test)]
mod tests;
mod texts;
mod turns;
mod view;

pub use action::{
    Action, Answer, GateEvent, Outcome, QuotaRef, Record, RecordedIn, RecordedObject, Regarding, Release,
};
pub use admission::{Asked, Change, Judgement, MachineChange, Ticket};
pub use apply::{AT_A_TIME, Apply};
pub use config::{GateConfig, Moment};
pub use evaluators::{
    Again, AskEvaluators, Content, Evaluate, EvaluatorQuestion, EvaluatorsConfig, Failed, MOST_EVALUATORS,
    NotRead, OnFailure, Price, Priced, ReadRound, RoundOf, Said, Selection,
};
pub use explain::{
    Ahead, Explanation, HeldTold, Lack, Line, Obstacle, PodExplanation, QuotaExplanation, QuotaName, Short,
    Subject, Taker, Told, Topic, Verdict, Wait, duration, percent, plain, table,
};
pub use handle::{Gate, GateWatches};
pub use metrics::{GateMetrics, QuotaCollector};
pub use other_pods::OtherPodsForm;
pub use platform::{Platform, PlatformPods};
pub use shadow::{
    AskShadows, MOST_SHADOWS, Opinion, RuleFigures, SaidLater, SeenPod, ShadowAmount, ShadowConfig,
    ShadowFigures,
};

pub use cluster::machines::KubeVirt;
pub use state::{AuditCursor, AuditFinding, ClusterView, State};
pub use stats::Stats;
