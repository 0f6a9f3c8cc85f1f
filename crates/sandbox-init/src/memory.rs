//! The memory of a sandbox, for machines without a control group that limits it. It counts what such a group would count: the
//! pages of processes, those that several share once, the files of every tmpfs, and memory files (memfd) also if nobody maps
//! them.
//!
//! In gVisor the kernel counts the pages of all processes together, and does not say which of them they share.
//!
//! A process can keep this program from looking at its files and maps by becoming "not dumpable". It then counts as if it
//! used everything.

use super::{
    pump::{MemoryUse, Pump},
    thread,
    tree::Processes,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The pause between two measurements. A slow one makes it longer, so that measuring takes at most a tenth of the time.
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_FACTOR: u32 = 10;
const PAGE_BYTES: u64 = 4_096;
const BLOCK_BYTES: u64 = 512;
const KIB: u64 = 1_024;
/// The places that keep files in memory.
const TMPFS: [&str; 3] = ["/tmp", "/home/agent", "/dev/shm"];
/// Those among them that are not of gVisor's kernel.
const TMPFS_OUTSIDE_GVISOR: [&str; 2] = ["/tmp", "/home/agent"];
const MEMORY_FILE: &str = "/memfd:";

/// Starts the thread that ends commands when all processes together use more than `bytes_max`.
pub(super) fn spawn(pump: Pump, bytes_max: u64, is_in_gvisor: bool) -> io::Result<()> {
    thread::spawn("memory", move || {
        let mut hidden = BTreeSet::new();
        loop {
            let started = Instant::now();
            let used =
                if is_in_gvisor { excess_in_gvisor(bytes_max) } else { excess(bytes_max, &mut hidden) };
            if let Some(used) = used {
                pump.end_largest(used);
            }
            std::thread::sleep(PAUSE.max(started.elapsed() * PAUSE_FACTOR));
        }
    })
}

/// What the processes use, if that is more than `bytes_max`. `hidden` are the processes that could not be looked at
/// the last time.
fn excess(bytes_max: u64, hidden: &mut BTreeSet<i32>) -> Option<MemoryUse> {
    let processes = Processes::read();
    // A supervisor is a copy of this program, and not dumpable either.
    let supervisors = processes.orphans(&BTreeSet::new());
    let mut files = MemoryFiles::default();
    let mut unreadable = BTreeSet::new();
    for pid in processes.all().filter(|pid| !supervisors.contains(pid)) {
        if files.add(pid).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
            unreadable.insert(pid);
        }
    }
    // A command is such a copy too, until it has taken its files.
    let hiding: BTreeSet<i32> = unreadable.intersection(hidden).copied().collect();
    *hidden = unreadable;

    let tmpfs = tmpfs_bytes(&TMPFS);
    let mut by_process: BTreeMap<i32, u64> = processes.all().map(|pid| (pid, resident_bytes(pid))).collect();
    let at_most = by_process.values().sum::<u64>() + files.bytes() + tmpfs;
    if at_most <= bytes_max && hiding.is_empty() {
        return None;
    }
    let mut measure = || {
        // Shared pages were counted several times. The exact numbers take the kernel some milliseconds for each GiB.
        for (pid, bytes) in &mut by_process {
            *bytes = match read_smaps(*pid) {
                _ if hiding.contains(pid) => bytes_max,
                Some(smaps) => files.held_by(*pid) + proportional_bytes(&smaps, &files),
                None if supervisors.contains(pid) => own_bytes(*pid),
                None => files.held_by(*pid) + resident_bytes(*pid),
            };
        }
        let total = by_process.values().sum::<u64>() + tmpfs;
        // One that hides counts as all, so there is always an excess then, unless everything else uses nothing.
        total.saturating_sub(bytes_max).max(u64::from(!hiding.is_empty()))
    };
    let first = measure();
    // Processes that end while they are measured leave their shares to those that are measured after them. A second
    // measurement finds these alone.
    let excess_bytes = if first > 0 { first.min(measure()) } else { 0 };
    (excess_bytes > 0).then_some(MemoryUse { by_process, excess_bytes })
}

/// What the processes use, if that is more than `bytes_max` as gVisor counts it.
fn excess_in_gvisor(bytes_max: u64) -> Option<MemoryUse> {
    let total = used_bytes(&fs::read_to_string("/proc/meminfo").ok()?)? + tmpfs_bytes(&TMPFS_OUTSIDE_GVISOR);
    let excess_bytes = total.checked_sub(bytes_max).filter(|bytes| *bytes > 0)?;
    let by_process = Processes::read().all().map(|pid| (pid, resident_bytes(pid))).collect();
    Some(MemoryUse { by_process, excess_bytes })
}

/// The memory in use, by the text of `/proc/meminfo`; bytes.
fn used_bytes(meminfo: &str) -> Option<u64> {
    let kib = |name: &str| {
        let rest = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some(kib("MemTotal:")?.saturating_sub(kib("MemFree:")?) * KIB)
}

/// The memory files that processes have open, each once.
#[derive(Debug, Default)]
struct MemoryFiles {
    inodes: BTreeSet<u64>,
    by_process: BTreeMap<i32, u64>,
}

impl MemoryFiles {
    /// Adds those of a process and of its threads, which may have files of their own.
    fn add(&mut self, pid: i32) -> io::Result<()> {
        for thread in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
            let thread = thread.path();
            let files = match fs::read_dir(thread.join("fd")) {
                // The others may have open files.
                Err(error) if error.kind() != io::ErrorKind::PermissionDenied || is_idle(&thread) => continue,
                other => other?,
            };
            for file in files.flatten() {
                let path = file.path();
                if fs::read_link(&path).is_ok_and(|target| is_memory_file(&target))
                    && let Ok(metadata) = fs::metadata(&path)
                {
                    self.add_file(pid, &metadata);
                }
            }
        }
        Ok(())
    }

    fn add_file(&mut self, pid: i32, metadata: &fs::Metadata) {
        if self.inodes.insert(metadata.ino()) {
            *self.by_process.entry(pid).or_default() += metadata.blocks() * BLOCK_BYTES;
        }
    }

    fn held_by(&self, pid: i32) -> u64 {
        self.by_process.get(&pid).copied().unwrap_or(0)
    }

    fn bytes(&self) -> u64 {
        self.by_process.values().sum()
    }
}

fn is_memory_file(target: &Path) -> bool {
    target.as_os_str().as_encoded_bytes().starts_with(MEMORY_FILE.as_bytes())
}

/// The share of a process in its pages, without those of memory files and of a tmpfs, which are counted by file.
fn proportional_bytes(smaps: &str, files: &MemoryFiles) -> u64 {
    let (mut is_counted, mut kib) = (false, 0);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        if !first.ends_with(':') {
            // `7f00-7f80 rw-s 00000000 00:01 1234 /memfd:x (deleted)`
            let inode = words.nth(3).and_then(|inode| inode.parse().ok()).unwrap_or(0);
            let path = words.next().unwrap_or_default();
            let is_open = path.starts_with(MEMORY_FILE) && files.inodes.contains(&inode);
            is_counted = !is_open && !TMPFS.iter().any(|root| Path::new(path).starts_with(root));
        } else if is_counted && first == "Pss:" {
            kib += words.next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    kib * KIB
}

/// Whether a thread that cannot be looked at hides nothing. One that has ended stays until its parent asks for its end. One that has never run is
/// still a copy of what made it: on a busy machine it may wait long for a processor.
fn is_idle(thread: &Path) -> bool {
    has_ended(thread) || has_never_run(thread)
}

/// By its address space, which a process or thread keeps until it ends, also if none of its pages is in memory.
fn has_ended(place: &Path) -> bool {
    statm(place).is_none_or(|[size, ..]| size == 0)
}

/// By how often the thread got a processor. A kernel that does not count says 0 of every thread, also of this one, which runs.
fn has_never_run(thread: &Path) -> bool {
    let counts = || runs(Path::new("/proc/thread-self")).is_some_and(|runs| runs > 0);
    runs(thread) == Some(0) && counts()
}

/// How often a thread got a processor: the third number of `schedstat`.
fn runs(thread: &Path) -> Option<u64> {
    let schedstat = fs::read_to_string(thread.join("schedstat")).ok()?;
    schedstat.split_whitespace().nth(2)?.parse().ok()
}

/// Where the memory of a process is described: at the process, or at one of its threads if its first one has ended.
struct MemoryPlace {
    place: PathBuf,
    statm: [u64; 3],
}

impl MemoryPlace {
    /// `None`: the process has ended.
    fn find(pid: i32) -> Option<Self> {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let threads = process.join("task");
        Self::at(process).or_else(|| {
            fs::read_dir(threads).into_iter().flatten().flatten().find_map(|thread| Self::at(thread.path()))
        })
    }

    fn at(place: PathBuf) -> Option<Self> {
        let statm = statm(&place).filter(|[size, ..]| *size > 0)?;
        Some(Self { place, statm })
    }
}

/// What each mapping of a process takes; `None`: it has ended, or hides it.
fn read_smaps(pid: i32) -> Option<String> {
    fs::read_to_string(MemoryPlace::find(pid)?.place.join("smaps")).ok()
}

/// All pages that a process can reach.
fn resident_bytes(pid: i32) -> u64 {
    MemoryPlace::find(pid).map_or(0, |found| found.statm[1])
}

/// The pages that are not those of a file.
fn own_bytes(pid: i32) -> u64 {
    MemoryPlace::find(pid).map_or(0, |found| found.statm[1].saturating_sub(found.statm[2]))
}

/// The address space of a process or thread, the pages of it that are in memory, and those among them that are of files; bytes.
fn statm(place: &Path) -> Option<[u64; 3]> {
    let statm = fs::read_to_string(place.join("statm")).ok()?;
    let pages: Vec<u64> = statm.split(' ').take(3).map_while(|field| field.parse().ok()).collect();
    let pages: [u64; 3] = pages.try_into().ok()?;
    Some(pages.map(|pages| pages * PAGE_BYTES))
}

/// What stands in these places.
fn tmpfs_bytes(places: &[&str]) -> u64 {
    let bytes = |path: &&str| {
        rustix::fs::statvfs(*path)
            .map_or(0, |stat| (stat.f_blocks - stat.f_bfree).saturating_mul(stat.f_frsize))
    };
    places.iter().map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_counted_by_file_are_left_out() {
        let smaps = "7f00-7f10 rw-p 00000000 00:00 0\nRss: 20 kB\nPss: 10 kB\n\
                     7f10-7f20 rw-s 00000000 00:01 7  /memfd:a b (deleted)\nPss: 100 kB\n\
                     7f20-7f30 rw-s 00000000 00:01 8  /memfd:c (deleted)\nPss: 3 kB\n\
                     7f30-7f40 r--s 00000000 00:2a 9  /tmp/x\nPss: 1000 kB\n\
                     7f40-7f50 r-xp 00000000 fd:01 9  /usr/bin/x\nPss: 2 kB\nVmFlags: rd\n";
        let files = MemoryFiles { inodes: BTreeSet::from([7]), by_process: BTreeMap::new() };
        assert_eq!(proportional_bytes(smaps, &files), 15 * KIB);
    }

    #[test]
    fn a_thread_has_never_run_if_the_kernel_counted_no_run_of_it() {
        let thread = tempfile::tempdir().unwrap();
        let says = |schedstat: &str| {
            fs::write(thread.path().join("schedstat"), schedstat).unwrap();
            has_never_run(thread.path())
        };
        assert_eq!(
            [says("0 0 0\n"), says("0 61 0\n"), says("9 61 1\n"), says("0 0\n")],
            [true, true, false, false]
        );
        assert!(!has_never_run(Path::new("/proc/thread-self")), "this thread runs");
        assert!(!has_never_run(Path::new("/proc/no-thread")));
    }

    #[test]
    fn what_is_not_free_is_used() {
        let meminfo =
            "MemTotal:        2097152 kB\nMemFree:         2000000 kB\nMemAvailable:    2000000 kB\n";
        assert_eq!(used_bytes(meminfo), Some(97_152 * KIB));
        assert_eq!(used_bytes("MemTotal: x kB"), None);
    }
}
