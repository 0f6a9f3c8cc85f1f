//! The location of the servers' files and the user they run as. Postgres refuses to run as root, so root runs the
//! servers as an unprivileged user, who must be able to reach the files.

use crate::error::Error;
use nix::unistd::{Gid, Uid, User, chown, geteuid};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// Users that root may run the servers as. Postgres needs one with an entry in the user database.
const USERS: [&str; 2] = ["postgres", "nobody"];
/// Where root puts the servers' files if that user cannot reach the data directory (below /root, for example).
const ELSEWHERE: &str = "/var/lib/flotilla";
/// Random bytes of a password.
const PASSWORD_BYTES: usize = 24;

/// The unprivileged user that root runs the servers as.
#[derive(Debug, Clone)]
pub(crate) struct Owner {
    pub name: String,
    pub uid: Uid,
    pub gid: Gid,
}

/// The state between two starts, in `local.json`, mode 0600.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// The directory of the servers' files. It is stored so that a moved data directory finds them again.
    pub servers_dir: PathBuf,
    /// The password of Postgres' superuser, of Redis and of NATS.
    pub password: String,
}

/// The directories of one stack.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    pub dir: PathBuf,
    pub owner: Option<Owner>,
    pub kept: Kept,
}

impl Home {
    /// Opens the home below `dir` and creates missing directories.
    pub(crate) fn open(dir: &Path) -> Result<Self, Error> {
        let dir = make_dir(dir, 0o755).and_then(|()| dir.canonicalize()).map_err(Error::io("make", dir))?;
        let owner = if geteuid().is_root() { Some(find_owner()?) } else { None };
        let file = dir.join("local.json");
        let kept = match fs::read(&file) {
            Ok(json) => {
                let kept = serde_json::from_slice(&json)
                    .map_err(io::Error::from)
                    .map_err(Error::io("read", &file))?;
                find_again(kept, place(&dir, owner.as_ref()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let servers_dir = place(&dir, owner.as_ref());
                // An old instance is useless without its password: the operator has removed the data directory to get a
                // new one.
                remove_dir(&servers_dir)?;
                Kept { servers_dir, password: random_hex().map_err(Error::io("read", "/dev/urandom"))? }
            }
            Err(source) => return Err(Error::Io { action: "read", path: file, source }),
        };
        let json = serde_json::to_vec(&kept).unwrap_or_default();
        write_private(&file, &json).map_err(Error::io("write", &file))?;
        let home = Self { dir, owner, kept };
        make_dir(&home.logs(), 0o755).map_err(Error::io("make", &home.logs()))?;
        home.own_dir(&home.kept.servers_dir)?;
        Ok(home)
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.dir.join("logs")
    }

    pub(crate) fn log(&self, role: &str) -> PathBuf {
        self.logs().join(format!("{role}.log"))
    }

    /// Returns the directory of one server.
    pub(crate) fn server_dir(&self, role: &str) -> PathBuf {
        self.kept.servers_dir.join(role)
    }

    /// Creates a directory that belongs to the servers' user.
    pub(crate) fn own_dir(&self, dir: &Path) -> Result<(), Error> {
        make_dir(dir, 0o700).and_then(|()| self.give(dir)).map_err(Error::io("make", dir))
    }

    /// Writes a file that only the servers' user can read.
    pub(crate) fn own_file(&self, file: &Path, content: &str) -> Result<(), Error> {
        write_private(file, content.as_bytes())
            .and_then(|()| self.give(file))
            .map_err(Error::io("write", file))
    }

    fn give(&self, path: &Path) -> io::Result<()> {
        let Some(owner) = &self.owner else { return Ok(()) };
        chown(path, Some(owner.uid), Some(owner.gid)).map_err(io::Error::from)
    }
}

fn find_owner() -> Result<Owner, Error> {
    for name in USERS {
        if let Ok(Some(user)) = User::from_name(name) {
            return Ok(Owner { name: name.to_owned(), uid: user.uid, gid: user.gid });
        }
    }
    Err(Error::NoUser)
}

/// Whether `owner` can pass through every directory down to `dir`. The data directory itself belongs to us and is made
/// passable.
fn reachable(dir: &Path, owner: &Owner) -> bool {
    let passable = |dir: &Path| {
        fs::metadata(dir).is_ok_and(|meta| {
            let mode = meta.permissions().mode();
            mode & 0o001 != 0
                || (meta.uid() == owner.uid.as_raw() && mode & 0o100 != 0)
                || (meta.gid() == owner.gid.as_raw() && mode & 0o010 != 0)
        })
    };
    if !dir.ancestors().skip(1).all(passable) {
        return false;
    }
    passable(dir)
        || fs::metadata(dir)
            .and_then(|meta| {
                fs::set_permissions(dir, fs::Permissions::from_mode(meta.permissions().mode() | 0o011))
            })
            .is_ok()
}

/// Returns the directory for the servers' files of a new stack.
fn place(dir: &Path, owner: Option<&Owner>) -> PathBuf {
    if owner.is_none_or(|owner| reachable(dir, owner)) {
        return dir.join("servers");
    }
    let mut hasher = DefaultHasher::new();
    dir.hash(&mut hasher);
    let place = Path::new(ELSEWHERE).join(format!("{:016x}", hasher.finish()));
    tracing::info!(
        "an unprivileged user cannot reach {}; server files go to {}",
        dir.display(),
        place.display()
    );
    place
}

/// Corrects the stored directory after the data directory was moved.
fn find_again(kept: Kept, place: PathBuf) -> Kept {
    if kept.servers_dir.exists() { kept } else { Kept { servers_dir: place, ..kept } }
}

fn make_dir(dir: &Path, mode: u32) -> io::Result<()> {
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent)?;
    }
    match fs::DirBuilder::new().mode(mode).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

pub(crate) fn remove_dir(dir: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", dir)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Replaces `file` by one that only its owner can read. A reader sees the old or the new content.
pub(crate) fn write_private(file: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = file.with_extension(format!("{}.tmp", std::process::id()));
    let mut writer =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    writer.write_all(content)?;
    fs::rename(&temporary, file)
}

fn random_hex() -> io::Result<String> {
    let mut bytes = [0_u8; PASSWORD_BYTES];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
