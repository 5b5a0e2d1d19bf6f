//! The decision: what was seen in a directory, and what it means. Pure.

use std::sync::Arc;

use super::Absence;

/// Which socket it is: a file of the same name may be another one, and a number of an inode is used again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketId {
    /// Its file name.
    pub name: Arc<str>,
    /// Device and inode.
    pub inode: (u64, u64),
    /// When the inode was made or changed last, in nanoseconds since the epoch.
    pub changed: i128,
}

/// What came of looking at one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// It is no socket. A symbolic link is none either: it leads out of the directory.
    NotASocket,
    /// Nobody listens.
    Refused,
    /// It is another user's: connecting was forbidden, or the peer says so.
    OtherUser(u32),
    /// Connecting failed otherwise.
    Failed(String),
    /// Somebody of our own user listens.
    Live,
}

/// What a directory holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It could not be looked at.
    Nothing(Absence),
    /// The one socket to use.
    One(SocketId),
}

/// Says whom to ask, of all files of a directory. `own` is the user of this process. The order does not matter.
#[must_use]
pub fn plan(seen: &[(SocketId, Probe)], own: u32) -> Found {
    let mut live: Vec<&SocketId> =
        seen.iter().filter(|(_, probe)| *probe == Probe::Live).map(|(socket, _)| socket).collect();
    live.sort();
    match live.as_slice() {
        [one] => return Found::One((*one).clone()),
        [] => {}
        several => {
            // Enough to find them by.
            let names = several.iter().take(4).map(|socket| socket.name.clone()).collect();
            return Found::Nothing(Absence::Several(names));
        }
    }
    let mut rest: Vec<&(SocketId, Probe)> = seen.iter().collect();
    rest.sort_by(|left, right| left.0.cmp(&right.0));
    let first = |of: fn(&Probe) -> bool| rest.iter().find(|(_, probe)| of(probe));
    // What most likely was meant to be the evaluator is told.
    Found::Nothing(
        if let Some((_, Probe::OtherUser(uid))) = first(|probe| matches!(probe, Probe::OtherUser(_))) {
            Absence::OtherUser { uid: *uid, own }
        } else if let Some((_, Probe::Failed(why))) = first(|probe| matches!(probe, Probe::Failed(_))) {
            Absence::CannotConnect(why.clone())
        } else if first(|probe| *probe == Probe::Refused).is_some() {
            Absence::NobodyListens
        } else if let Some((socket, _)) = first(|probe| *probe == Probe::NotASocket) {
            Absence::NotASocket(socket.name.clone())
        } else {
            Absence::NoSocket
        },
    )
}

#[cfg(test)]
mod tests {
    use super::{Absence, Found, Probe, SocketId, plan};

    fn seen(files: &[(&str, Probe)]) -> Vec<(SocketId, Probe)> {
        let id = |name: &str| SocketId { name: name.into(), inode: (1, 2), changed: 0 };
        files.iter().map(|(name, probe)| (id(name), probe.clone())).collect()
    }

    #[test]
    fn the_table_of_directories() {
        let nothing = |files: &[(&str, Probe)]| match plan(&seen(files), 65532) {
            Found::Nothing(absence) => absence,
            Found::One(socket) => panic!("{socket:?}"),
        };
        use Probe::{Failed, Live, NotASocket, OtherUser, Refused};
        assert_eq!(nothing(&[]), Absence::NoSocket);
        assert_eq!(nothing(&[("a", Refused), ("b", Refused)]), Absence::NobodyListens);
        assert_eq!(nothing(&[("notes.txt", NotASocket)]), Absence::NotASocket("notes.txt".into()));
        assert_eq!(nothing(&[("a", NotASocket), ("b", Refused)]), Absence::NobodyListens);
        let other = Absence::OtherUser { uid: 1001, own: 65532 };
        assert_eq!(nothing(&[("a", Refused), ("b", OtherUser(1001))]), other);
        assert_eq!(nothing(&[("a", Failed("no".into()))]), Absence::CannotConnect("no".into()));
        assert_eq!(nothing(&[("b", Live), ("a", Live)]), Absence::Several(vec!["a".into(), "b".into()]));
    }

    #[test]
    fn one_that_listens_is_used_whatever_else_is_there() {
        let files = seen(&[
            ("dead.sock", Probe::Refused),
            ("live.sock", Probe::Live),
            ("foreign.sock", Probe::OtherUser(1)),
            ("file", Probe::NotASocket),
            ("odd.sock", Probe::Failed("no".into())),
        ]);
        for turn in 0..files.len() {
            let mut turned = files.clone();
            turned.rotate_left(turn);
            let Found::One(socket) = plan(&turned, 1) else { panic!("nobody is found") };
            assert_eq!(&*socket.name, "live.sock");
        }
    }
}
