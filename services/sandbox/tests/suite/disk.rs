//! The disk: what one workspace may take, and what the machine keeps. The limits are small: no test writes more than some
//! hundred MiB.

use crate::harness::{Machine, Outcome, Session, code, directory, facts, fresh, launcher};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
};
use rpc::v1::{self, ExecEnd, WorkspaceHeader};
use sandbox::{
    isolation::{launch::Mount, root::image::Root},
    sandbox::{Sandbox, SandboxSpec},
};
use std::{path::Path, time::Duration};

/// Every workspace may take 64 MiB in 2,000 files.
const SMALL: [&str; 4] = ["--disk-bytes", "67108864", "--inodes", "2000"];

async fn ended_at_the_limit(session: &Session, command: &str) -> Outcome {
    let outcome = session.run(&format!("{command}; echo survived; exec sleep 600")).await;
    assert_eq!(outcome.exit.end(), ExecEnd::DiskLimit, "{command}: {outcome:?}");
    // Before the reason is told, another walk may have found the space of a deleted file free again.
    let told = ["the limit is 64 MiB in 2000 files", "grew beyond 64 MiB"];
    let message = &outcome.exit.message;
    assert!(told.iter().any(|text| message.contains(text)), "{message}");
    outcome
}

/// Waits until the service knows that the workspace is full. A walk may be skipped while the machine has as much free space as before, and other tests
/// free some at any time; the walk of the watch comes within seconds.
async fn known_to_be_full(session: &Session) {
    let known = async {
        for number in 0_u64.. {
            let id = format!("try-{number}");
            let started = session.start(session.command(&id, "true")).await;
            if started.is_err() {
                return code(started);
            }
            // A session runs only a few commands at once.
            session.attach(&id, 0).await.unwrap();
        }
        String::new()
    };
    let refusal = tokio::time::timeout(std::time::Duration::from_secs(40), known).await;
    assert_eq!(refusal.expect("the workspace is full"), "limit_disk");
}

#[tokio::test]
async fn unlinked_hidden_and_deep_files_count() {
    let (_directory, machine, _session) = fresh(&SMALL).await;
    let unlinked = "perl -e 'for (1..20) { open($f[$_], q(>), qq(f$_)); unlink(qq(f$_)) } \
                    for (1..6) { for (1..20) { syswrite($f[$_], q(x) x 1048576) } } sleep 600'";
    let hidden = "mkdir h; chmod 300 h; head -c 40M /dev/zero > h/a; head -c 40M /dev/zero > h/b";
    let closed =
        "mkdir d; cd d; exec 8>a 9>b; chmod 000 .; head -c 40M /dev/zero >&8; head -c 40M /dev/zero >&9";
    let deep = "perl -e 'for (1..40) { $d = q(x) x 200; mkdir($d); chdir($d) } \
                for (1, 2) { open(F, q(>), $_); syswrite(F, q(x) x 41943040) } sleep 600'";
    let all = [unlinked, hidden, closed, deep];
    let sessions = futures::future::join_all(all.iter().map(|_| machine.empty_session())).await;
    let ends = sessions.iter().zip(all).map(|(session, command)| ended_at_the_limit(session, command));
    futures::future::join_all(ends).await;
    // A deleted file takes no more space than its program lives.
    assert_eq!(sessions[0].sh("echo free").await, "free");
    for full in &sessions[1..] {
        assert_eq!(code(full.start(full.command("next", "true")).await), "limit_disk");
    }
}

/// A program may close a deleted file that it has mapped. System calls by number, made by perl.
#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn deleted_files_that_are_only_mapped_count() {
    let (_directory, _machine, session) = fresh(&SMALL).await;
    let mapped = "perl -e 'open(Z, q(<), q(/dev/zero)); for (1..3) { open(F, q(+>), qq(m$_)); truncate(F, 33554432); \
                  $a = syscall(9, 0, 33554432, 3, 1, fileno(F), 0); unlink(qq(m$_)); close(F); \
                  syscall(0, fileno(Z), $a, 33554432) } sleep 600'";
    ended_at_the_limit(&session, mapped).await;
}

#[tokio::test]
async fn files_without_bytes_are_bounded() {
    let (_directory, _machine, session) = fresh(&SMALL).await;
    ended_at_the_limit(&session, "perl -e 'for (1..50000) { open(F, q(>), qq(f$_)) }'").await;
    assert_eq!(code(session.write("one", b"").await), "limit_disk");
    session.sh("find . -maxdepth 1 -name 'f*' -delete").await;
    session.write("one", b"").await.unwrap();
}

#[tokio::test]
async fn a_full_session_refuses_the_next_command() {
    let (_directory, _machine, session) = fresh(&SMALL).await;
    let before = session.snapshot().await;
    let patch = "diff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n";
    // So fast that no walk may see it before it ends.
    session.run("fallocate -l 40M a; fallocate -l 40M b").await;
    known_to_be_full(&session).await;
    let status = session.start(session.command("next", "echo hi")).await.unwrap_err();
    assert_eq!(code::<()>(Err(status.clone())), "limit_disk");
    for text in ["it takes 81 MiB", "the limit is 64 MiB in 2000 files", "rm"] {
        assert!(status.message().contains(text), "{text}: {status:?}");
    }
    assert_eq!(code(session.write("more", b"x").await), "limit_disk");
    assert_eq!(code(session.restore(&before).await), "limit_disk");
    assert_eq!(code(session.revert(&[(&before, &["a"])]).await), "limit_disk");
    assert_eq!(code(crate::changes::apply(&session, patch).await), "limit_disk");
    let child = session.child();
    assert_eq!(code(child.start(child.command("next", "echo hi")).await), "limit_disk");
    // Reading goes on, and a file less is enough.
    session.read("a").await.unwrap();
    let remove = v1::RemoveFileRequest { fence: session.fence(), path: "a".to_owned(), ..Default::default() };
    session.client.clone().remove_file(remove).await.unwrap();
    assert!(session.start(session.command("next", "echo hi")).await.unwrap(), "the same id may start now");
    assert_eq!(session.attach("next", 0).await.unwrap().output, "hi\n");
}

#[tokio::test]
async fn a_full_workspace_is_cleaned_by_one_command_at_a_time() {
    let (_directory, _machine, session) = fresh(&SMALL).await;
    session.run("fallocate -l 40M a; fallocate -l 40M b").await;
    known_to_be_full(&session).await;
    assert!(session.start(session.command("first", r"find a -exec sleep 600 \;")).await.unwrap());
    assert_eq!(code(session.start(session.command("second", "rm a")).await), "limit_disk");
    session.kill_all().await.unwrap();
    // What begins like a command that removes files and writes some is ended.
    ended_at_the_limit(&session, r"find a -exec cp a c \;").await;
    session.sh("rm -f a c").await;
    assert_eq!(session.sh("echo again").await, "again");
    // A directory that its owner may not read is opened first.
    session.run("mkdir h; fallocate -l 40M h/c; chmod 300 h").await;
    known_to_be_full(&session).await;
    session.sh("chmod 700 h").await;
    session.sh("rm -r h").await;
    assert_eq!(session.sh("echo again").await, "again");
}

/// A small file system at `directory`, which only this test and what it starts see; `None` where the test may not mount.
fn small_disk(directory: &Path) -> Option<()> {
    const NONE: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS).ok()?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).ok()?;
    mount(Some("disk"), directory, Some("tmpfs"), MsFlags::empty(), Some("size=128m,nr_inodes=100000")).ok()
}

#[tokio::test]
async fn the_host_keeps_its_reserve() {
    let directory = directory();
    if small_disk(directory.path()).is_none() {
        return testkit::left_out::skip("it must be able to mount");
    }
    let machine = Machine::start_with(directory.path(), &["--reserve-bytes", "33554432"]).await;
    let (session, other) = (machine.empty_session().await, machine.empty_session().await);
    let held = session.command("held", "exec sleep 600");
    assert!(session.start(held).await.unwrap());
    assert!(machine.health.is_ready());

    let filler = directory.path().join("filler");
    std::fs::write(&filler, vec![0_u8; 90 << 20]).unwrap();
    let status = other.start(other.command("next", "true")).await.unwrap_err();
    assert_eq!(code::<()>(Err(status.clone())), "disk_full");
    assert!(status.message().contains("32 MiB"), "{status:?}");
    assert_eq!(code(other.write("file", b"x").await), "disk_full");
    assert_eq!(code(other.track().await), "disk_full");
    let fresh = machine.session();
    assert_eq!(code(fresh.open(WorkspaceHeader::default(), Vec::new()).await), "disk_full");
    // Takeovers, ends and removals go on, and so do reads.
    let successor = Session { epoch: 2, ..session.clone() };
    assert!(successor.kill_all().await.unwrap());
    assert_eq!(code(session.kill_all().await), "epoch_stale");
    assert_eq!(successor.attach("held", 0).await.unwrap().exit.end(), ExecEnd::Killed);
    other.close().await;
    while machine.health.is_ready() {
        tokio::task::yield_now().await;
    }

    std::fs::remove_file(&filler).unwrap();
    assert_eq!(successor.sh("echo again").await, "again");
    // Programs that run could take the reserve as well. The one that takes most is ended.
    let outcome = successor.run("head -c 84M /dev/zero > large; exec sleep 600").await;
    assert_eq!(outcome.exit.end(), ExecEnd::DiskLimit, "{outcome:?}");
    assert!(outcome.exit.message.contains("the disk of the sandbox machine"), "{}", outcome.exit.message);
    successor.close().await;
    machine.stop().await;
    umount2(directory.path(), MntFlags::MNT_DETACH).unwrap();
}

/// The service does not walk through workspaces whose sandboxes use no processor time: nothing in them can have been written.
#[tokio::test]
async fn a_sandbox_uses_processor_time_only_when_something_runs_in_it() {
    let data = directory();
    let (directory, launcher) = launcher(facts(data.path(), &[]));
    let spec = SandboxSpec {
        tenant: domain::ids::TenantId(uuid::Uuid::now_v7()),
        uid: launcher.facts().user_ids.first,
        root: Root::Host,
        mounts: vec![Mount::write(directory.path().join("tree"), "/workspace")],
        options: domain::session::environment::SandboxOptions::NONE,
        permit: None,
    };
    let sandbox = Sandbox::start(&launcher, &chassis::tasks::Tasks::default(), spec).await.unwrap();
    if sandbox.processor_time_us().is_none() {
        return testkit::left_out::skip("the kernel counts no processor time of sandboxes here");
    }
    // The init ends its start.
    testkit::eventually("an idle sandbox", async || {
        let before = sandbox.processor_time_us();
        tokio::time::sleep(Duration::from_millis(50)).await;
        sandbox.processor_time_us() == before
    })
    .await;
    let before = sandbox.processor_time_us();
    let write = sandbox_wire::v1::Exec {
        command: "fallocate -l 1M file".to_owned(),
        env: vec!["PATH=/usr/bin:/bin".to_owned()],
        timeout_ms: 10_000,
        ..Default::default()
    };
    let mut events = sandbox.exec(write).await.unwrap().events;
    while events.recv().await.is_some() {}
    assert!(sandbox.processor_time_us() > before);
    sandbox.stop().await;
}
