//! Memory and processes on a machine without control groups: the service is told to make none.

use crate::harness::{Session, fresh, help};
use rpc::v1::ExecEnd;

/// Every sandbox may use 128 MiB.
const ALONE: [&str; 6] =
    ["--control-groups", "off", "--without", "memory,processes", "--memory-bytes", "134217728"];

async fn ended_at_the_limit(session: &Session, command: &str) {
    let outcome = session.run(&format!("{command}; echo survived; exec sleep 600")).await;
    assert_eq!(outcome.exit.end(), ExecEnd::MemoryLimit, "{command}: {outcome:?}");
    assert!(outcome.exit.message.contains("128 MiB"), "{}", outcome.exit.message);
    assert_eq!(session.sh("echo alive").await, "alive", "{command}");
}

/// System calls by number, made by perl.
#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn memory_of_every_kind_counts() {
    let (_directory, machine, _session) = fresh(&ALONE).await;
    let heap = "tail -c 1G /dev/zero | tail -n 1 > /dev/null; exit ${PIPESTATUS[1]}";
    let memfd = "perl -e '$n = q(x); open(F, q(>&=) . syscall(319, $n, 0)); syswrite(F, q(x) x 1048576) for 1..200; sleep 600'";
    let hidden = memfd.replace("-e '", "-e 'syscall(157, 4, 0); ");
    let anonymous = "perl -e 'open(Z, q(<), q(/dev/zero)); $a = syscall(9, 0, 209715200, 3, 33, -1, 0); \
                     syscall(0, fileno(Z), $a, 209715200); sleep 600'";
    let files = "head -c 31M /dev/zero > /tmp/a; head -c 31M /dev/zero > /home/agent/a; head -c 15M /dev/zero > /dev/shm/a; \
                 perl -e '$x .= q(x) x 1048576 for 1..60; sleep 600'";
    // The first thread ends by a system call of its own, and the process goes on.
    let thread = "perl -Mthreads -e 'threads->create(sub { $x .= q(x) x 1048576 for 1..200; sleep 600 }); \
                  syscall(60, 0)'";
    let all = [heap, memfd, hidden.as_str(), anonymous, files, thread];
    let ends = all.map(|command| {
        let machine = &machine;
        async move { ended_at_the_limit(&machine.empty_session().await, command).await }
    });
    futures::future::join_all(ends).await;
}

#[tokio::test]
async fn what_several_processes_share_counts_once() {
    let (_directory, _machine, session) = fresh(&ALONE).await;
    // Five processes with the same 60 MiB.
    let shared =
        "perl -e '$| = 1; $x .= q(x) x 1048576 for 1..60; for (1..4) { fork() or last } print 1; sleep 1'";
    let outcome = session.run(shared).await;
    assert_eq!((outcome.exit.end(), outcome.output.as_str()), (ExecEnd::Exited, "11111"), "{outcome:?}");
}

#[tokio::test]
async fn a_process_that_ends_while_it_is_measured_uses_nothing() {
    let (_directory, _machine, session) = fresh(&ALONE).await;
    // Always nine processes with the same 80 MiB, of which some end in nearly every measurement.
    let ending = "perl -e '$x .= q(x) x 1048576 for 1..80; $until = time + 4; \
                  while (time < $until) { if (!fork()) { select(undef, undef, undef, 0.05); exit } wait() if ++$n > 8 } \
                  1 while wait() > 0'; echo $?";
    let outcome = session.run(ending).await;
    assert_eq!((outcome.exit.end(), outcome.output.as_str()), (ExecEnd::Exited, "0\n"), "{outcome:?}");
}

/// Only root may look at the files of a process that has ended.
#[tokio::test]
async fn a_process_that_nobody_waits_for_uses_nothing() {
    let (_directory, _machine, session) = fresh(&ALONE).await;
    // Longer than two measurements.
    let outcome = session.run("bash -c 'true & exec sleep 1'; echo survived").await;
    assert_eq!((outcome.exit.end(), outcome.output.as_str()), (ExecEnd::Exited, "survived\n"), "{outcome:?}");
}

#[tokio::test]
async fn a_helper_has_the_limits_of_a_sandbox() {
    assert_eq!(
        help("ulimit -u; ulimit -u 9999 2>/dev/null || echo refused; nice", &ALONE, vec![]).await,
        (Some(0), "512\nrefused\n10\n".to_owned())
    );
    let (code, output) = help("tail -c 1G /dev/zero | tail -n 1; echo survived", &ALONE, vec![]).await;
    assert_eq!((code, output.as_str()), (Some(137), ""));
}
