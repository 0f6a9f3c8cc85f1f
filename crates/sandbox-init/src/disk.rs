//! The size of the workspace, which the kernel does not limit.

use super::{paths::WORKSPACE, pump::Pump, thread};
use domain::limits;
use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use wire::v1::ExecEnd;

/// The pause between two measurements of the workspace. A slow measurement makes it longer, so measuring takes at most
/// a twentieth of the time.
const DISK_PAUSE: Duration = Duration::from_secs(2);
const DISK_PAUSE_FACTOR: u32 = 20;
const BLOCK_BYTES: u64 = 512;

/// Starts the thread that ends all commands when the workspace grows beyond `bytes_max`. The returned flag says whether
/// it is full, so that file writes are refused as well.
pub(super) fn spawn(pump: Pump, bytes_max: u64) -> io::Result<Arc<AtomicBool>> {
    let is_full = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_full);
    thread::spawn("disk", move || {
        let mut before = 0;
        loop {
            let started = Instant::now();
            let bytes = workspace_bytes();
            flag.store(bytes > bytes_max, Ordering::Relaxed);
            // A workspace that shrinks is being cleaned up.
            if bytes > bytes_max && bytes > before {
                pump.end_all(ExecEnd::DiskLimit);
            }
            before = bytes;
            std::thread::sleep(DISK_PAUSE.max(started.elapsed() * DISK_PAUSE_FACTOR));
        }
    })?;
    Ok(is_full)
}

/// The disk space of the workspace. A file with several names counts once; an unreadable file counts as nothing.
fn workspace_bytes() -> u64 {
    let (mut total, mut seen, mut directories) = (0, BTreeSet::new(), vec![PathBuf::from(WORKSPACE)]);
    let mut files = 0;
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.nlink() == 1 || metadata.is_dir() || seen.insert(metadata.ino()) {
                total += metadata.blocks() * BLOCK_BYTES;
            }
            files += 1;
            if metadata.is_dir() && directories.len() < limits::WALK_FILES_MAX {
                directories.push(entry.path());
            }
            if files > limits::WALK_FILES_MAX * 10 {
                return total;
            }
        }
    }
    total
}
