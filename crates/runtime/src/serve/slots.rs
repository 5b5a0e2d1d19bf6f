//! Which connections are served when there are more than slots.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::connection_state::{ConnectionState, Phase};
use super::metrics::{Refusal, ServeMetrics};

/// All connections that are served, at most `limit`.
#[derive(Debug)]
pub(super) struct Slots {
    limit: usize,
    open: Mutex<Open>,
    metrics: ServeMetrics,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    entries: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    peer: IpAddr,
    state: ConnectionState,
    close: CancellationToken,
}

/// The slot of one connection, given back on drop.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Arc<Slots>,
    id: u64,
    pub(super) state: ConnectionState,
    /// Cancelled when another connection takes the slot.
    pub(super) close: CancellationToken,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.open.lock().entries.remove(&self.id);
    }
}

impl Slots {
    pub(super) fn new(limit: usize, metrics: ServeMetrics) -> Arc<Self> {
        Arc::new(Self { limit, open: Mutex::default(), metrics })
    }

    /// A slot for a connection of `peer`. When all are taken one connection is closed for it, or it gets none.
    pub(super) fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<Slot> {
        let peer = peer.to_canonical();
        let mut open = self.open.lock();
        if open.entries.len() >= self.limit {
            let seen: Vec<Seen> = open.entries.iter().map(|(id, entry)| entry.seen(*id)).collect();
            let Some(closed) = displaced(&seen, peer).and_then(|id| open.entries.remove(&id)) else {
                self.metrics.refuse(Refusal::Connections);
                return None;
            };
            closed.close.cancel();
            self.metrics.refuse(Refusal::Displaced);
        }
        let (id, state, close) = (open.next, ConnectionState::new(), CancellationToken::new());
        open.next += 1;
        open.entries.insert(id, Entry { peer, state: state.clone(), close: close.clone() });
        Some(Slot { slots: Arc::clone(self), id, state, close })
    }

    /// More than half of the slots are held by connections that had a successful answer. Then each answer ends its
    /// connection, by a header: a client may be about to use an idle connection that is closed for another, and the API
    /// server does not send such a request again. Those without an answer do not count, so a stranger ends nobody's
    /// connection this way.
    pub(super) fn crowded(&self) -> bool {
        let open = self.open.lock();
        let half = self.limit / 2;
        open.entries.len() > half
            && open.entries.values().filter(|entry| entry.state.is_proven()).count() > half
    }
}

impl Entry {
    fn seen(&self, id: u64) -> Seen {
        let (phase, proven, since) = self.state.seen();
        Seen { id, peer: self.peer, phase, proven, since }
    }
}

/// A connection as the choice sees it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    id: u64,
    peer: IpAddr,
    phase: Phase,
    /// The connection has had a successful answer: its client knows what to ask for.
    proven: bool,
    /// When its last request was answered, or it was accepted; in any unit.
    since: u64,
}

/// The connection that is closed for a new one of `newcomer`; `None` if the new one has to go.
///
/// First those that never had a successful answer, in whatever phase; then idle ones; then those whose request is still
/// arriving. Among these the connections of the peer that holds most, oldest first. A peer takes nothing from one that
/// holds less than itself, unless it has a proven connection and the other one is not. What is being answered stays.
fn displaced(open: &[Seen], newcomer: IpAddr) -> Option<u64> {
    let mut held: HashMap<IpAddr, usize> = HashMap::new();
    for connection in open {
        *held.entry(connection.peer).or_default() += 1;
    }
    let of = |peer: IpAddr| held.get(&peer).copied().unwrap_or(0);
    let (own, known) = (of(newcomer), open.iter().any(|c| c.peer == newcomer && c.proven));
    let candidates = open.iter().filter_map(|connection| {
        let larger = of(connection.peer) > own;
        let (order, may) = match (connection.proven, connection.phase) {
            (_, Phase::Answering) => return None,
            (false, _) => (0, larger || known || connection.peer == newcomer),
            (true, Phase::Waiting) => (1, larger || connection.peer == newcomer),
            (true, Phase::Reading) => (2, larger),
        };
        may.then_some((order, Reverse(of(connection.peer)), connection.since, connection.id))
    });
    candidates.min().map(|(.., id)| id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 66));
    const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    /// Connections in the order of their age; the id is the place.
    fn open(all: &[(IpAddr, Phase, bool)]) -> Vec<Seen> {
        let numbered = all.iter().zip(0..);
        numbered.map(|(&(peer, phase, proven), id)| Seen { id, peer, phase, proven, since: id }).collect()
    }

    #[test]
    fn who_never_had_an_answer_goes_first_the_oldest_of_the_largest_peer() {
        let (idle, reading) = (Phase::Waiting, Phase::Reading);
        let open = open(&[
            (OTHER, idle, false),
            (SERVER, idle, true),
            (ATTACKER, reading, false),
            (ATTACKER, idle, false),
            (ATTACKER, idle, true),
        ]);
        for newcomer in [SERVER, ATTACKER] {
            assert_eq!(displaced(&open, newcomer), Some(2));
        }
    }

    #[test]
    fn behind_one_address_the_proven_ones_stay() {
        let mut all = vec![(SERVER, Phase::Waiting, true); 3];
        all.push((SERVER, Phase::Reading, false));
        assert_eq!(displaced(&open(&all), SERVER), Some(3));
    }

    #[test]
    fn idle_ones_go_before_those_that_send_and_none_that_is_answered() {
        let (idle, reading, answering) = (Phase::Waiting, Phase::Reading, Phase::Answering);
        let open = open(&[
            (ATTACKER, answering, true),
            (ATTACKER, reading, true),
            (ATTACKER, idle, true),
            (SERVER, idle, true),
        ]);
        assert_eq!(displaced(&open, SERVER), Some(2));
        let busy = super::tests::open(&[(ATTACKER, answering, false), (ATTACKER, reading, true)]);
        assert_eq!(displaced(&busy, SERVER), Some(1));
        assert_eq!(displaced(&busy, ATTACKER), None, "its own requests are not worth less than a new one");
        let answered = super::tests::open(&[(ATTACKER, answering, false), (SERVER, answering, true)]);
        assert_eq!(displaced(&answered, SERVER), None);
    }

    #[test]
    fn a_large_peer_takes_nothing_from_small_ones() {
        let (idle, answering) = (Phase::Waiting, Phase::Answering);
        let mut all = vec![(ATTACKER, answering, true); 9];
        all.push((SERVER, idle, true));
        assert_eq!(displaced(&open(&all), ATTACKER), None);
        // Of many peers with one connection each: those without an answer make room for a peer that had one.
        let all =
            [(SERVER, idle, true), (SERVER, answering, true), (ATTACKER, idle, false), (OTHER, idle, false)];
        assert_eq!(displaced(&open(&all), SERVER), Some(2));
    }

    #[test]
    fn a_slot_is_given_back_and_its_loss_is_told() {
        let metrics = ServeMetrics::default();
        let slots = Slots::new(1, metrics.clone());
        let first = slots.enter(ATTACKER).unwrap();
        let second = slots.enter(ATTACKER).unwrap();
        assert!(first.close.is_cancelled() && !second.close.is_cancelled());
        drop(first);
        assert_eq!(slots.open.lock().entries.len(), 1, "the slot of another is not given back");
        drop(second);
        assert_eq!((slots.open.lock().entries.len(), metrics.refused()), (0, 1));
    }
}
