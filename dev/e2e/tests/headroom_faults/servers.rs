//! API servers that are slow, refuse, restart, lag, or live in another time.

mod answers;
mod clocks;
mod proofs;
mod restart;
