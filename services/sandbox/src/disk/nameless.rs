//! Files without a name: deleted ones that a process still has open. They take space, and no walk finds them. Those that a process only maps are in `mapped`.

use super::{
    count::{Count, blocks},
    walk::Visitor as _,
};
use crate::isolation::processes::{field, numbers};
use std::{ffi::OsStr, fs, io, path::Path, thread, time::Duration};

/// Pauses of one call, for processes that the service may not look into. A command is closed to the service's user from its fork to its start, some
/// milliseconds at most, if that user is not root; a program that closes itself stays closed.
const PAUSES_MAX: u32 = 8;
/// How long each lasts.
const PAUSE: Duration = Duration::from_millis(5);
/// What `kcmp` compares: the tables of open files (`linux/kcmp.h`).
const KCMP_FILES: i32 = 2;

/// Counts what the processes `pids` have open. Takes no lock that a process could hold for long. Blocks.
pub(super) fn add(count: &mut Count, pids: &[i32]) {
    let is_complete = look_into(pids, |process| add_process(count, process));
    if !is_complete {
        count.skip();
    }
}

/// Calls `look` with the directory of each process, and again after a pause while the process is closed. Returns whether none stayed closed. A process
/// that has ended holds nothing. Blocks.
pub(super) fn look_into(pids: &[i32], mut look: impl FnMut(&Path) -> io::Result<()>) -> bool {
    let (mut pauses, mut is_complete) = (0, true);
    for pid in pids {
        let process = Path::new("/proc").join(pid.to_string());
        while is_closed(&look(&process), &process) {
            if pauses == PAUSES_MAX {
                is_complete = false;
                break;
            }
            thread::sleep(PAUSE);
            pauses += 1;
        }
    }
    is_complete
}

/// Whether a process holds what the service may not see.
fn is_closed(result: &io::Result<()>, process: &Path) -> bool {
    let is_refused = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    result.as_ref().is_err_and(is_refused) && !is_ours(process)
}

/// A thread may have files that its process does not have.
fn add_process(count: &mut Count, process: &Path) -> io::Result<()> {
    let pid = process.file_name().and_then(number);
    for thread in fs::read_dir(process.join("task"))?.flatten() {
        if pid.zip(number(&thread.file_name())).is_some_and(|(pid, thread)| shares_files(pid, thread)) {
            continue;
        }
        let files = match fs::read_dir(thread.path().join("fd")) {
            // This thread has ended; the others may have open files.
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => continue,
            other => other?,
        };
        for file in files.flatten() {
            if let Ok(stat) = rustix::fs::stat(file.path())
                && count.owner.owns_nameless(&stat)
            {
                count.add_nameless(stat.st_ino, blocks(&stat));
            }
        }
    }
    Ok(())
}

fn number(name: &OsStr) -> Option<i32> {
    name.to_str()?.parse().ok()
}

/// Whether a thread has no other files than the first thread of its process, which are those of the process. `false` also if the kernel does not say.
#[allow(unsafe_code)] // No wrapper offers the call.
fn shares_files(process: i32, thread: i32) -> bool {
    // SAFETY: the call takes numbers only.
    process != thread && unsafe { libc::syscall(libc::SYS_kcmp, process, thread, KCMP_FILES, 0, 0) } == 0
}

/// Whether a process is bubblewrap, the init or one of its supervisors. They close themselves to the user of the sandbox, who
/// is the service's user if that is not root. Programs of the tenant are never direct children of the init.
fn is_ours(process: &Path) -> bool {
    let status = |process: &Path| fs::read_to_string(process.join("status")).unwrap_or_default();
    let (own, inside) = (status(Path::new("/proc/self")), status(process));
    let above = field(&inside, "PPid:").map(|pid| status(&Path::new("/proc").join(pid.trim())));
    numbers(&inside).len() <= numbers(&own).len()
        || [Some(inside), above].iter().flatten().any(|status| is_init(&numbers(status), &numbers(&own)))
}

fn is_init(pids: &[&str], own: &[&str]) -> bool {
    pids.len() > own.len() && pids.last() == Some(&"1")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::disk::survey::measure;
    use nix::{
        sched::{CloneFlags, unshare},
        unistd::gettid,
    };
    use std::{fs::File, sync::mpsc};

    #[test]
    fn the_files_of_a_thread_count_also_if_its_process_does_not_have_them() {
        let tree = tempfile::tempdir().unwrap();
        let path = tree.path().join("file");
        let pid = i32::try_from(std::process::id()).unwrap();
        let [plain, own] = [false, true].map(|has_own| {
            let (path, (sender, started)) = (path.clone(), mpsc::channel());
            let (end, ended) = mpsc::channel::<()>();
            let thread = thread::spawn(move || {
                if has_own {
                    unshare(CloneFlags::CLONE_FILES).unwrap();
                    fs::write(&path, vec![1_u8; 1 << 20]).unwrap();
                }
                let _file = has_own.then(|| File::open(&path).unwrap());
                drop(fs::remove_file(&path));
                sender.send(gettid().as_raw()).unwrap();
                ended.recv().ok();
            });
            (started.recv().unwrap(), end, thread)
        });
        assert_eq!([pid, plain.0, own.0].map(|thread| shares_files(pid, thread)), [false, true, false]);
        assert!(measure(tree.path(), &[pid], 10).unwrap().space.bytes >= 1 << 20);
        for (_, end, thread) in [plain, own] {
            drop(end);
            thread.join().unwrap();
        }
        assert!(measure(tree.path(), &[pid], 10).unwrap().space.bytes < 1 << 20);
    }
}
