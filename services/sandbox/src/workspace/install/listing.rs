//! What a tree has before an install: its paths, and the files that say which packages it needs.

use crate::{
    disk::walk::{DIRECTORY, Visitor, is_directory, walk},
    error::{Error, blocking},
};
use domain::text;
use rpc::v1::ErrorCode;
use rustix::fs::{Dir, FileType, Mode, Stat};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ffi::{CStr, OsStr},
    fs,
    io::{self, Read as _},
    os::unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
    path::Path,
    sync::LazyLock,
};

/// Files, directories and links of a repository for which something can be installed. Their paths are in memory meanwhile. Beyond it: `install_failed`.
const INSTALL_PATHS_MAX: usize = 500_000;
/// Files of a repository that say which packages it needs. Beyond it: `install_failed`.
const INSTALL_LOCKS_MAX: usize = 2_000;

/// Bytes of a file that are read at once.
const PIECE_BYTES: usize = 64 * 1024;

/// The names of such files: `*` stands for any text, at most once in a name.
#[derive(Deserialize)]
struct Names {
    locks: Vec<String>,
    /// They count in a directory without the locks that belong to them.
    manifests: BTreeMap<String, Vec<String>>,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| {
    // A test reads the file.
    let empty = |_| Names { locks: vec![], manifests: BTreeMap::new() };
    serde_json::from_str(include_str!("locks.json")).unwrap_or_else(empty)
});

#[derive(Debug, Default)]
pub(in crate::workspace) struct Listing {
    /// The paths below it; those of directories end with a slash.
    pub(in crate::workspace) paths: HashSet<Vec<u8>>,
    /// The files that say which packages it needs, with their digests.
    pub(in crate::workspace) locks: BTreeMap<String, String>,
}

/// Why there is no listing.
#[derive(Debug)]
pub(super) enum ListError {
    TooLarge,
    Io(io::Error),
}

impl From<io::Error> for ListError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The walk through a tree.
#[derive(Default)]
struct Lister {
    /// The directories that lead to the newest entry, each with a slash at its end.
    above: Vec<Vec<u8>>,
    paths: HashSet<Vec<u8>>,
    /// Directories, each with its files that may count.
    named: BTreeMap<Vec<u8>, BTreeSet<String>>,
    is_partial: bool,
}

impl Visitor for Lister {
    fn is_at_its_end(&self) -> bool {
        self.is_partial || self.paths.len() >= INSTALL_PATHS_MAX
    }

    fn add(&mut self, name: &CStr, depth: usize, stat: &Stat) {
        self.above.truncate(depth - 1);
        let parent = self.above.concat();
        let name = name.to_bytes();
        if is_directory(stat) {
            self.above.push([name, b"/"].concat());
            self.paths.insert([parent.as_slice(), name, b"/"].concat());
            return;
        }
        let is_git = parent == b".git/" || parent.starts_with(b".git/");
        if let Some(name) = std::str::from_utf8(name).ok().filter(|name| !is_git && counts(name))
            && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        {
            self.named.entry(parent.clone()).or_default().insert(name.to_owned());
        }
        self.paths.insert([parent.as_slice(), name].concat());
    }

    fn skip(&mut self) {
        self.is_partial = true;
    }
}

/// Lists a tree in which no program has run.
///
/// # Errors
/// `install_failed`: it has too many files; those of the file system.
pub(in crate::workspace) async fn read(tree: &Path) -> Result<Listing, Error> {
    const DOING: &str = "list the files of a repository";
    let tree = tree.to_owned();
    blocking(DOING, move || Ok(list(&tree))).await?.map_err(|error| match error {
        ListError::TooLarge => {
            let text =
                "the repository has too many files, or too many files that name packages, for an install";
            Error::refused(ErrorCode::InstallFailed, text)
        }
        ListError::Io(error) => Error::io(DOING)(error),
    })
}

/// As [`read`]. Blocks.
pub(super) fn list(tree: &Path) -> Result<Listing, ListError> {
    let mut lister = Lister::default();
    let root = rustix::fs::open(tree, DIRECTORY, Mode::empty()).map_err(io::Error::from)?;
    walk(&mut lister, Dir::new(root).map_err(io::Error::from)?);
    let files: Vec<Vec<u8>> = lister.named.iter().flat_map(|(parent, names)| chosen(parent, names)).collect();
    if lister.is_partial || files.len() > INSTALL_LOCKS_MAX {
        return Err(ListError::TooLarge);
    }
    let mut locks = BTreeMap::new();
    for path in files {
        locks.insert(
            String::from_utf8_lossy(&path).into_owned(),
            digest(&tree.join(OsStr::from_bytes(&path)))?,
        );
    }
    Ok(Listing { paths: lister.paths, locks })
}

/// The paths of the files of one directory that count.
fn chosen<'a>(parent: &'a [u8], names: &'a BTreeSet<String>) -> impl Iterator<Item = Vec<u8>> + 'a {
    let stands_alone = move |name: &&String| match NAMES.manifests.get(*name) {
        Some(locks) => !locks.iter().any(|lock| names.contains(lock)),
        None => true,
    };
    names.iter().filter(stands_alone).map(move |name| [parent, name.as_bytes()].concat())
}

fn counts(name: &str) -> bool {
    NAMES.manifests.contains_key(name) || NAMES.locks.iter().any(|pattern| fits(pattern, name))
}

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        Some((head, tail)) => {
            name.len() >= head.len() + tail.len() && name.starts_with(head) && name.ends_with(tail)
        }
        None => pattern == name,
    }
}

fn digest(path: &Path) -> io::Result<String> {
    let mut file = fs::File::options().read(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
    let (mut hash, mut piece) = (Sha256::new(), vec![0; PIECE_BYTES]);
    loop {
        match file.read(&mut piece)? {
            0 => break,
            length => hash.update(&piece[..length]),
        }
    }
    Ok(text::hex(&hash.finalize()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn locks_count_in_any_directory_and_manifests_without_them() {
        let tree = tempfile::tempdir().unwrap();
        let files = [
            "package.json",
            "package-lock.json",
            "README.md",
            "a/b/requirements-dev.txt",
            "a/package.json",
            ".git/yarn.lock",
            "a/build.gradle.kts",
            "a/requirements.in",
        ];
        for file in files {
            let path = tree.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", tree.path().join("yarn.lock")).unwrap();
        let listing = list(tree.path()).unwrap();
        let locks: Vec<&str> = listing.locks.keys().map(String::as_str).collect();
        assert_eq!(
            locks,
            ["a/b/requirements-dev.txt", "a/build.gradle.kts", "a/package.json", "package-lock.json"]
        );
        for path in ["a/", "a/b/", "README.md", "yarn.lock", ".git/"] {
            assert!(listing.paths.contains(path.as_bytes()), "{path}");
        }
        fs::write(tree.path().join("package-lock.json"), "other").unwrap();
        assert_ne!(list(tree.path()).unwrap().locks, listing.locks);
        assert!(NAMES.locks.len() > 20 && NAMES.manifests.len() > 5);
    }
}
