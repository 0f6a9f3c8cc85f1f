//! The objects of Git LFS that a session is bringing at this moment. Sessions that open meanwhile take each of them when it is there, and do not transfer it too. They
//! wait in their helpers, which also check what they take.

use super::key::MirrorKey;
use crate::{isolation::launch::Mount, layout::remove_directory};
use chassis::lock;
use domain::egress::lfs::arrivals::RUNNING;
use std::{
    collections::HashMap,
    fs, io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

/// Where a helper sees the objects.
const OBJECTS_INSIDE: &str = "/run/sbx/lfs-arrivals";
/// Where a helper sees whether further objects may come.
const TURN_INSIDE: &str = "/run/sbx/lfs-turn";

/// The sessions that bring objects: at most one for each mirror.
#[derive(Debug, Default)]
pub(super) struct Arrivals(Mutex<HashMap<MirrorKey, Arrival>>);

/// The objects of one session.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// Where its helper writes them.
    objects: PathBuf,
    /// The directory of [`RUNNING`], which no helper can write.
    turn: PathBuf,
}

/// Which session brings the objects of a mirror.
#[derive(Debug)]
pub enum ObjectsTurn {
    /// This one.
    First(FirstTurn),
    /// Another one has begun before.
    Later(Arrival),
}

/// The turn of the session that brings objects. It ends when it is dropped.
#[derive(Debug)]
pub struct FirstTurn {
    arrivals: Arc<Arrivals>,
    key: MirrorKey,
    directory: PathBuf,
}

impl Arrivals {
    /// Begins to bring objects into `objects`, with the new directory `turn`, unless another session does so. Blocks.
    pub(super) fn begin(
        self: &Arc<Self>,
        key: &MirrorKey,
        objects: &Path,
        turn: PathBuf,
    ) -> io::Result<ObjectsTurn> {
        let mut arrivals = lock(&self.0);
        if let Some(arrival) = arrivals.get(key) {
            return Ok(ObjectsTurn::Later(arrival.clone()));
        }
        let first = FirstTurn { arrivals: Arc::clone(self), key: key.clone(), directory: turn.clone() };
        // A failure drops the turn, which needs the lock.
        let made = make(&turn);
        if made.is_ok() {
            arrivals.insert(key.clone(), Arrival { objects: objects.to_owned(), turn });
        }
        drop(arrivals);
        made.map(|()| ObjectsTurn::First(first))
    }
}

fn make(turn: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o755).create(turn)?;
    fs::set_permissions(turn, fs::Permissions::from_mode(0o755))?;
    fs::write(turn.join(RUNNING), "")
}

impl Arrival {
    /// What a helper sees of it. The other session removes both directories when it ends, which may be before the helper starts. The helper then brings the objects
    /// by itself.
    pub fn mounts(&self) -> [Mount; 2] {
        [
            Mount::read_if_present(&self.objects, OBJECTS_INSIDE),
            Mount::read_if_present(&self.turn, TURN_INSIDE),
        ]
    }
}

impl ObjectsTurn {
    /// What another session brings.
    pub fn arrival(&self) -> Option<&Arrival> {
        match self {
            Self::First(_) => None,
            Self::Later(arrival) => Some(arrival),
        }
    }
}

impl Drop for FirstTurn {
    fn drop(&mut self) {
        {
            let mut arrivals = lock(&self.arrivals.0);
            if arrivals.get(&self.key).is_some_and(|arrival| arrival.turn == self.directory) {
                arrivals.remove(&self.key);
            }
        }
        if let Err(error) = remove_directory(&self.directory) {
            tracing::warn!(%error, "the turn of a session to bring objects of Git LFS takes space until the next start");
        }
    }
}
