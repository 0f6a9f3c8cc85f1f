//! The objects that another session of the same mirror is bringing. Its helper writes them, so each of them is checked like one of a server.

use domain::egress::lfs::{
    arrivals::{ARRIVALS_WAIT_MAX, RUNNING, WANTED},
    pointer::LfsPointer,
    report::LFS_REPORT_BYTES_MAX,
};
use std::{
    collections::HashSet,
    fs::{self, File},
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// The objects of the other session.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// Their directory, each by its SHA-256. It need not exist.
    objects: PathBuf,
    /// The directory of [`RUNNING`]. It need not exist.
    lock: PathBuf,
    /// Those that the other session brings, once it has said so.
    wanted: OnceLock<HashSet<LfsPointer>>,
    begun_at: Instant,
}

/// Says which objects this session brings into a directory, for others that wait.
pub(super) fn announce(objects: &Path, wanted: &[LfsPointer]) -> io::Result<()> {
    let list: String = wanted.iter().map(|pointer| format!("{}\n", pointer.to_line())).collect();
    let place = objects.join(WANTED);
    let part = place.with_extension("part");
    fs::write(&part, list)?;
    fs::rename(part, place)
}

impl Arrivals {
    pub(super) fn new(objects: PathBuf, lock: PathBuf) -> Self {
        Self { objects, lock, wanted: OnceLock::new(), begun_at: Instant::now() }
    }

    /// Opens an object, as soon as the other session has it. `None`: it does not come from there.
    pub(super) fn wait(&self, pointer: &LfsPointer) -> Option<File> {
        loop {
            // In this order: a session that has ended brings nothing more.
            let may_come = self.may_come(pointer);
            match open(&self.objects.join(pointer.oid())) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && may_come => thread::sleep(PAUSE),
                opened => return opened.ok(),
            }
        }
    }

    fn may_come(&self, pointer: &LfsPointer) -> bool {
        self.begun_at.elapsed() < ARRIVALS_WAIT_MAX
            && self.lock.join(RUNNING).exists()
            // Before the other session has asked its server, it may bring any object.
            && self.wanted().is_none_or(|wanted| wanted.contains(pointer))
    }

    fn wanted(&self) -> Option<&HashSet<LfsPointer>> {
        if self.wanted.get().is_none() {
            let mut list = String::new();
            let file = open(&self.objects.join(WANTED)).ok()?;
            file.take(LFS_REPORT_BYTES_MAX as u64).read_to_string(&mut list).ok()?;
            let wanted = list.lines().filter_map(LfsPointer::parse_line).collect();
            return Some(self.wanted.get_or_init(|| wanted));
        }
        self.wanted.get()
    }
}

/// Opens a plain file. It follows no link and never blocks: another helper wrote it.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::symlink;

    fn pointer(letter: &str) -> LfsPointer {
        LfsPointer::new(&letter.repeat(64), 3).unwrap()
    }

    fn read(file: Option<File>) -> Option<String> {
        let mut text = String::new();
        file?.read_to_string(&mut text).unwrap();
        Some(text)
    }

    #[test]
    fn an_object_is_waited_for_as_long_as_it_may_come() {
        let directory = tempfile::tempdir().unwrap();
        let [objects, lock] = ["objects", "lock"].map(|name| directory.path().join(name));
        let arrivals = || Arrivals::new(objects.clone(), lock.clone());
        assert!(arrivals().wait(&pointer("a")).is_none(), "there is no other session");
        fs::create_dir(&objects).unwrap();
        fs::create_dir(&lock).unwrap();
        fs::write(lock.join(RUNNING), "").unwrap();
        fs::write(objects.join(pointer("a").oid()), "abc").unwrap();
        assert_eq!(read(arrivals().wait(&pointer("a"))).as_deref(), Some("abc"));
        announce(&objects, &[pointer("b"), pointer("c"), pointer("d")]).unwrap();
        assert!(arrivals().wait(&pointer("f")).is_none(), "the other session does not bring it");
        symlink("/etc/passwd", objects.join(pointer("d").oid())).unwrap();
        assert!(arrivals().wait(&pointer("d")).is_none(), "a link is no object");

        let (arrivals, other) = (arrivals(), pointer("b"));
        let brought = thread::scope(|scope| {
            let waiting = scope.spawn(|| read(arrivals.wait(&other)));
            fs::write(objects.join("part"), "abc").unwrap();
            fs::rename(objects.join("part"), objects.join(other.oid())).unwrap();
            waiting.join().unwrap()
        });
        assert_eq!(brought.as_deref(), Some("abc"));
        let gone = thread::scope(|scope| {
            let waiting = scope.spawn(|| arrivals.wait(&pointer("c")).is_none());
            fs::remove_file(lock.join(RUNNING)).unwrap();
            waiting.join().unwrap()
        });
        assert!(gone, "the other session has ended");
    }
}
