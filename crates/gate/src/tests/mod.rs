//! The gate against a server in memory whose only job is to be late, to fail and to be read stale.

mod alternating;
mod answers;
mod asking;
mod audit;
mod bounded;
mod changed_evaluators;
mod cluster_stories;
mod contest;
mod end;
mod evaluation_orders;
mod evaluations;
mod evaluations_taken_over;
mod evaluations_vms;
pub mod evaluator;
mod evaluator_sets;
mod explain;
mod leaders;
mod line;
mod lost_records;
mod machine_growth;
mod machine_growth_pods;
mod machine_leaders;
mod machine_orders;
mod machines;
mod machines_held;
mod machines_phases;
mod machines_recounted;
mod next_evaluators;
mod next_policy;
mod owners;
mod owners_stories;
mod pauses;
mod places;
mod platform;
mod platform_orders;
mod policies;
mod protocol;
mod refused;
mod relists;
mod replica;
mod resizes;
mod rounds;
mod rounds_resting;
mod rules;
pub mod safeguards;
mod scrape;
mod server;
mod shadow;
mod shadow_later;
mod shadow_stories;
mod step;
mod stories;
mod team;
mod tell;
mod told;
mod trace;
mod two_records;
mod unevaluated;
mod vms;
mod world;
mod writes;

use std::sync::Arc;

use sluice_engine::NamespacePattern;

/// Never targeted.
fn own_namespace() -> Arc<[NamespacePattern]> {
    [NamespacePattern::named("sluice-system")].into()
}
