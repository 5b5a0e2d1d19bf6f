//! AAQ CREATE: there is one at most (aaq.md §2.2 item 5).
//!
//! Upstream refuses every one and registers its webhook only while an AAQ exists, which is why there a
//! deleted AAQ cannot be created again at once. Sluice's webhook is always registered and knows whether
//! there is one.

use crate::review::{Operation, Review};
use crate::settings::{AaqPresence, Settings};
use crate::verdict::Verdict;

/// Decides on the creation of an `AAQ`.
pub fn aaq_single(review: &Review<'_>, settings: &Settings) -> Verdict {
    if review.operation != Operation::Create {
        return Verdict::allow("AAQ request does not create an instance");
    }
    match settings.aaq {
        AaqPresence::Absent => Verdict::allow("AAQ is the first instance"),
        AaqPresence::Present => Verdict::deny("only a single AAQ CR instance is allowed"),
        AaqPresence::Unknown => Verdict::refuse(
            503,
            "it is not known yet whether an AAQ CR instance exists: try again, and if this stays, look at the \
             webhook's log and at its permission to list aaqs",
        ),
    }
}
