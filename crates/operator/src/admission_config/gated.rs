//! What refuses pods that are not gated: it is put in force last.

use sluice_api::names;

use super::observe::Kind;

/// The policy that refuses them.
pub(super) const GATED: Kind = Kind::Policy { name: names::GATED_POLICY, mutates: false };
pub(super) const GATED_BINDING: Kind = Kind::Binding { name: names::GATED_POLICY, mutates: false };

/// What refuses pods that are not gated.
pub(super) fn is_last(kind: Kind) -> bool {
    [GATED, GATED_BINDING].contains(&kind)
}
