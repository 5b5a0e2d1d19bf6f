//! Head-room when things go wrong: the admission policies alone, crashes and faults at each write, many at once, edits by
//! administrators, API servers that lag, stand still or end.
//!
//! Tests have namespaces of their own in one cluster ([`world::shared`]); those that break an API server or the policies
//! take turns in another one ([`world::pair`]).

mod admin;
mod clocks;
mod concurrency;
mod crash;
mod gate;
mod guards;
mod in_force;
mod invariants;
mod left_raised;
mod pool;
mod replicas;
mod scene;
mod servers;
mod steps;
mod targets;
mod uncounted;
mod world;
