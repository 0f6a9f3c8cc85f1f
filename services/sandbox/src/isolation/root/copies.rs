//! Copies of the files of the machine that nearly every process maps: the loader, the C library, the shells, git. Each tenant has its own.
//!
//! The kernel has one lock for all mappings of a file, and every start and every end of a process takes it. The lock passes from one waiting
//! process to the next, also to one that has no turn on a processor. With one file for all, a fork bomb of a tenant that gets little of the
//! processors delays each start of all other tenants, and of our own services, by seconds.

use super::{loader, mount::Mount};
use crate::layout::{make_passage, remove_directory};
use chassis::lock;
use domain::ids::TenantId;
use std::{
    collections::{BTreeSet, HashMap},
    fs::{self, Permissions},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Mutex,
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
    /// Those that a start has used lately.
    tenants: Mutex<HashMap<TenantId, TenantCopies>>,
}

#[derive(Debug)]
struct TenantCopies {
    /// A tenant that comes back gets another directory, because a thread may still remove this one.
    directory: PathBuf,
    last_use: Instant,
}

/// A use of the copies of a tenant.
#[derive(Debug)]
struct CopiesUse {
    directory: PathBuf,
    /// Directories of other tenants that no start has used for long, and that none will use.
    unused: Vec<PathBuf>,
}

/// A file of the machine that is copied.
#[derive(Debug)]
struct SharedFile {
    /// Without links. A sandbox has it at the same path.
    path: PathBuf,
    /// What the names of its copies begin with.
    name: String,
}

impl Copies {
    /// Looks for the files. Copies that an earlier service left in `directory` are removed.
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
        Ok(Self { directory, files: named.collect(), tenants: Mutex::default() })
    }

    /// The mounts that show a tenant its copies in place of the files of the machine. The copies are made if they are missing, or if the machine has
    /// changed a file since.
    ///
    /// # Errors
    /// Those of the file system. The sandbox can start with the files of the machine.
    ///
    /// Dropped midway: the copies that are missing are made at the next start.
    pub(in crate::isolation) async fn of(&self, tenant: TenantId) -> io::Result<Vec<Mount>> {
        let CopiesUse { directory, unused } = self.note_use(tenant, Instant::now());
        if !unused.is_empty() {
            // No start waits for this. The next start of the service removes what is left. Sandboxes that show a removed file keep it.
            let remove = move || unused.iter().for_each(|copies| drop(fs::remove_dir_all(copies)));
            drop(tokio::task::spawn_blocking(remove));
        }
        let mount = |file: &SharedFile| Ok(Mount::read(directory.join(file.copy_name()?), &file.path));
        let mounts = self.files.iter().map(mount).collect::<io::Result<Vec<_>>>()?;
        let missing: Vec<_> = mounts.iter().filter(|mount| !mount.source.exists()).cloned().collect();
        if !missing.is_empty() {
            let work = move || {
                make_passage(&directory)?;
                missing.iter().try_for_each(|mount| copy(&mount.inside, &mount.source))
            };
            tokio::task::spawn_blocking(work).await.map_err(io::Error::other)??;
        }
        Ok(mounts)
    }

    /// Notes a use of the copies of `tenant`. The first use takes the unused ones of others out of the list: there are more copies from now on.
    fn note_use(&self, tenant: TenantId, now: Instant) -> CopiesUse {
        let mut tenants = lock(&self.tenants);
        if let Some(copies) = tenants.get_mut(&tenant) {
            copies.last_use = now;
            return CopiesUse { directory: copies.directory.clone(), unused: vec![] };
        }
        let is_unused = |copies: &TenantCopies| now.saturating_duration_since(copies.last_use) >= UNUSED;
        let unused = tenants.extract_if(|_, copies| is_unused(copies)).map(|(_, copies)| copies.directory);
        let unused = unused.collect();
        let directory = self.directory.join(format!("{tenant}-{}", uuid::Uuid::now_v7().simple()));
        tenants.insert(tenant, TenantCopies { directory: directory.clone(), last_use: now });
        CopiesUse { directory, unused }
    }
}

impl SharedFile {
    /// The name of a copy of the file as it is now. A copy is never replaced, because a start that has opened it could no longer mount it. So
    /// another version of the file has another name. Copies of earlier versions go when the tenant has not used its copies for long.
    fn copy_name(&self) -> io::Result<String> {
        let file = fs::metadata(&self.path)?;
        Ok(format!("{}-{}-{}-{}", self.name, file.len(), file.mtime(), file.mtime_nsec()))
    }
}

/// Copies a file in one step. If another start has copied it meanwhile, that copy stays.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let new = to.with_extension(format!("new-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    let copied = fs::copy(from, &new).and_then(|_| fs::set_permissions(&new, Permissions::from_mode(0o755)));
    let named = copied.and_then(|()| fs::hard_link(&new, to));
    // Also after an error: a full disk must not get fuller with each start.
    drop(fs::remove_file(&new));
    match named {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        named => named,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
        let copy = async |tenant| copies.of(tenant).await.unwrap().remove(0).source;
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        let first = inode(&copy(one).await);
        assert_eq!(inode(&copy(one).await), first, "the copy is made once");
        let of_other = copy(other).await;
        assert_ne!(inode(&of_other), first);
        fs::write(&path, "two!").unwrap();
        assert_eq!(fs::read_to_string(copy(one).await).unwrap(), "two!");
        assert_eq!(fs::read_to_string(&of_other).unwrap(), "one");
    }

    #[tokio::test]
    async fn a_tenant_that_comes_back_gets_other_copies_than_those_that_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let copies = Copies::start(directory.path().join("copies")).unwrap();
        let [one, other] = [(); 2].map(|()| TenantId(uuid::Uuid::now_v7()));
        let mounts = copies.of(one).await.unwrap();
        let own = copies.note_use(one, Instant::now()).directory;
        assert!(mounts.iter().all(|mount| mount.source.starts_with(&own) && mount.source.exists()));
        assert!(copies.note_use(other, Instant::now()).unused.is_empty());
        let later = Instant::now() + UNUSED;
        copies.note_use(other, later);
        let new = copies.note_use(TenantId(uuid::Uuid::now_v7()), later);
        assert_eq!(new.unused, std::slice::from_ref(&own));
        assert_ne!(copies.note_use(one, later).directory, own, "a thread may still remove it");
    }

    /// The kernel refuses to mount a file that was replaced since it was opened.
    #[tokio::test]
    async fn starts_of_a_new_tenant_at_once_replace_no_copy() {
        let directory = tempfile::tempdir().unwrap();
        let copies = Copies::start(directory.path().join("copies")).unwrap();
        let tenant = TenantId(uuid::Uuid::now_v7());
        let start = async || {
            let mounts = copies.of(tenant).await.unwrap();
            let inodes = mounts.iter().map(|mount| fs::metadata(&mount.source).unwrap().ino());
            inodes.collect::<Vec<_>>()
        };
        let found = futures::future::join_all((0..8).map(|_| start())).await;
        assert!(found.iter().all(|inodes| *inodes == found[7]), "{found:?}");
        let names = fs::read_dir(copies.note_use(tenant, Instant::now()).directory).unwrap();
        assert_eq!(names.count(), found[0].len(), "no other file is left");
    }
}
