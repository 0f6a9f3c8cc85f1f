//! Commands: output, exits, limits, restarts and takeovers.

use crate::harness::{Machine, Session, code, directory, fresh};
use rpc::v1::{ExecEnd, GetOpeningRequest, GetWorkspaceRequest, KillExecRequest, StartExecRequest};
use std::time::{Duration, Instant};

#[tokio::test]
async fn an_exec_reports_its_output_and_its_exit() {
    let (_directory, _machine, session) = fresh(&[]).await;
    let outcome = session.run("echo out; echo err >&2; pwd; id -u; exit 3").await;
    assert_eq!(outcome.output, "out\nerr\n/workspace\n1000\n");
    assert_eq!((outcome.exit.end(), outcome.exit.code, outcome.exit.output_bytes), (ExecEnd::Exited, 3, 24));
    let killed = session.run("kill -SEGV $$").await;
    assert_eq!((killed.exit.end(), killed.exit.signal), (ExecEnd::Exited, 11));
}

#[tokio::test]
async fn a_command_gets_the_requested_environment_and_directory() {
    let (_directory, _machine, session) = fresh(&[]).await;
    session.sh("mkdir -p sub/dir").await;
    let request = StartExecRequest {
        directory: "/workspace/sub/dir".to_owned(),
        env: [("GREETING".to_owned(), "ahoj svět".to_owned())].into(),
        ..session.command("e", "pwd; env | grep -v -e ^_= -e ^PWD= -e ^SHLVL= -e ^OLDPWD= | sort")
    };
    session.start(request).await.unwrap();
    let lines = session.attach("e", 0).await.unwrap().output;
    let expected = "/workspace/sub/dir\nEMAIL=agent@flotilla.invalid\nGREETING=ahoj svět\nHOME=/home/agent\nLANG=C.UTF-8\n\
                    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nTERM=dumb\n";
    assert_eq!(lines, expected);
    for (directory, expected) in [("/etc", "path_outside_workspace"), ("nowhere", "file_not_found")] {
        let request = StartExecRequest { directory: directory.to_owned(), ..session.command("f", "true") };
        assert_eq!(code(session.start(request).await), expected);
    }
}

#[tokio::test]
async fn an_exec_id_starts_once() {
    let (_directory, machine, session) = fresh(&[]).await;
    let command = "echo x >> count; cat count";
    let (first, second) = tokio::join!(
        session.start(session.command("once", command)),
        session.start(session.command("once", command))
    );
    assert_eq!([first.unwrap(), second.unwrap()].iter().filter(|started| **started).count(), 1);
    assert_eq!(session.attach("once", 0).await.unwrap().output, "x\n");
    assert!(!session.start(session.command("once", command)).await.unwrap());
    // The same id in another session is another exec.
    let other = machine.empty_session().await;
    assert!(other.start(other.command("once", command)).await.unwrap());
    assert_eq!(code(other.attach("never", 0).await), "exec_unknown");
}

/// Entries do not wait for the disk, so a crash of the machine may remove them.
#[tokio::test]
async fn a_command_without_an_entry_counts_as_lost_after_a_restart_of_the_machine() {
    let (directory, _machine, session) = fresh(&[]).await;
    let repeated =
        |id: &str| StartExecRequest { is_repeated: true, ..session.command(id, "echo x >> count") };
    assert!(session.start(repeated("same boot")).await.unwrap());
    session.attach("same boot", 0).await.unwrap();
    assert_eq!(code(session.attach("never", 0).await), "exec_unknown");
    let path = session.place(&directory, "ws").join("meta.json");
    let mut meta: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert!(meta["boot"].as_str().is_some_and(|boot| !boot.is_empty()), "{meta}");
    meta["boot"] = "another".into();
    std::fs::write(&path, meta.to_string()).unwrap();
    assert!(!session.start(repeated("asked twice")).await.unwrap());
    for lost in ["asked twice", "begun by another worker"] {
        let outcome = session.attach(lost, 0).await.unwrap();
        assert_eq!((outcome.exit.end(), outcome.output.as_str()), (ExecEnd::Lost, ""), "{lost}");
        assert!(outcome.exit.message.contains("the machine was restarted"), "{}", outcome.exit.message);
    }
    // What has an entry has an outcome, and what is asked for the first time runs.
    assert_eq!(session.attach("same boot", 0).await.unwrap().exit.end(), ExecEnd::Exited);
    assert_eq!(session.sh("echo x >> count; cat count").await, "x\nx");
}

#[tokio::test]
async fn output_is_read_from_any_offset_while_it_runs_and_after() {
    let (_directory, _machine, session) = fresh(&[]).await;
    session
        .start(session.command("e", "echo first; until [ -e go ]; do sleep 0.02; done; echo second"))
        .await
        .unwrap();
    let reader = tokio::spawn({
        let session = session.clone();
        async move { session.attach("e", 2).await.unwrap() }
    });
    session.write("go", b"").await.unwrap();
    assert_eq!(reader.await.unwrap().output, "rst\nsecond\n");
    let after = session.attach("e", 6).await.unwrap();
    assert_eq!(after.output, "second\n");
    assert_eq!(session.attach("e", 999).await.unwrap().output, "");
    // The model reads the whole output by its path.
    assert_eq!(session.read(&after.exit.spill_path).await.unwrap().data, b"first\nsecond\n");
    assert_eq!(session.sh(&format!("cat {}", after.exit.spill_path)).await, "first\nsecond");
}

/// Starts a process that outlives any shell, locks a file, and reports that it has the lock.
const ESCAPEE: &str = "(setsid bash -c '(setsid flock held bash -c \"touch ready; trap : TERM HUP; \
                       while :; do sleep 0.05; done\") & disown' &) ; until [ -e ready ]; do sleep 0.02; done";

#[tokio::test]
async fn a_timeout_ends_the_whole_tree() {
    let (_directory, _machine, session) = fresh(&[]).await;
    let request = StartExecRequest {
        timeout_ms: 700,
        ..session.command("e", &format!("{ESCAPEE}; trap '' TERM; sleep 100"))
    };
    session.start(request).await.unwrap();
    let outcome = session.attach("e", 0).await.unwrap();
    assert_eq!(outcome.exit.end(), ExecEnd::Timeout, "{outcome:?}");
    assert!(outcome.exit.message.contains("stopped after 700 ms"), "{}", outcome.exit.message);
    // The holder of the lock is gone, and so is everything else.
    assert_eq!(session.sh("flock --nonblock held echo free; pgrep -c sleep || true").await, "free\n0");
}

#[tokio::test]
async fn a_timeout_ends_nothing_but_its_command() {
    let (_directory, _machine, session) = fresh(&[]).await;
    // A server that another command started holds the output of the command open. It opens fd 2: while the command's shell writes
    // its pid, its fd 1 is the FIFO.
    let server =
        "(read pid < pid; exec 3> /proc/$pid/fd/2; echo held > holds; sleep 1000) > /dev/null 2>&1 &";
    session.sh(&format!("mkfifo pid holds; {server} echo $! > server")).await;
    let request = StartExecRequest {
        timeout_ms: 8_000,
        ..session.command(
            "e",
            "echo keep > /tmp/keep; echo $$ > pid; read output < holds; echo $output > output; sleep 100",
        )
    };
    session.start(request).await.unwrap();
    let outcome = session.attach("e", 0).await.unwrap();
    assert_eq!(outcome.exit.end(), ExecEnd::Timeout, "{outcome:?}");
    assert!(outcome.exit.duration_ms < 16_000, "the command ends although its output is open: {outcome:?}");
    assert_eq!(session.sh("cat output; kill -0 $(cat server) && cat /tmp/keep").await, "held\nkeep");
}

#[tokio::test]
async fn kill_ends_the_whole_tree() {
    let (_directory, _machine, session) = fresh(&[]).await;
    session.start(session.command("e", &format!("{ESCAPEE}; echo up; sleep 100"))).await.unwrap();
    let mut request = KillExecRequest { fence: session.fence(), exec_id: "e".to_owned() };
    session.sh("until [ -e ready ]; do sleep 0.02; done").await;
    assert!(session.client.clone().kill_exec(request.clone()).await.unwrap().into_inner().was_running);
    assert_eq!(session.attach("e", 0).await.unwrap().exit.end(), ExecEnd::Killed);
    assert_eq!(session.sh("flock --nonblock held echo free").await, "free");
    assert!(!session.client.clone().kill_exec(request.clone()).await.unwrap().into_inner().was_running);
    request.exec_id = "never".to_owned();
    assert!(!session.client.clone().kill_exec(request).await.unwrap().into_inner().was_running);
}

#[tokio::test]
async fn a_background_process_serves_later_commands() {
    let (_directory, _machine, session) = fresh(&[]).await;
    let started = Instant::now();
    session.sh("sleep 1000 & echo $! > pid").await;
    assert!(started.elapsed() < Duration::from_secs(5), "the command must not wait for what it left behind");
    assert_eq!(session.sh("kill -0 $(cat pid) && kill $(cat pid) && echo ended").await, "ended");
}

#[tokio::test]
async fn a_command_that_kills_its_supervisor_takes_its_children_along() {
    let (_directory, _machine, session) = fresh(&[]).await;
    let outcome = session.run("(sleep 1000 &); kill -KILL $PPID; sleep 1000").await;
    assert_eq!((outcome.exit.end(), outcome.exit.signal), (ExecEnd::Exited, 9));
    session.sh("until ! pgrep sleep; do :; done").await;
    let request = StartExecRequest { timeout_ms: 1_000, ..session.command("all", "kill -KILL -1") };
    session.start(request).await.unwrap();
    let outcome = session.attach("all", 0).await.unwrap();
    assert_eq!(outcome.exit.signal, 9);
    assert_eq!(session.sh("echo alive").await, "alive");
}

#[tokio::test]
async fn a_fork_bomb_ends_and_the_session_goes_on() {
    let (_directory, _machine, session) = fresh(&["--processes", "64"]).await;
    let request = StartExecRequest { timeout_ms: 1_500, ..session.command("bomb", "b() { b | b & b; }; b") };
    session.start(request).await.unwrap();
    let outcome = session.attach("bomb", 0).await.unwrap();
    assert!(outcome.exit.output_bytes < 64 << 20);
    assert_ne!((outcome.exit.end(), outcome.exit.code), (ExecEnd::Exited, 0), "{:?}", outcome.exit);
    // File operations need no process; a command may have to wait until the kernel has cleaned one up.
    session.write("after", b"fine").await.unwrap();
    let mut tries = 0;
    while session.run("[ -e after ]").await.exit.code != 0 {
        tries += 1;
        assert!(tries < 100, "the bomb was not cleaned up");
    }
}

#[tokio::test]
async fn endless_output_is_bounded_and_counted() {
    let (_directory, _machine, session) = fresh(&[]).await;
    let request =
        StartExecRequest { timeout_ms: 600, output_bytes_max: 100_000, ..session.command("yes", "yes") };
    session.start(request).await.unwrap();
    let outcome = session.attach("yes", 0).await.unwrap();
    assert_eq!(
        (outcome.exit.end(), outcome.exit.output_bytes, outcome.output.len()),
        (ExecEnd::Timeout, 100_000, 100_000)
    );
    assert!(outcome.exit.dropped_bytes > 0);
}

#[tokio::test]
async fn memory_beyond_the_limit_is_named() {
    let (_directory, _machine, session) = fresh(&["--memory-bytes", "134217728"]).await;
    let outcome = session.run("tail -c 1G /dev/zero | tail -n 1 > /dev/null; exit ${PIPESTATUS[1]}").await;
    assert_eq!(outcome.exit.end(), ExecEnd::MemoryLimit, "{outcome:?}");
    assert!(outcome.exit.message.contains("128 MiB"), "{}", outcome.exit.message);
    assert_eq!(session.sh("echo alive").await, "alive");
}

#[tokio::test]
async fn a_file_beyond_the_disk_limit_is_named() {
    let (_directory, _machine, session) = fresh(&["--disk-bytes", "16777216"]).await;
    let outcome = session.run("head -c 20M /dev/zero > large").await;
    assert_eq!(outcome.exit.end(), ExecEnd::DiskLimit, "{outcome:?}");
}

#[tokio::test]
async fn a_workspace_beyond_the_disk_limit_is_named_and_can_be_cleaned() {
    let (_directory, _machine, session) = fresh(&["--disk-bytes", "16777216"]).await;
    let outcome = session.run("for i in $(seq 1000); do head -c 1M /dev/zero > f$i; sleep 0.05; done").await;
    assert_eq!(outcome.exit.end(), ExecEnd::DiskLimit, "{outcome:?}");
    assert_eq!(code(session.write("more", b"x").await), "limit_disk");
    session.sh("rm -f f*").await;
    session.write("more", b"x").await.unwrap();
}

#[tokio::test]
async fn a_stale_epoch_changes_nothing_and_a_takeover_keeps_execs() {
    let directory = directory();
    let machine = Machine::start(directory.path()).await;
    let old = machine.empty_session().await;
    old.start(old.command("e", "until [ -e go ]; do sleep 0.02; done; echo done")).await.unwrap();
    let new = Session { epoch: 7, ..old.clone() };
    new.write("go", b"").await.unwrap();
    assert_eq!(new.attach("e", 0).await.unwrap().output, "done\n");
    assert_eq!(code(old.write("late", b"").await), "epoch_stale");
    assert_eq!(code(old.start(old.command("late", "true")).await), "epoch_stale");
    let kill = KillExecRequest { fence: old.fence(), exec_id: "e".to_owned() };
    assert_eq!(code(old.client.clone().kill_exec(kill).await), "epoch_stale");
    machine.stop().await;

    let machine = Machine::start(directory.path()).await;
    let old = Session { client: machine.client.clone(), ..old };
    assert_eq!(code(old.write("late", b"").await), "epoch_stale");
    assert_eq!(code(Session { epoch: 7, ..old }.read("late").await), "file_not_found");
}

#[tokio::test]
async fn a_restart_loses_running_execs_and_keeps_finished_ones() {
    let directory = directory();
    let machine = Machine::start(directory.path()).await;
    let session = machine.empty_session().await;
    session.start(session.command("done", "echo kept > file; echo kept")).await.unwrap();
    session.attach("done", 0).await.unwrap();
    session.start(session.command("cut", "echo begun; touch begun; sleep 1000")).await.unwrap();
    session.sh("until [ -e begun ]; do sleep 0.02; done").await;
    machine.stop().await;
    // This is the state after a power cut, before the service could write the outcome.
    let execs = directory.path().join("data/execs").join(session.tenant.replace('-', "")).join(&session.id);
    for exec in std::fs::read_dir(execs).unwrap() {
        let exec = exec.unwrap().path();
        if std::fs::read_to_string(exec.join("spec.json")).unwrap().contains("\"cut\"") {
            std::fs::remove_file(exec.join("state.json")).ok();
        }
    }

    let machine = Machine::start(directory.path()).await;
    let session = Session { client: machine.client.clone(), ..session };
    let cut = session.attach("cut", 0).await.unwrap();
    assert_eq!((cut.exit.end(), cut.output.as_str()), (ExecEnd::Lost, "begun\n"));
    assert!(!session.start(session.command("cut", "echo again")).await.unwrap());
    assert_eq!(session.attach("done", 0).await.unwrap().output, "kept\n");
    assert_eq!(session.sh("cat file").await, "kept");
}

#[tokio::test]
async fn too_many_commands_are_refused() {
    let (_directory, _machine, session) = fresh(&[]).await;
    for number in 0..domain::limits::EXECS_RUNNING_MAX {
        assert!(session.start(session.command(&number.to_string(), "sleep 1000")).await.unwrap());
    }
    assert_eq!(code(session.start(session.command("more", "true")).await), "execs_too_many");
}

#[tokio::test]
async fn a_successor_that_finds_no_exec_shuts_out_its_late_start() {
    let (_directory, _machine, old) = fresh(&[]).await;
    let new = Session { epoch: 2, ..old.clone() };
    assert_eq!(code(new.attach("e", 0).await), "exec_unknown");
    assert_eq!(code(old.start(old.command("e", "touch late")).await), "epoch_stale");
    assert_eq!(code(new.attach("e", 0).await), "exec_unknown");
}

#[tokio::test]
async fn a_caller_that_was_taken_over_may_not_even_read() {
    let (_directory, _machine, old) = fresh(&[]).await;
    old.start(old.command("e", "echo secret > file; cat file")).await.unwrap();
    assert_eq!(old.attach("e", 0).await.unwrap().output, "secret\n");
    let new = Session { epoch: 2, ..old.clone() };
    assert_eq!(new.attach("e", 0).await.unwrap().output, "secret\n");
    assert_eq!(code(old.attach("e", 0).await), "epoch_stale");
    assert_eq!(code(old.read("file").await), "epoch_stale");
    assert_eq!(code(old.lines("file").await), "epoch_stale");
    let request = GetWorkspaceRequest { fence: old.fence() };
    assert_eq!(code(old.client.clone().get_workspace(request).await), "epoch_stale");
    let request = GetOpeningRequest { fence: old.fence() };
    assert_eq!(code(old.client.clone().get_opening(request).await), "epoch_stale");
}

/// Attempts of a start against a takeover; their steps interleave differently each time.
const RACES: u64 = 120;

#[tokio::test]
async fn a_start_is_seen_by_the_successor_or_never_happens() {
    let (_directory, _machine, session) = fresh(&[]).await;
    for race in 1..=RACES {
        let old = Session { epoch: 2 * race, ..session.clone() };
        let new = Session { epoch: 2 * race + 1, ..session.clone() };
        let (id, command) = (format!("race {race}"), format!("touch effect-{race}"));
        let takeover = async {
            for _ in 0..(race % 12) {
                tokio::task::yield_now().await;
            }
            new.attach(&id, 0).await
        };
        let both = async { tokio::join!(old.start(old.command(&id, &command)), takeover) };
        let (started, attachment) =
            tokio::time::timeout(Duration::from_secs(20), both).await.expect("nobody hangs");
        let has_effect = new.sh(&format!("test -e effect-{race} && echo yes || true")).await == "yes";
        match attachment {
            Ok(outcome) => {
                assert_eq!(outcome.exit.end(), ExecEnd::Exited, "race {race}: {outcome:?}");
                assert!(started.unwrap() && has_effect, "race {race}");
            }
            refused => {
                assert_eq!(code(refused), "exec_unknown", "race {race}");
                assert!(!has_effect, "race {race}: an effect came after it was certain that there is none");
                assert_eq!(code(started), "epoch_stale", "race {race}");
            }
        }
    }
}

#[tokio::test]
async fn a_kill_meets_a_start_before_or_after_and_never_in_between() {
    let (_directory, _machine, session) = fresh(&[]).await;
    for race in 0..RACES {
        let (id, command) = (format!("race {race}"), "sleep 1000");
        let kill = async {
            for _ in 0..(race % 12) {
                tokio::task::yield_now().await;
            }
            let request = KillExecRequest { fence: session.fence(), exec_id: id.clone() };
            session.client.clone().kill_exec(request).await.unwrap().into_inner().was_running
        };
        let both = async { tokio::join!(session.start(session.command(&id, command)), kill) };
        let (started, was_running) =
            tokio::time::timeout(Duration::from_secs(10), both).await.expect("nobody hangs");
        if was_running {
            assert_eq!(session.attach(&id, 0).await.unwrap().exit.end(), ExecEnd::Killed, "race {race}");
        } else if started.is_ok() {
            // The kill came first, so it did not end the command.
            let request = KillExecRequest { fence: session.fence(), exec_id: id };
            assert!(session.client.clone().kill_exec(request).await.unwrap().into_inner().was_running);
        }
    }
}
