//! Keys of a cluster quota that no gate governs are limited by a ClusterResourceQuota of OpenShift,
//! where there is that kind.
//!
//! OpenShift is not here: its kind is a [stand-in](stand_in), and what it would count is written by the tests.

mod kept;
mod presence;
mod rights;
mod shown;
mod stand_in;
