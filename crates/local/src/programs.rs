//! Finds the server programs, in PATH and in Debian's directories.

use crate::error::Error;
use std::{
    env, fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// Directories to search after PATH: Debian keeps servers out of a user's PATH.
const EXTRA_DIRS: [&str; 4] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin"];
/// Debian and PGDG keep each Postgres version in a directory below this one.
const POSTGRES_ROOT: &str = "/usr/lib/postgresql";

/// The paths of the needed programs.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    pub postgres: PathBuf,
    pub initdb: PathBuf,
    pub redis: PathBuf,
    pub nats: PathBuf,
    pub setpriv: PathBuf,
}

impl Programs {
    /// # Errors
    /// `Missing` with all missing programs.
    pub(crate) fn find() -> Result<Self, Error> {
        let mut missing = Vec::new();
        let mut need = |name: &'static str| {
            find(name).unwrap_or_else(|| {
                missing.push(name);
                PathBuf::new()
            })
        };
        let programs = Self {
            postgres: need("postgres"),
            initdb: need("initdb"),
            redis: need("redis-server"),
            nats: need("nats-server"),
            setpriv: need("setpriv"),
        };
        if missing.is_empty() { Ok(programs) } else { Err(Error::Missing { programs: missing }) }
    }
}

/// Finds an executable by name, in PATH, the usual server directories and the newest installed Postgres.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs = env::split_paths(&path).chain(EXTRA_DIRS.iter().map(PathBuf::from)).chain(postgres_dirs());
    dirs.map(|dir| dir.join(name)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Returns the program directories of all installed Postgres versions, newest first.
fn postgres_dirs() -> Vec<PathBuf> {
    let entries = fs::read_dir(POSTGRES_ROOT).into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort_by(|a, b| b.cmp(a));
    versions.into_iter().map(|(_, dir)| dir).collect()
}
