//! The layout of the data directory:
//!
//! ```text
//! etc/                               /etc of every sandbox
//! id                                 the id of the directory, made once: callers know it
//! lock                               held by the one service that uses the directory
//! fence/<tenant>/<session>           the highest epoch seen
//! closed/<tenant>                    an empty file: the tenant was deleted
//! ws/<tenant>/<session>/tree/        /workspace; belongs to the session's user
//! ws/<tenant>/<session>/snapshots/   earlier states of the files; only helpers see them
//! ws/<tenant>/<session>/configuration  what its repository configured at the start; no sandbox sees it
//! ws/<tenant>/<session>/merged       the snapshot of its files that was last merged into those that they are a copy of
//! ws/<tenant>/<session>/merge.json   the newest merge of a copy into its files
//! ws/<tenant>/<session>/meta.json    what it started from; a workspace exists when this file does
//! execs/<tenant>/<session>/<exec>/   spec.json, state.json, output
//! images/layers/<digest>/tree/       the content of a layer, shared by all sessions; belongs to a user that no session has
//! images/layers/<digest>/record.json its size; its time is that of the last use
//! images/env/<tenant>/<key>/tree/    the files that a setup added to an image, or that an install added to a repository; the same owner
//! images/env/<tenant>/<key>/record.json  as for a layer
//! images/builds/<tenant>/<key>/      state.json and log of the newest build of such a layer
//! images/skeletons/<image>/          the layer of ours on top of an image; made again after each start
//! images/arrivals/<id>/              a layer that is being unpacked, or removed; nothing in it outlives a restart
//! images/owner                       which of the user ids owns layers
//! libraries/                         the loader and the libraries of the init, for images that have others
//! mirrors/<tenant>/<id>/             what a repository of a server had when a project last cloned it: packs, references, objects of Git LFS, record.json
//! mirrors/drafts/<id>/               a mirror that is being written, or the turn of a session that brings objects of Git LFS; nothing in it outlives a restart
//! empty/                             the workspace that sessions without files start with, and its snapshots; made again after each start
//! copies/<tenant>-<id>/              what the tenant maps in place of files of the machine; made again after each start
//! ```
//!
//! A session that works in another one's workspace has a fence and execs, and nothing below `ws`.

use crate::error::Error;
use domain::ids::{SessionId, TenantId};
use rpc::v1::ErrorCode;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::{
    fmt,
    fs::{self, Permissions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// A session of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// The tenant that owns the session.
    pub tenant: TenantId,
    pub session: SessionId,
}

impl Key {
    /// Parses both ids. They become names of directories, so every other text is refused.
    ///
    /// # Errors
    /// `argument_invalid`.
    pub fn parse(tenant: &str, session: &str) -> Result<Self, Error> {
        let invalid =
            |error: &dyn fmt::Display| Error::refused(ErrorCode::ArgumentInvalid, error.to_string());
        Ok(Self {
            tenant: tenant.parse().map_err(|error| invalid(&format!("tenant_id: {error}")))?,
            session: session.parse().map_err(|error| invalid(&format!("session_id: {error}")))?,
        })
    }
}

#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// Makes the directories. Every user may pass through them, because sandboxes run as other users; only the service
    /// may list them.
    pub fn create(root: &Path) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        let root = root.canonicalize()?;
        for name in [
            "",
            "ws",
            "execs",
            "fence",
            "closed",
            "etc",
            "images",
            "images/layers",
            "images/env",
            "images/builds",
            "mirrors",
        ] {
            make_passage(&root.join(name))?;
        }
        for name in ["fence", "closed"] {
            fs::set_permissions(root.join(name), Permissions::from_mode(0o700))?;
        }
        Ok(Self { root })
    }

    /// The id of the data directory, which the first call makes. Blocks. Only the service that holds the directory may call it.
    pub fn identify(&self) -> io::Result<String> {
        let path = self.root.join("id");
        match fs::read_to_string(&path) {
            // A crash of the machine may leave it empty. No caller has seen it then.
            Ok(id) if !id.trim().is_empty() => return Ok(id.trim().to_owned()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(_) | Err(_) => {}
        }
        let id = format!("sbx_{}", uuid::Uuid::now_v7().simple());
        replace(&path, id.as_bytes())?;
        // Callers refuse another id, so it must outlive a crash of the machine.
        fs::File::open(&self.root)?.sync_all()?;
        Ok(id)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `/etc` of every sandbox.
    pub fn etc(&self) -> PathBuf {
        self.root.join("etc")
    }

    /// The loader and the libraries of the init.
    pub fn libraries(&self) -> PathBuf {
        self.root.join("libraries")
    }

    /// The workspace that sessions without files start with.
    pub fn empty_workspace(&self) -> PathBuf {
        self.root.join("empty")
    }

    /// The copies that tenants have of files of the machine.
    pub fn copies(&self) -> PathBuf {
        self.root.join("copies")
    }

    /// The directory of all layers.
    pub fn layers(&self) -> PathBuf {
        self.root.join("images/layers")
    }

    /// The directory of the layers that setups made: tenants, then keys.
    pub fn environments(&self) -> PathBuf {
        self.root.join("images/env")
    }

    /// The directory of what is known of the builds of these layers: tenants, then keys.
    pub fn builds(&self) -> PathBuf {
        self.root.join("images/builds")
    }

    /// The directory of the skeletons of images.
    pub fn skeletons(&self) -> PathBuf {
        self.root.join("images/skeletons")
    }

    /// The directory of layers on their way in or out.
    pub fn arrivals(&self) -> PathBuf {
        self.root.join("images/arrivals")
    }

    /// The directory of the mirrors of repositories: tenants, then generations.
    pub fn mirrors(&self) -> PathBuf {
        self.root.join("mirrors")
    }

    /// The directory of mirrors that are being written.
    pub fn mirror_drafts(&self) -> PathBuf {
        self.root.join("mirrors/drafts")
    }

    /// The file with the user that owns layers.
    pub fn layers_owner(&self) -> PathBuf {
        self.root.join("images/owner")
    }

    /// The file of the highest epoch.
    pub fn fence(&self, key: &Key) -> PathBuf {
        self.fences().join(key.tenant.to_string()).join(key.session.as_str())
    }

    /// The directory of all fences: tenants, then sessions.
    pub fn fences(&self) -> PathBuf {
        self.root.join("fence")
    }

    /// The directory of a workspace.
    pub fn workspace(&self, key: &Key) -> PathBuf {
        self.root.join("ws").join(key.tenant.to_string()).join(key.session.as_str())
    }

    /// The directory of all workspaces: tenants, then sessions.
    pub fn workspaces(&self) -> PathBuf {
        self.root.join("ws")
    }

    /// The directory of all execs: tenants, then sessions.
    pub fn all_execs(&self) -> PathBuf {
        self.root.join("execs")
    }

    /// The directory of the files that mark deleted tenants.
    pub fn closed(&self) -> PathBuf {
        self.root.join("closed")
    }

    /// The directory of a session's execs; seen from inside at `/run/sbx/out`.
    pub fn execs(&self, key: &Key) -> PathBuf {
        self.root.join("execs").join(key.tenant.to_string()).join(key.session.as_str())
    }
}

/// Makes a directory and its parents; other users may pass through it but not list it.
pub fn make_passage(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o711))
}

/// Removes a directory with its content, if it exists.
pub fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Opens a plain file at `path` below `directory`, which a hostile program may have filled. It follows no link, and never blocks: neither on a pipe nor
/// on a lease.
///
/// # Errors
/// Those of the file system; there is something else at this path.
pub fn open_plain_file(directory: &Path, path: &str) -> io::Result<fs::File> {
    let file = open_below(directory, path, OFlags::NONBLOCK | OFlags::NOCTTY)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file"));
    }
    Ok(file)
}

/// As [`open_plain_file`], for a directory.
///
/// # Errors
/// Those of the file system; there is something else at this path.
pub fn open_plain_directory(directory: &Path, path: &str) -> io::Result<fs::File> {
    open_below(directory, path, OFlags::DIRECTORY)
}

fn open_below(directory: &Path, path: &str, flags: OFlags) -> io::Result<fs::File> {
    let below = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, below, Mode::empty())?;
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    Ok(fs::File::from(rustix::fs::openat2(&directory, path, flags, Mode::empty(), how)?))
}

/// Replaces a file: a reader, also one after a crash, sees the old content or the new one.
///
/// # Errors
/// Those of the file system; the old content is then still there.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = write_temporary(path, content)?;
    fs::File::open(&temporary)?.sync_data()?;
    fs::rename(&temporary, path)
}

/// As [`replace`], but after a crash of the machine, not only of this process, the content may be gone. For files that
/// are not worth a wait for the disk, and that readers can do without.
pub fn replace_quickly(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = write_temporary(path, content)?;
    fs::rename(&temporary, path)
}

fn write_temporary(path: &Path, content: &[u8]) -> io::Result<PathBuf> {
    let temporary = path.with_extension("new");
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(content)?;
    Ok(temporary)
}
