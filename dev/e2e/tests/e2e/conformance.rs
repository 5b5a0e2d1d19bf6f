//! What application-aware-quota's own suite asks for, with its quotas and pods: `docs/conformance.md` says which test is
//! which of its specs. Those that are tested elsewhere are not here again.

mod cluster_quotas;
mod objects;
mod pods;
mod priority;
mod quotas;
mod scopes;
mod spec;
