//! The doors of sessions to the network: a directory each, which every sandbox of the session sees. The broker of this machine opens the socket in it;
//! until then nothing answers there.

use crate::{
    isolation::launch::Mount,
    layout::{self, Key},
};
use domain::ids::TenantId;
use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::{Path, PathBuf},
};

/// Where a sandbox sees its door, as the init knows it.
const INSIDE: &str = "/run/egress";

/// The directory of all doors, which the broker has too. `None`: this machine has no broker.
#[derive(Debug, Clone)]
pub struct Doors(Option<PathBuf>);

impl Doors {
    /// Makes the directory unless the broker did.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn new(directory: Option<&Path>) -> io::Result<Self> {
        let Some(directory) = directory else { return Ok(Self(None)) };
        if !directory.is_dir() {
            layout::make_passage(directory)?;
        }
        Ok(Self(Some(directory.canonicalize()?)))
    }

    /// Whether sandboxes have doors.
    pub fn exist(&self) -> bool {
        self.0.is_some()
    }

    /// Makes the directory of a session's door, and gives it as a mount.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn mount(&self, key: &Key) -> io::Result<Option<Mount>> {
        let (Some(all), Some(home)) = (&self.0, self.home(key)) else { return Ok(None) };
        let door = home.join("door");
        if !door.is_dir() {
            // The broker, which makes the socket, may be another user than this service.
            let owner = fs::metadata(all)?;
            for (directory, mode) in [(home.parent().unwrap_or(all), 0o711), (&home, 0o711), (&door, 0o755)] {
                if !directory.is_dir() {
                    fs::create_dir_all(directory)?;
                    fs::set_permissions(directory, Permissions::from_mode(mode))?;
                    if nix::unistd::geteuid().is_root() {
                        chown(directory, Some(owner.uid()), Some(owner.gid()))?;
                    }
                }
            }
        }
        Ok(Some(Mount::read(door, INSIDE)))
    }

    /// The directory of a session, with its door and what the broker knows about it.
    pub fn home(&self, key: &Key) -> Option<PathBuf> {
        Some(self.0.as_ref()?.join(key.tenant.to_string()).join(key.session.as_str()))
    }

    /// The directory of a tenant.
    pub fn of_tenant(&self, tenant: TenantId) -> Option<PathBuf> {
        Some(self.0.as_ref()?.join(tenant.to_string()))
    }
}
