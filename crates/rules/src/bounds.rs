//! What a rule may be, and what one evaluation of it may take, at most.

/// Most keys that a rule charges.
pub const MAX_KEYS: usize = 16;
/// Longest expression, in bytes.
pub const MAX_LEN: usize = 2048;
/// Most levels: open brackets, unary operators and conditionals around one place.
pub const MAX_LEVELS: u32 = 32;
/// Most operators, selections and calls in a row, with those around the brackets that they stand in.
pub const MAX_CHAIN: u32 = 128;
/// Longest text that is matched, in bytes: image names, labels and arguments are shorter.
pub(crate) const MAX_TEXT: usize = 4096;

/// Most steps of one evaluation of a rule: its match and all its charges.
///
/// A step is a node of an expression that is evaluated, an element that is looked at, or 64 bytes of text that are compared.
pub const MAX_STEPS: u32 = 10_000;
/// Most bytes of text that one evaluation may make.
pub const MAX_MADE_BYTES: u32 = 64 * 1024;
