//! The objects of Git LFS in a mirror. `MirrorObjects` is the list of a generation, and `SessionObjects` are those that a helper has put into the files of a session. The helper
//! may have written anything, so the service keeps an object only after it has found the length and the SHA-256 that the object has for its name.

use super::file::SessionFile;
use domain::{
    egress::lfs::{pointer::LfsPointer, report::LfsReport},
    text,
};
use sha2::{Digest as _, Sha256};
use std::{
    collections::{BTreeSet, HashSet},
    io,
    path::{Path, PathBuf},
};

/// Objects of Git LFS in a mirror: twice those of a clone. The mirror drops the least recently needed ones, and a later session transfers them.
const MIRROR_OBJECTS_MAX: usize = 10_000;
/// Bytes of the objects of Git LFS in a mirror: twice those of a clone. The mirror drops the least recently needed ones, and a later session
/// transfers them.
const MIRROR_OBJECTS_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

/// The objects of a generation. Those that a session needed most recently come first, as far as the service has noted it: it does so with each new object.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct MirrorObjects(Vec<LfsPointer>);

/// The objects that a helper has put into the files of a session.
#[derive(Debug)]
pub(super) struct SessionObjects {
    /// Their directory. No process has them open.
    store: PathBuf,
    pub(super) pointers: BTreeSet<LfsPointer>,
    /// Those that the session had to transfer although the generation that its helper could read has them: their files there are damaged.
    pub(super) damaged: HashSet<LfsPointer>,
}

impl MirrorObjects {
    /// Chooses the first of these objects that have room in a mirror whose other files leave so many bytes. They take half of that at most.
    pub(super) fn choose(candidates: impl IntoIterator<Item = LfsPointer>, bytes: u64) -> Self {
        let (mut chosen, mut names) = (vec![], HashSet::new());
        let mut room = (bytes / 2).min(MIRROR_OBJECTS_BYTES_MAX);
        for pointer in candidates {
            if chosen.len() == MIRROR_OBJECTS_MAX {
                break;
            }
            if pointer.size() <= room && names.insert(pointer.oid().to_owned()) {
                room -= pointer.size();
                chosen.push(pointer);
            }
        }
        Self(chosen)
    }

    /// Reads the list of a generation. `None` if the text is not such a list.
    pub(super) fn parse(text: &str) -> Option<Self> {
        text.lines().map(LfsPointer::parse_line).collect::<Option<_>>().map(Self)
    }

    /// The list of a generation.
    pub(super) fn to_text(&self) -> String {
        self.0.iter().map(|pointer| format!("{}\n", pointer.to_line())).collect()
    }

    pub(super) fn pointers(&self) -> &[LfsPointer] {
        &self.0
    }

    /// What their files take; bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().fold(0, |sum, pointer| sum.saturating_add(pointer.size()))
    }

    /// Whether the other generation has the same objects, in any order.
    pub(super) fn has_same(&self, other: &Self) -> bool {
        let [own, others] = [self, other].map(|objects| objects.0.iter().collect::<BTreeSet<_>>());
        own == others
    }
}

impl SessionObjects {
    /// The objects of a report, in the directory `store`. The helper could read those of the generation with the list `readable`.
    pub(super) fn new(report: LfsReport, store: PathBuf, readable: &MirrorObjects) -> Self {
        let LfsReport { mirrored, transferred } = report;
        let readable: HashSet<_> = readable.0.iter().collect();
        let damaged = transferred.iter().filter(|pointer| readable.contains(pointer)).cloned().collect();
        Self { store, pointers: mirrored.into_iter().chain(transferred).collect(), damaged }
    }

    /// Copies one of them to `place`, and checks it. Blocks.
    pub(super) fn copy(&self, pointer: &LfsPointer, place: &Path) -> io::Result<()> {
        let mut hash = Sha256::new();
        let file = SessionFile { tree: &self.store, name: pointer.oid(), bytes: pointer.size() };
        file.copy(place, Some(&mut hash))?;
        if text::hex(&hash.finalize()) != pointer.oid() {
            let text = "an object of Git LFS has other bytes than its name says";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn pointer(number: usize, size: u64) -> LfsPointer {
        LfsPointer::new(&format!("{number:064x}"), size).unwrap()
    }

    #[test]
    fn the_first_objects_stay_and_no_more_than_there_is_room_for() {
        let sizes = |bytes, candidates: &[LfsPointer]| -> Vec<u64> {
            let chosen = MirrorObjects::choose(candidates.iter().cloned(), bytes);
            chosen.pointers().iter().map(LfsPointer::size).collect()
        };
        let candidates = [pointer(1, 30), pointer(2, 50), pointer(1, 30), pointer(1, 7), pointer(3, 20)];
        assert_eq!(sizes(1_000, &candidates), [30, 50, 20]);
        assert_eq!(sizes(100, &candidates), [30, 20], "half of the room is for objects");
        assert_eq!(sizes(0, &[pointer(1, 1), pointer(2, 0)]), [0]);
        assert_eq!(sizes(u64::MAX, &[pointer(1, MIRROR_OBJECTS_BYTES_MAX), pointer(2, 1)]).len(), 1);
        let many: Vec<_> = (0..=MIRROR_OBJECTS_MAX).map(|number| pointer(number, 1)).collect();
        assert_eq!(sizes(u64::MAX, &many).len(), MIRROR_OBJECTS_MAX);
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let objects = MirrorObjects(vec![pointer(2, 7), pointer(1, 0)]);
        assert_eq!(MirrorObjects::parse(&objects.to_text()), Some(objects.clone()));
        assert_eq!((objects.bytes(), MirrorObjects::parse("")), (7, Some(MirrorObjects::default())));
        assert_eq!(MirrorObjects::parse("../x 7\n"), None);
        assert!(objects.has_same(&MirrorObjects(vec![pointer(1, 0), pointer(2, 7)])));
        assert!(!objects.has_same(&MirrorObjects(vec![pointer(1, 0)])));
    }
}
