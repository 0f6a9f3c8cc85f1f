//! Copies of the files of the machine that nearly every process maps: the loader, the C library, the shells, git. Each tenant has its own.
//!
//! The kernel has one lock for all mappings of a file, and every start and every end of a process takes it. The lock passes from one waiting
//! process to the next, also to one that has no turn on a processor. With one file for all, a fork bomb of a tenant that gets little of the
//! processors delays each start of all other tenants, and of our own services, by seconds.

use super::{loader, mount::Mount};
use crate::layout::{make_passage, remove_directory};
use domain::ids::TenantId;
use std::{
    collections::{BTreeSet, HashMap},
    fs::{self, File, FileTimes, Permissions},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Programs that are copied with their libraries.
const PROGRAMS: [&str; 3] = ["bash", "sh", "git"];
/// Where sandboxes look for programs. Those that the machine has in several directories are copied from each.
const DIRECTORIES: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];
/// How long the copies of a tenant stay without a start. Sandboxes that run keep theirs.
const UNUSED: Duration = Duration::from_secs(3_600);

/// The copies of all tenants.
#[derive(Debug)]
pub(in crate::isolation) struct Copies {
    directory: PathBuf,
    files: Vec<SharedFile>,
    last_uses: Mutex<HashMap<TenantId, Instant>>,
}

/// A file of the machine that is copied.
#[derive(Debug)]
struct SharedFile {
    /// Without links. A sandbox has it at the same path.
    path: PathBuf,
    /// The name of its copies.
    name: String,
}

/// The copies of one tenant.
#[derive(Debug)]
pub(in crate::isolation) struct TenantCopies<'copies> {
    directory: PathBuf,
    files: &'copies [SharedFile],
}

impl TenantCopies<'_> {
    /// The mounts that show them in place of the files of the machine.
    pub(in crate::isolation) fn mounts(&self) -> impl Iterator<Item = Mount> {
        self.files.iter().map(|file| Mount::read(self.directory.join(&file.name), &file.path))
    }
}

impl Copies {
    /// Looks for the files. Copies that an earlier service left in `directory` are removed.
    ///
    /// # Errors
    /// Those of the file system.
    pub(in crate::isolation) fn start(directory: PathBuf) -> io::Result<Self> {
        remove_directory(&directory)?;
        make_passage(&directory)?;
        let places =
            DIRECTORIES.iter().flat_map(|directory| PROGRAMS.map(|name| Path::new(directory).join(name)));
        let programs: BTreeSet<_> = places.filter_map(|place| fs::canonicalize(place).ok()).collect();
        // A program that the loader does not know is copied without libraries.
        let libraries = programs.iter().flat_map(|program| loader::libraries(program).unwrap_or_default());
        let mut paths: BTreeSet<_> = libraries.filter_map(|library| fs::canonicalize(library).ok()).collect();
        paths.extend(programs);
        let named = paths.into_iter().enumerate().filter_map(|(index, path)| {
            let name = format!("{index}-{}", path.file_name()?.to_str()?);
            Some(SharedFile { path, name })
        });
        Ok(Self { directory, files: named.collect(), last_uses: Mutex::default() })
    }

    /// The copies of a tenant. They are made if they are missing, or if the machine has changed a file since.
    ///
    /// # Errors
    /// Those of the file system. The sandbox can start with the files of the machine.
    ///
    /// Dropped midway: the copies that are missing are made at the next start.
    pub(in crate::isolation) async fn of(&self, tenant: TenantId) -> io::Result<TenantCopies<'_>> {
        self.remove_unused(tenant);
        let directory = self.directory.join(tenant.to_string());
        let stale = self.files.iter().filter(|file| !file.is_copied(&directory.join(&file.name)));
        let missing: Vec<_> = stale.map(|file| (file.path.clone(), directory.join(&file.name))).collect();
        if !missing.is_empty() {
            let directory = directory.clone();
            let work = move || {
                make_passage(&directory)?;
                missing.iter().try_for_each(|(from, to)| copy(from, to))
            };
            tokio::task::spawn_blocking(work).await.map_err(io::Error::other)??;
        }
        Ok(TenantCopies { directory, files: &self.files })
    }

    /// Notes a use of the copies of `tenant`, and removes those that no start has used for long. Sandboxes that show a removed file keep it.
    fn remove_unused(&self, tenant: TenantId) {
        let mut last_uses = self.last_uses.lock().unwrap_or_else(PoisonError::into_inner);
        if last_uses.insert(tenant, Instant::now()).is_some() {
            return;
        }
        // A new tenant: there are more copies from now on.
        last_uses.retain(|tenant, last_use| {
            let is_used = last_use.elapsed() < UNUSED;
            if !is_used {
                drop(fs::remove_dir_all(self.directory.join(tenant.to_string())));
            }
            is_used
        });
    }
}

impl SharedFile {
    /// Whether `copy` was made of the file as it is now.
    fn is_copied(&self, copy: &Path) -> bool {
        let identity =
            |path: &Path| fs::metadata(path).ok().map(|file| (file.len(), file.mtime(), file.mtime_nsec()));
        identity(copy).is_some_and(|copied| Some(copied) == identity(&self.path))
    }
}

/// Copies a file with its time, in one step: another start may copy it too, and sandboxes show the earlier copy.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let new = to.with_extension(format!("new-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    let modified = fs::metadata(from)?.modified()?;
    fs::copy(from, &new)?;
    fs::set_permissions(&new, Permissions::from_mode(0o755))?;
    File::options().write(true).open(&new)?.set_times(FileTimes::new().set_modified(modified))?;
    fs::rename(&new, to)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, missing_docs)]
    use super::*;

    #[tokio::test]
    async fn a_tenant_gets_new_copies_when_the_machine_changes_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("libc.so");
        fs::write(&path, "one").unwrap();
        let mut copies = Copies::start(directory.path().join("copies")).unwrap();
        assert!(copies.files.iter().any(|file| file.path.starts_with("/usr")), "{:?}", copies.files);
        copies.files = vec![SharedFile { path: path.clone(), name: "0-libc.so".to_owned() }];
        let [one, other] = [(); 2].map(|()| TenantId(uuid::Uuid::now_v7()));
        let copy = copies.of(one).await.unwrap().directory.join("0-libc.so");
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        let first = inode(&copy);
        copies.of(one).await.unwrap();
        assert_eq!(inode(&copy), first, "the copy is made once");
        let of_other = copies.of(other).await.unwrap().directory.join("0-libc.so");
        assert_ne!(inode(&of_other), first);
        fs::write(&path, "two!").unwrap();
        copies.of(one).await.unwrap();
        assert_eq!(fs::read_to_string(&copy).unwrap(), "two!");
        assert_eq!(fs::read_to_string(&of_other).unwrap(), "one");
    }
}
