//! Files without a name that a process maps and does not have open. The kernel shows the maps of a process under the lock of its memory. A process that
//! gets little of the processors may hold this lock for many seconds, so no walk waits for it: a thread of its own reads the maps of a workspace's
//! processes, and a walk counts what the last reading found.

use super::{
    count::{Count, FileOwner, blocks},
    nameless::look_into,
    walk::Visitor as _,
};
use crate::isolation::priority;
use chassis::lock;
use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufRead as _, BufReader},
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

const DELETED: &[u8] = b" (deleted)";
/// Longest wait of a walk for a reading. Nearly all readings take some milliseconds. If one takes longer, the walk counts what the last one found.
const READING_WAIT: Duration = Duration::from_millis(100);
/// Longest time of a reading. A workspace whose reading takes longer hides files, so it counts as not counted completely.
const READING_MAX: Duration = Duration::from_secs(60);
/// Files of one reading; each takes some 40 bytes of memory. A process maps 65,530 at most. A workspace with more files counts as not counted completely.
const MAPPED_FILES_MAX: usize = 1_000_000;

/// The files without a name that the processes of one workspace map, as of the last reading. One reading runs at a time, so there are at most as many
/// threads as workspaces with a sandbox.
#[derive(Debug, Default)]
pub(super) struct MappedFiles {
    state: Mutex<State>,
    is_over: Condvar,
}

#[derive(Debug, Default)]
struct State {
    last: MapReading,
    /// When the reading that runs began.
    begun_at: Option<Instant>,
}

impl MappedFiles {
    /// Counts what the processes `pids` map, as the last reading found it. Begins a reading and waits for it for a moment. Blocks.
    pub(super) fn add_to(self: &Arc<Self>, count: &mut Count, pids: &[i32]) {
        if pids.is_empty() {
            self.state().last = MapReading::default();
            return;
        }
        let (pids, owner) = (pids.to_vec(), count.owner);
        self.refresh(move || MapReading::of(&pids, owner));
        let state = self.state();
        state.last.add_to(count);
        if state.begun_at.is_some_and(|begun_at| begun_at.elapsed() > READING_MAX) {
            count.skip();
        }
    }

    /// Reads in a thread, and waits a moment for its end. If a reading runs already, it may have passed a process that has closed a file since. So another
    /// one follows if the first one ends in time.
    fn refresh(self: &Arc<Self>, read: impl FnOnce() -> MapReading + Send + 'static) {
        let deadline = Instant::now() + READING_WAIT;
        let mut state = self.wait(deadline);
        if state.begun_at.is_some() {
            return;
        }
        let own = Arc::clone(self);
        let started = thread::Builder::new().name("maps".to_owned()).spawn(move || {
            let _end = ReadingEnd(&own);
            priority::lower().ok();
            let reading = read();
            own.state().last = reading;
        });
        // The thread ends its reading only when this lock is free. Without a thread, the last reading stays.
        state.begun_at = started.is_ok().then(Instant::now);
        drop(state);
        drop(self.wait(deadline));
    }

    /// Waits until no reading runs, at most until `deadline`.
    fn wait(&self, deadline: Instant) -> MutexGuard<'_, State> {
        let patience = deadline.saturating_duration_since(Instant::now());
        let waited =
            self.is_over.wait_timeout_while(self.state(), patience, |state| state.begun_at.is_some());
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Ends a reading when it is dropped, also after a panic.
struct ReadingEnd<'a>(&'a MappedFiles);

impl Drop for ReadingEnd<'_> {
    fn drop(&mut self) {
        self.0.state().begun_at = None;
        self.0.is_over.notify_all();
    }
}

/// What one reading of maps found.
#[derive(Debug, Default)]
pub(super) struct MapReading {
    /// The space of each file, by its inode; bytes.
    files: HashMap<u64, u64>,
    /// The mapped bytes of files that the service may not look at. Only a privileged service may.
    parts: HashMap<u64, u64>,
    /// Whether a process stayed closed, or there were too many files.
    is_partial: bool,
}

impl MapReading {
    /// Reads the maps of the processes `pids`. Blocks for as long as they hold the locks of their memory.
    pub(super) fn of(pids: &[i32], owner: FileOwner) -> Self {
        let mut reading = Self::default();
        let is_complete = look_into(pids, |process| reading.add_process(process, owner));
        reading.is_partial |= !is_complete;
        reading
    }

    pub(super) fn add_to(&self, count: &mut Count) {
        self.files.iter().for_each(|(inode, bytes)| count.add_nameless(*inode, *bytes));
        self.parts.iter().for_each(|(inode, bytes)| count.add_mapped(*inode, *bytes));
        if self.is_partial {
            count.skip();
        }
    }

    fn add_process(&mut self, process: &Path, owner: FileOwner) -> io::Result<()> {
        // One line at a time: the names of all maps can take hundreds of megabytes. They need not be UTF-8.
        for line in BufReader::new(File::open(process.join("maps"))?).split(b'\n') {
            let line = line?;
            if line.ends_with(DELETED)
                && let Some(map) = Map::parse(&String::from_utf8_lossy(&line))
            {
                self.add_map(&map, process, owner);
            }
        }
        Ok(())
    }

    fn add_map(&mut self, map: &Map<'_>, process: &Path, owner: FileOwner) {
        if self.files.len() + self.parts.len() >= MAPPED_FILES_MAX {
            self.is_partial = true;
            return;
        }
        match rustix::fs::stat(process.join("map_files").join(map.range)) {
            Ok(stat) if owner.owns_nameless(&stat) => {
                self.files.insert(stat.st_ino, blocks(&stat));
            }
            Err(_) if map.device == owner.device => {
                let bytes = self.parts.entry(map.inode).or_default();
                *bytes = bytes.saturating_add(map.bytes);
            }
            Ok(_) | Err(_) => {}
        }
    }
}

/// A part of a file that a process maps.
#[derive(Debug, PartialEq, Eq)]
struct Map<'a> {
    range: &'a str,
    bytes: u64,
    device: u64,
    inode: u64,
}

impl<'a> Map<'a> {
    /// Reads `7f00-7f80 rw-s 00000000 fd:01 1234 /workspace/x (deleted)`.
    fn parse(line: &'a str) -> Option<Self> {
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let mut fields = line.split_whitespace();
        let range = fields.next()?;
        let (from, to) = range.split_once('-')?;
        let (major, minor) = fields.nth(2)?.split_once(':')?;
        let device = rustix::fs::makedev(number(major)?.try_into().ok()?, number(minor)?.try_into().ok()?);
        let inode = fields.next()?.parse().ok()?;
        Some(Self { range, bytes: number(to)?.checked_sub(number(from)?)?, device, inode })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_line_of_maps_names_the_file() {
        let line = "7f0000000000-7f0000200000 rw-s 00000000 fd:01 1234    /workspace/a b (deleted)";
        let device = rustix::fs::makedev(0xfd, 1);
        let map = Map { range: "7f0000000000-7f0000200000", bytes: 2 << 20, device, inode: 1_234 };
        assert_eq!(Map::parse(line), Some(map));
        assert_eq!(Map::parse("7f00-7f80 rw-p"), None);
    }

    #[test]
    fn a_walk_counts_the_last_reading_while_the_next_one_waits_for_a_process() {
        let mapped = Arc::new(MappedFiles::default());
        let end = || drop(mapped.wait(Instant::now() + Duration::from_secs(3_600)));
        let counted = || mapped.state().last.files.values().sum::<u64>();
        let found = |bytes| MapReading { files: HashMap::from([(1, bytes)]), ..MapReading::default() };
        mapped.refresh(move || found(5));
        end();
        assert_eq!(counted(), 5);
        let (release, process) = mpsc::channel::<()>();
        mapped.refresh(move || {
            process.recv().ok();
            found(7)
        });
        assert_eq!(counted(), 5, "the walk goes on");
        mapped.refresh(move || found(9));
        assert!(mapped.state().begun_at.is_some());
        drop(release);
        end();
        assert_eq!(counted(), 7, "no second reading began while the first one ran");
    }

    #[test]
    fn a_workspace_whose_maps_cannot_be_read_in_time_is_not_counted_completely() {
        let tree = tempfile::tempdir().unwrap();
        let root = rustix::fs::stat(tree.path()).unwrap();
        let mapped = Arc::new(MappedFiles::default());
        for (seconds, is_partial) in [(50, false), (70, true)] {
            mapped.state().begun_at = Instant::now().checked_sub(Duration::from_secs(seconds));
            let mut count = Count::new(&root, 10);
            mapped.add_to(&mut count, &[i32::try_from(std::process::id()).unwrap()]);
            assert_eq!(count.measure.is_partial, is_partial, "{seconds} s");
        }
        let mut count = Count::new(&root, 10);
        mapped.add_to(&mut count, &[]);
        assert!(!count.measure.is_partial, "a workspace without processes maps nothing");
    }

    #[test]
    fn a_file_counts_once_and_a_part_only_without_its_file() {
        let tree = tempfile::tempdir().unwrap();
        let root = rustix::fs::stat(tree.path()).unwrap();
        let mut count = Count::new(&root, 10);
        let before = count.measure.space;
        let reading = MapReading {
            files: HashMap::from([(1, 100)]),
            parts: HashMap::from([(1, 50), (2, 20)]),
            is_partial: false,
        };
        reading.add_to(&mut count);
        reading.add_to(&mut count);
        assert_eq!(count.measure.space.bytes - before.bytes, 140, "the file, and the part at each time");
        assert_eq!(count.measure.space.inodes - before.inodes, 1);
    }
}
