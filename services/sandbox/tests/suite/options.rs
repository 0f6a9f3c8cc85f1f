//! What the settings may also allow the programs of a sandbox: what it gives, and what stays closed.

use crate::harness::{Machine, Session, code, directory, is_root};
use rpc::v1::{SandboxOptions, WorkspaceHeader};
use tempfile::TempDir;

const PTRACE: SandboxOptions = SandboxOptions { allow_ptrace: true, allow_user_namespaces: false };
const NAMESPACES: SandboxOptions = SandboxOptions { allow_ptrace: false, allow_user_namespaces: true };

/// A program that leaks, with the sanitizer that finds it.
const LEAK: &str = "echo 'int main() { volatile char *p = __builtin_malloc(9); p = 0; }' > l.c; gcc -fsanitize=leak -o l l.c; ./l 2>&1";
/// A program that traces the process whose number it gets.
const ATTACH: &str = "printf '#include <stdio.h>\\n#include <stdlib.h>\\n#include <sys/ptrace.h>\\nint main(int n, char **v) { \
                      if (ptrace(PTRACE_ATTACH, atoi(v[1]), 0, 0)) { perror(\"attach\"); return 1; } puts(\"attached\"); }' > a.c; gcc -o a a.c";

/// Why a test of user namespaces is skipped.
const NO_GROUPS: &str = "user namespaces need control groups that limit memory";

/// A machine that offers everything, and a session with these options.
async fn machine(options: SandboxOptions) -> (TempDir, Machine, Session) {
    let directory = directory();
    let machine = Machine::start_with(directory.path(), &["--options", "ptrace,user-namespaces"]).await;
    let session = machine.session();
    session
        .open(WorkspaceHeader { options: Some(options), ..WorkspaceHeader::default() }, vec![])
        .await
        .unwrap();
    (directory, machine, session)
}

#[tokio::test]
async fn programs_trace_each_other_only_where_the_settings_allow_it() {
    let (_directory, machine, session) = machine(PTRACE).await;
    let outcome = machine.empty_session().await.run(LEAK).await;
    assert!(outcome.output.contains("LeakSanitizer has encountered a fatal error"), "{outcome:?}");
    let outcome = session.run(LEAK).await;
    assert!(outcome.output.contains("detected memory leaks"), "{outcome:?}");
    let own = session.sh(&format!("{ATTACH}; sleep 1000 & ./a $!; kill -KILL $!")).await;
    assert_eq!(own, "attached");
    // The init stays closed, with its memory and its descriptors, and no namespace can be made.
    let init = session.run("./a 1 2>&1; cat /proc/1/environ 2>&1; : < /proc/1/mem; ls /proc/1/fd/ 2>&1; unshare -U true 2>&1").await;
    assert!(init.output.starts_with("attach: Operation not permitted\n"), "{init:?}");
    assert_eq!(init.output.matches("ermission denied").count(), 3, "{init:?}");
    assert!(init.output.ends_with("unshare: unshare failed: Operation not permitted\n"), "{init:?}");
}

#[tokio::test]
async fn programs_make_user_namespaces_only_where_the_settings_allow_it() {
    if !is_root() {
        return testkit::left_out::skip(NO_GROUPS);
    }
    let inside = "unshare -Urmpf bash -c 'id -u; mount -t tmpfs none /tmp && touch /tmp/x && echo $$'";
    let (_directory, machine, session) = machine(NAMESPACES).await;
    let closed = machine.empty_session().await.run(&format!("{inside} 2>&1")).await;
    assert!(closed.output.contains("Operation not permitted"), "{closed:?}");
    assert_eq!(session.sh(inside).await, "0\n1");
    // Root in the namespace has no rights outside: it changes no mount of the sandbox, and reaches neither the init nor the machine.
    for (attack, refusal) in [
        ("mount -o remount,rw,bind / && touch /x", "ermission denied"),
        ("umount /workspace", "not mounted"),
        ("umount -l /proc", "not mounted"),
        ("touch /usr/x", "Read-only file system"),
        ("mknod sda b 8 0", "Operation not permitted"),
        ("cat /proc/1/environ", "Permission denied"),
        ("cat /proc/1/root/etc/hostname", "Permission denied"),
        ("echo '|/workspace/x' > /proc/sys/kernel/core_pattern", "Permission denied"),
        ("mount -t cgroup none /tmp", "denied"),
        // It would show what the sandbox hides in /proc.
        ("mount -t proc proc /tmp", "ermission denied"),
        ("chroot /proc/1/root true", "ermission denied"),
        ("date -s 2020-01-01", "Operation not permitted"),
    ] {
        let outcome = session.run(&format!("unshare -Urm bash -c {:?} 2>&1", attack)).await;
        assert!(outcome.output.contains(refusal), "{attack}: {outcome:?}");
    }
    assert_eq!(session.sh("touch /workspace/kept; ls /workspace").await, "kept");
    assert!(session.run(LEAK).await.output.contains("fatal error"), "it allows no tracing");
}

#[tokio::test]
async fn memory_of_a_namespace_counts_as_memory_of_the_sandbox() {
    if !is_root() {
        return testkit::left_out::skip(NO_GROUPS);
    }
    let directory = directory();
    let small = ["--options", "user-namespaces", "--memory-bytes", "134217728"];
    let machine = Machine::start_with(directory.path(), &small).await;
    let session = machine.session();
    session
        .open(WorkspaceHeader { options: Some(NAMESPACES), ..WorkspaceHeader::default() }, vec![])
        .await
        .unwrap();
    let fill = "unshare -Urm bash -c 'mount -t tmpfs -o size=100% none /tmp && head -c 1G /dev/zero > /tmp/x && echo filled'";
    let outcome = session.run(fill).await;
    assert!(!outcome.output.contains("filled"), "{outcome:?}");
}

#[tokio::test]
async fn a_machine_refuses_options_that_its_operator_does_not_offer() {
    let directory = directory();
    for (offer, options, refused) in [
        (&[][..], NAMESPACES, true),
        (&[], PTRACE, false),
        (&["--options", "none"], PTRACE, true),
        (&["--options", "user-namespaces"], NAMESPACES, !is_root()),
    ] {
        let machine = Machine::start_with(directory.path(), offer).await;
        let session = machine.session();
        let header = WorkspaceHeader { options: Some(options), ..WorkspaceHeader::default() };
        let opened = session.open(header, vec![]).await;
        if refused {
            assert_eq!(code(opened), "options_unsupported", "{offer:?}");
        } else {
            opened.unwrap();
        }
        machine.stop().await;
    }
}
