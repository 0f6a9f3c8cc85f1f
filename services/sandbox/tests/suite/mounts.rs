//! What is mounted in a sandbox, and what its start leaves on the machine. A service that may mount makes most of the mounts. Bubblewrap makes all of them
//! for any other service.

use crate::harness::{directory, facts, help, help_with, is_root};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};
use sandbox::isolation::{facts::Facts, policy::User};
use std::{collections::BTreeSet, fs};

const WRITABLE: [&str; 12] = [
    "/dev/full",
    "/dev/null",
    "/dev/pts",
    "/dev/random",
    "/dev/shm",
    "/dev/tty",
    "/dev/urandom",
    "/dev/zero",
    "/home/agent",
    "/proc",
    "/tmp",
    "/workspace",
];
/// Where the kernel heeds device files.
const WITH_DEVICES: [&str; 7] =
    ["/dev/full", "/dev/null", "/dev/pts", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero"];
/// Lists the root and the mounts.
const LOOK: &str = "ls -A /; cat /proc/self/mountinfo";

/// A mount, as a program inside reads it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SeenMount {
    inside: String,
    options: Vec<String>,
    /// Whether it shows the copy that a tenant has of a file of the machine.
    is_copy: bool,
}

/// What [`LOOK`] has printed.
#[derive(Debug, PartialEq, Eq)]
struct InsideView {
    names: BTreeSet<String>,
    mounts: BTreeSet<SeenMount>,
}

impl InsideView {
    async fn of(facts: Facts) -> Self {
        let (code, output) = help_with(facts, LOOK, vec![]).await;
        assert_eq!(code, Some(0), "{output}");
        let (mounts, names): (Vec<&str>, Vec<&str>) = output.lines().partition(|line| line.contains(" - "));
        let mounts = mounts.into_iter().map(SeenMount::from_line);
        // Bubblewrap hides more of /proc if it runs as root.
        let mounts = mounts.filter(|seen| !seen.inside.starts_with("/proc/")).collect();
        Self { names: names.into_iter().map(str::to_owned).collect(), mounts }
    }

    fn with(&self, option: &str) -> Vec<&str> {
        let mounts = self.mounts.iter().filter(|seen| seen.options.iter().any(|one| one == option));
        mounts.map(|seen| seen.inside.as_str()).collect()
    }

    fn without(&self, option: &str) -> Vec<&str> {
        let mounts = self.mounts.iter().filter(|seen| seen.options.iter().all(|one| one != option));
        mounts.map(|seen| seen.inside.as_str()).collect()
    }
}

impl SeenMount {
    /// Reads a line such as `36 35 98:0 /source /inside ro,nosuid - ext4 /dev/vda rw`.
    fn from_line(line: &str) -> Self {
        let fields: Vec<&str> = line.split(' ').collect();
        Self {
            inside: fields[4].to_owned(),
            options: fields[5].split(',').map(str::to_owned).collect(),
            is_copy: fields[3].contains("/copies/"),
        }
    }
}

fn check(inside: &InsideView) {
    assert_eq!(inside.with("rw"), WRITABLE, "{inside:?}");
    assert_eq!(inside.without("nosuid"), [""; 0], "{inside:?}");
    assert_eq!(inside.without("nodev"), WITH_DEVICES, "{inside:?}");
    let bash = fs::canonicalize("/bin/bash").unwrap().display().to_string();
    assert!(inside.mounts.iter().any(|seen| seen.is_copy && seen.inside == bash), "{inside:?}");
}

#[tokio::test]
async fn only_named_mounts_can_be_written() {
    let directory = directory();
    let facts = facts(directory.path(), &[]);
    let inside = InsideView::of(facts.clone()).await;
    check(&inside);
    if !facts.can_stage {
        return testkit::left_out::leave_unchecked("mounts of the service need CAP_SYS_ADMIN");
    }
    let by_bubblewrap = InsideView::of(Facts { can_stage: false, user: User::Service, ..facts }).await;
    check(&by_bubblewrap);
    assert_eq!(inside, by_bubblewrap);
}

#[test]
fn a_start_mounts_nothing_on_the_machine() {
    if !is_root() {
        return testkit::left_out::skip("only root starts sandboxes with mounts of its own");
    }
    // A thread of its own, because it stays in its namespace.
    std::thread::spawn(start_with_shared_mounts).join().unwrap();
}

/// Starts a sandbox where all mounts pass on what is mounted on them, as those of most machines do.
fn start_with_shared_mounts() {
    const NONE: Option<&str> = None;
    if unshare(CloneFlags::CLONE_NEWNS).is_err() {
        return testkit::left_out::leave_unchecked("mounts of the service need CAP_SYS_ADMIN");
    }
    for propagation in [MsFlags::MS_PRIVATE, MsFlags::MS_SHARED] {
        mount(NONE, "/", NONE, MsFlags::MS_REC | propagation, NONE).unwrap();
    }
    let mounts = || fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    let before = mounts();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcome = runtime.block_on(help("echo started", &[], vec![]));
    assert_eq!(outcome, (Some(0), "started\n".to_owned()));
    assert_eq!(mounts(), before);
}
