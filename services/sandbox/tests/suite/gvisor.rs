//! Sandboxes in gVisor. Everything but the kernel of their programs is as without it, so these tests look at what depends on that kernel. Where the
//! machine has no gVisor, they are skipped.

use crate::harness::{Machine, Session, code, directory, is_root};
use rpc::v1::{ExecEnd, GetIsolationRequest};
use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// Where `./dev` installs gVisor for tests.
const INSTALLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.flotilla/tools/runsc");

/// The program, if there is one.
fn runsc() -> Option<PathBuf> {
    let found = fs::canonicalize(INSTALLED).ok();
    if found.is_none() {
        testkit::left_out::skip("gVisor is not installed");
    }
    found
}

/// A session in gVisor, with further arguments of its service; `None`: gVisor is missing.
async fn session(arguments: &[&str]) -> Option<(TempDir, Machine, Session)> {
    let (program, directory) = (runsc()?, directory());
    let fixed = ["--runtime", "runsc", "--runsc", program.to_str().unwrap()];
    // Only a control group limits the processes of gVisor.
    let lacking: &[&str] = if is_root() { &[] } else { &["--without", "processes"] };
    let machine = Machine::start_with(directory.path(), &[&fixed, lacking, arguments].concat()).await;
    let session = machine.empty_session().await;
    Some((directory, machine, session))
}

#[tokio::test]
async fn programs_run_in_the_kernel_of_gvisor_and_its_control_is_out_of_reach() {
    let Some((_directory, machine, session)) = session(&[]).await else { return };
    let isolation = machine.client.clone().get_isolation(GetIsolationRequest {}).await.unwrap().into_inner();
    assert_eq!(isolation.backend, "runsc");
    for (name, value) in [("kernel", "of gVisor"), ("seccomp_filters", "2 or more"), ("no_new_privs", "1")] {
        assert_eq!(isolation.properties.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(session.sh("dmesg | head -n 1").await.contains("gVisor"));
    assert_eq!(session.sh("id -u; id -g; stat -c %U . /usr | xargs").await, "1000\n1000\nagent nobody");
    assert_eq!(
        session.sh("ls /sys/runsc /sys/config.json /sys/state 2>&1 | grep -c 'No such file'").await,
        "3"
    );
    for refused in [
        "touch /usr/x",
        "cat /etc/shadow",
        "mount -t tmpfs none /tmp",
        "exec 9<>/proc/1/mem",
        "ls /dev/kvm",
        "cat < /dev/tcp/127.0.0.1/1",
    ] {
        assert_ne!(session.run(refused).await.exit.code, 0, "{refused}");
    }
    // Rights inside such a namespace are those of gVisor's kernel.
    assert_eq!(session.sh("unshare --user --map-root-user id -u").await, "0");
}

#[tokio::test]
async fn commands_share_files_and_the_loopback_of_their_session() {
    let Some((_directory, _machine, session)) = session(&[]).await else { return };
    session.write("sub/a.txt", b"one\n").await.unwrap();
    assert_eq!(
        session.sh("cat sub/a.txt; echo two >> sub/a.txt; mkfifo pipe; ln -s /etc/passwd out").await,
        "one"
    );
    assert_eq!(session.read("sub/a.txt").await.unwrap().data, b"one\ntwo\n");
    session.sh("ln -s /workspace/sub inside").await;
    assert_eq!(session.read("inside/a.txt").await.unwrap().data, b"one\ntwo\n");
    for path in ["out", "/etc/passwd", "sub/../../etc/passwd"] {
        assert_eq!(code(session.read(path).await), "path_outside_workspace", "{path}");
    }
    session.sh("(cd sub && exec python3 -m http.server 8123 --bind 127.0.0.1 > /tmp/log 2>&1) &").await;
    let fetch = "until curl -sf http://127.0.0.1:8123/a.txt; do :; done";
    assert_eq!(session.sh(fetch).await, "one\ntwo");
}

#[tokio::test]
async fn a_command_beyond_its_limits_ends_with_their_name() {
    let limits = ["--memory-bytes", "268435456", "--disk-bytes", "67108864"];
    let Some((_directory, _machine, session)) = session(&limits).await else { return };
    for (command, end) in [
        (
            "python3 -c 'import time; x = bytearray(100 << 20); y = bytearray(150 << 20); time.sleep(60)'",
            ExecEnd::MemoryLimit,
        ),
        ("exit 7", ExecEnd::Exited),
        ("head -c 100M /dev/zero > large", ExecEnd::DiskLimit),
    ] {
        let outcome = session.run(command).await;
        assert_eq!(outcome.exit.end(), end, "{command}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_session_has_nothing_left_when_its_sandbox_ends() {
    let Some((_directory, machine, session)) = session(&[]).await else { return };
    session.start(session.command("theirs", "exec -a visible-marker-of-gvisor sleep 1000")).await.unwrap();
    session.sh("until pgrep -f visible-marker; do :; done").await;
    machine.stop().await;
    let first: u32 = crate::harness::uid_base().parse().unwrap();
    let own = first..first + 100;
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let left = processes.filter(|process| process.metadata().is_ok_and(|it| own.contains(&it.uid())));
    // Those that have ended may wait for the first process of the machine.
    let left = left.filter_map(|process| fs::read_to_string(process.path().join("status")).ok());
    let left: Vec<_> = left.filter(|status| !status.contains("State:\tZ")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A program that prints a version like `runsc`.
fn fake(directory: &Path, version: &str) -> PathBuf {
    let path = directory.join(format!("runsc-{version}"));
    fs::write(&path, format!("#!/bin/sh\necho 'runsc version {version}'\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn a_runtime_that_cannot_be_used_stops_the_start() {
    let directory = directory();
    let old = fake(directory.path(), "0.0~20221219.0");
    // A program that says the right version and is something else.
    let wrong = fake(directory.path(), "release-20260831.0");
    let missing = directory.path().join("missing");
    symlink("nowhere", &missing).unwrap();
    for (program, want) in
        [(&old, "too old"), (&wrong, "did not start"), (&missing, "FLOTILLA_SANDBOX_RUNSC")]
    {
        let arguments = ["--runtime", "runsc", "--runsc", program.to_str().unwrap()];
        let error = Machine::try_start(directory.path(), &arguments).await.err().expect("no start");
        assert!(format!("{error:#}").contains(want), "{want}: {error:#}");
    }
}
