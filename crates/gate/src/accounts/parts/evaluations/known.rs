//! What is known of one pod: its content, the last answer about it, and its place in line.

use super::counts::Bits;
use super::unready::Lack;
use crate::evaluators::Price;

/// How far the content of a pod is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Read {
    /// It was not read for the evaluators of now.
    #[default]
    Not,
    /// A later version was seen without its content.
    Earlier,
    Latest,
}

/// What the last answer about a pod was about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Answer {
    /// There is none.
    #[default]
    None,
    /// Other evaluators gave it, which were in force before.
    Former,
    /// It is about other content.
    Outdated,
    /// It is about the content that was read.
    Current,
}

/// The state of a pod in line. The pod runs, is asked about outside of rounds, and no question about it has failed.
///
/// `Answered`: an evaluator of this configuration has answered about it before. `WithTurn`: a lane holds its turn; otherwise
/// its content is not known, or its turn has just come. One enum keeps this in one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Answered,
    AnsweredWithTurn,
    Unanswered,
    UnansweredWithTurn,
}

impl Place {
    pub const fn new(is_unanswered: bool, has_turn: bool) -> Self {
        match (is_unanswered, has_turn) {
            (false, false) => Self::Answered,
            (false, true) => Self::AnsweredWithTurn,
            (true, false) => Self::Unanswered,
            (true, true) => Self::UnansweredWithTurn,
        }
    }

    pub const fn is_unanswered(self) -> bool {
        matches!(self, Self::Unanswered | Self::UnansweredWithTurn)
    }

    pub const fn has_turn(self) -> bool {
        matches!(self, Self::AnsweredWithTurn | Self::UnansweredWithTurn)
    }

    pub const fn lack(self, is_overdue: bool) -> Lack {
        let is_unanswered = self.is_unanswered();
        Lack { is_pending: is_unanswered && !is_overdue, is_unanswered }
    }
}

/// There is one of each pod, so it is small.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// The hash of its content.
    pub hash: u64,
    /// By the last answer, if there is one.
    price: Price,
    /// The price includes what Kubernetes counts.
    retains: bool,
    pub answer: Answer,
    pub read: Read,
    /// Its place in line, if it has one.
    pub place: Option<Place>,
    /// The evaluators that select the pod by its labels; all before that is known.
    pub selected_by: u16,
    /// Those that gave the last answer.
    pub asked: u16,
    /// Those that are to be asked now.
    pub wanted: u16,
    /// Those that matched by the last answer.
    pub matched: u16,
    /// What the pod is counted as.
    pub counted: Bits,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            hash: 0,
            price: Price::NoMatch,
            retains: false,
            answer: Answer::None,
            read: Read::Not,
            place: None,
            selected_by: u16::MAX,
            asked: 0,
            wanted: 0,
            matched: 0,
            counted: Bits::default(),
        }
    }
}

impl Known {
    /// Other evaluators are in force: what those of before said says nothing of them. The pod stands in no line of theirs,
    /// and its content is not read for them.
    pub fn begin_anew(&mut self) {
        (self.matched, self.wanted, self.counted) = (0, 0, Bits::default());
        (self.place, self.read, self.selected_by) = (None, Read::Not, u16::MAX);
        self.answer = self.answer.min(Answer::Former);
    }

    /// The `asked` evaluators say this of the content that was read.
    pub fn say(&mut self, price: Price, retains: bool, (asked, matched): (u16, u16)) {
        (self.price, self.retains, self.answer) = (price, retains, Answer::Current);
        (self.asked, self.matched) = (asked, matched);
    }

    /// The last answer is not about what the pod is now.
    pub fn outdate(&mut self) {
        self.answer = self.answer.min(Answer::Outdated);
    }

    /// The price by the last answer, whatever that was about.
    pub fn last(&self) -> Option<&Price> {
        (self.answer != Answer::None).then_some(&self.price)
    }

    /// Whether there is an answer, and its price includes what Kubernetes counts.
    pub fn retains(&self) -> bool {
        self.answer != Answer::None && self.retains
    }

    /// Forgets the last answer. Returns whether there was one.
    pub fn unprice(&mut self) -> bool {
        (self.price, self.matched) = (Price::NoMatch, 0);
        std::mem::take(&mut self.answer) != Answer::None
    }

    /// Until there is an answer about the pod, the last one about another pod is taken for it.
    pub fn inherit(&mut self, from: &Self) {
        (self.price, self.retains, self.asked) = (from.price.clone(), from.retains, from.asked);
        self.answer = from.answer.min(Answer::Outdated);
    }
}

#[cfg(test)]
mod tests {
    use super::Known;

    /// The gate keeps one for each pod of the cluster.
    #[test]
    fn what_is_known_of_a_pod_is_small() {
        assert_eq!(size_of::<Known>(), 32);
    }
}
