//! Files without a name: deleted ones that a process still has open or maps. They take space, and no walk finds them.

use super::{
    count::{Count, blocks},
    walk::Visitor as _,
};
use crate::isolation::processes::{field, numbers};
use rustix::fs::Stat;
use std::{fs, io, path::Path, thread, time::Duration};

const DELETED: &str = " (deleted)";

/// Pauses of one call, for processes that the service may not look into. A command is closed to the service's user from its fork to its start, some
/// milliseconds at most, if that user is not root; a program that closes itself stays closed.
const PAUSES_MAX: u32 = 8;
/// How long each lasts.
const PAUSE: Duration = Duration::from_millis(5);

/// Counts what the processes `pids` hold. A thread may have files that its process does not have. Blocks.
pub(super) fn add(count: &mut Count, pids: &[i32]) {
    let mut pauses = 0;
    for pid in pids {
        let process = Path::new("/proc").join(pid.to_string());
        while is_closed(count, &process) {
            if pauses == PAUSES_MAX {
                count.skip();
                break;
            }
            thread::sleep(PAUSE);
            pauses += 1;
        }
    }
}

/// Counts what a process holds, and returns whether it holds what the service may not see. A process that has ended holds nothing.
fn is_closed(count: &mut Count, process: &Path) -> bool {
    let result = add_process(count, process);
    result.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) && !is_ours(process)
}

fn add_process(count: &mut Count, process: &Path) -> io::Result<()> {
    for thread in fs::read_dir(process.join("task"))?.flatten() {
        let files = match fs::read_dir(thread.path().join("fd")) {
            // This thread has ended; the others may have open files.
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => continue,
            other => other?,
        };
        for file in files.flatten() {
            if let Ok(stat) = rustix::fs::stat(file.path()) {
                add_file(count, &stat);
            }
        }
    }
    // Names need not be UTF-8.
    let maps = fs::read(process.join("maps"))?;
    let maps = String::from_utf8_lossy(&maps);
    maps.lines().filter(|line| line.ends_with(DELETED)).for_each(|line| add_map(count, process, line));
    Ok(())
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

fn add_file(count: &mut Count, stat: &Stat) {
    // A program or a library of the machine that was replaced has no name either, and another owner.
    if stat.st_nlink == 0 && stat.st_dev == count.device && stat.st_uid == count.owner {
        count.add_nameless(stat.st_ino, blocks(stat));
    }
}

/// Counts the file behind a line of `maps`. Only a privileged service may look at the file itself; otherwise it counts as
/// large as the part that is mapped.
fn add_map(count: &mut Count, process: &Path, line: &str) {
    let Some(map) = Map::parse(line) else { return };
    if let Ok(stat) = rustix::fs::stat(process.join("map_files").join(map.range)) {
        add_file(count, &stat);
    } else if map.device == count.device {
        count.add_mapped(map.inode, map.bytes);
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
    use super::*;

    #[test]
    fn a_line_of_maps_names_the_file() {
        let line = "7f0000000000-7f0000200000 rw-s 00000000 fd:01 1234    /workspace/a b (deleted)";
        let device = rustix::fs::makedev(0xfd, 1);
        let map = Map { range: "7f0000000000-7f0000200000", bytes: 2 << 20, device, inode: 1_234 };
        assert_eq!(Map::parse(line), Some(map));
        assert_eq!(Map::parse("7f00-7f80 rw-p"), None);
    }
}
