//! Cluster quotas in the simulation: several namespaces, one quota over some of them, and a quota that one of them has of
//! its own. Objects are kept as they are written, since there are many kinds.

mod answers;
mod end;
mod protocol;
mod replica;
mod server;
mod step;
mod stories;
mod two_records;
mod world;
