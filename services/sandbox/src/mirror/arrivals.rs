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
pub(crate) const OBJECTS_INSIDE: &str = "/run/sbx/lfs-arrivals";
/// Where a helper sees whether further objects may come.
pub(crate) const LOCK_INSIDE: &str = "/run/sbx/lfs-lock";

/// The sessions that bring objects: at most one for each mirror.
#[derive(Debug, Default)]
pub(super) struct Arrivals(Mutex<HashMap<MirrorKey, Arrival>>);

/// The objects of one session.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// Where its helper writes them.
    objects: PathBuf,
    /// The directory of [`RUNNING`], which no helper can write.
    lock: PathBuf,
}

/// Which session brings the objects of a mirror.
#[derive(Debug)]
pub enum ObjectsBringer {
    /// This one, until it drops the lock.
    This(ObjectsLock),
    /// Another one, which has begun before.
    Other(Arrival),
}

/// The lock of the session that brings objects. It is free again when this is dropped.
#[derive(Debug)]
pub struct ObjectsLock {
    arrivals: Arc<Arrivals>,
    key: MirrorKey,
    directory: PathBuf,
}

impl Arrivals {
    /// Begins to bring objects into `objects`, with the new directory `directory`, unless another session does so. Blocks.
    pub(super) fn begin(
        self: &Arc<Self>,
        key: &MirrorKey,
        objects: &Path,
        directory: PathBuf,
    ) -> io::Result<ObjectsBringer> {
        let mut arrivals = lock(&self.0);
        if let Some(arrival) = arrivals.get(key) {
            return Ok(ObjectsBringer::Other(arrival.clone()));
        }
        let objects_lock =
            ObjectsLock { arrivals: Arc::clone(self), key: key.clone(), directory: directory.clone() };
        // A failure drops `objects_lock`, which locks the map.
        let made = make(&directory);
        if made.is_ok() {
            arrivals.insert(key.clone(), Arrival { objects: objects.to_owned(), lock: directory });
        }
        drop(arrivals);
        made.map(|()| ObjectsBringer::This(objects_lock))
    }
}

fn make(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o755).create(directory)?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
    fs::write(directory.join(RUNNING), "")
}

impl Arrival {
    /// What a helper sees of it. The other session removes both directories when it ends, which may be before the helper starts. The helper then brings the objects
    /// by itself.
    pub fn mounts(&self) -> [Mount; 2] {
        [
            Mount::read_if_present(&self.objects, OBJECTS_INSIDE),
            Mount::read_if_present(&self.lock, LOCK_INSIDE),
        ]
    }
}

impl ObjectsBringer {
    pub fn arrival(&self) -> Option<&Arrival> {
        match self {
            Self::This(_) => None,
            Self::Other(arrival) => Some(arrival),
        }
    }
}

impl Drop for ObjectsLock {
    fn drop(&mut self) {
        {
            let mut arrivals = lock(&self.arrivals.0);
            if arrivals.get(&self.key).is_some_and(|arrival| arrival.lock == self.directory) {
                arrivals.remove(&self.key);
            }
        }
        if let Err(error) = remove_directory(&self.directory) {
            tracing::warn!(%error, "the lock of a session that brought objects of Git LFS takes space until the next start");
        }
    }
}
