//! Real servers in temporary directories.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::{error::Error, options::Options, plan, process, shared, stack::start};
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

const TEST: Options = Options { fsync: false, postgres_connections: 20 };

fn lives(pid: u32) -> bool {
    // A zombie has an empty command line.
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait)
        .await
        .unwrap_or_else(|_| panic!("waited 30 s until {what}"));
}

#[tokio::test]
async fn a_stack_starts_stops_and_starts_again() {
    let dir = tempfile::tempdir().unwrap();
    let stack = start(dir.path(), TEST).await.unwrap();
    let pids = stack.pids();
    assert_eq!(pids.keys().copied().collect::<Vec<_>>(), ["nats", "postgres", "redis"]);
    assert_eq!(fs::metadata(dir.path().join("local.json")).unwrap().permissions().mode() & 0o777, 0o600);

    for pid in pids.values() {
        let pid = nix::unistd::Pid::from_raw((*pid).try_into().unwrap());
        assert_eq!(
            nix::unistd::getsid(Some(pid)),
            Ok(pid),
            "a session, and with it a part of the processors"
        );
    }

    let second = start(dir.path(), TEST).await.unwrap_err();
    let Error::Busy { pid, .. } = second else { panic!("{second}") };
    assert_eq!(pid, std::process::id().to_string());

    let password = stack.postgres_url.clone();
    stack.stop().await.unwrap();
    assert!(pids.values().all(|pid| !lives(*pid)));
    let stack = start(dir.path(), TEST).await.unwrap();
    assert_eq!(
        stack.postgres_url.split('@').next(),
        password.split('@').next(),
        "the instance did not change"
    );
    stack.stop().await.unwrap();
}

/// The starts of servers that all fail with this error.
async fn count_starts(error: impl Fn() -> Error) -> u32 {
    let mut starts = 0;
    let outcome = plan::try_ports(|| {
        starts += 1;
        std::future::ready(Err::<(), Error>(error()))
    });
    outcome.await.unwrap_err();
    starts
}

#[tokio::test]
async fn only_a_server_that_ended_is_started_with_other_ports() {
    let role = "redis";
    let ended = || Error::Ended { role, how: "exit status: 1".to_owned(), log_tail: String::new() };
    assert_eq!(count_starts(ended).await, 3);
    let late = || Error::Late { role, within: Duration::ZERO, log_tail: String::new() };
    assert_eq!(count_starts(late).await, 1);
}

#[tokio::test]
async fn a_server_that_dies_is_reported_and_restarted() {
    let dir = tempfile::tempdir().unwrap();
    let mut stack = start(dir.path(), TEST).await.unwrap();
    let before = stack.pids()["redis"];
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(before.try_into().unwrap()), nix::sys::signal::SIGKILL)
        .unwrap();
    assert_eq!(stack.next_exit().await.role, "redis");
    stack.restart("redis").await.unwrap();
    assert_ne!(stack.pids()["redis"], before);
    stack.stop().await.unwrap();
}

/// Starts the test binary again as a process that starts a stack and is killed.
#[tokio::test]
async fn servers_die_with_a_killed_launcher_and_the_next_start_works() {
    let dir = tempfile::tempdir().unwrap();
    let mut launcher = launcher("launcher_for_tests", dir.path()).await;
    let file = dir.path().join("pids");
    until("the launcher has started its stack", || file.exists()).await;
    let pids: Vec<u32> =
        fs::read_to_string(&file).unwrap().split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.len() == 3 && pids.iter().all(|pid| lives(*pid)));
    launcher.kill().await.unwrap();
    until("the servers are gone", || pids.iter().all(|pid| !lives(*pid))).await;
    start(dir.path(), TEST).await.unwrap().stop().await.unwrap();
}

#[tokio::test]
async fn processes_share_one_set_and_it_ends_after_the_last() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = tokio::join!(shared::join(dir.path()), shared::join(dir.path()));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(
        (&first.postgres_url, &first.redis_url, &first.nats_url),
        (&second.postgres_url, &second.redis_url, &second.nats_url)
    );
    let mut other = launcher("joiner_for_tests", dir.path()).await;
    let file = dir.path().join("joined");
    until("another process has joined", || file.exists()).await;
    assert_eq!(fs::read_to_string(&file).unwrap(), first.postgres_url);
    other.kill().await.unwrap();
    let state = dir.path().join("state.json");
    assert!(state.exists(), "two users are left");
    drop((first, second));
    until("the set has ended", || !state.exists()).await;
    // The third user joins while the old set ends, or after it. Either way it gets a working set.
    let third = shared::join(dir.path()).await.unwrap();
    let port = third.redis_url.rsplit(':').next().unwrap().trim_end_matches('/').to_owned();
    assert!(tokio::net::TcpStream::connect(format!("127.0.0.1:{port}")).await.is_ok());
}

async fn launcher(test: &str, dir: &Path) -> tokio::process::Child {
    let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("tests::{test}"), "--nocapture"]).env("LOCAL_TEST_DIR", dir);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    process::spawn(command).await.unwrap()
}

/// Not a separate test: the body of a process that another test starts.
#[tokio::test]
async fn launcher_for_tests() {
    let Some(dir) = std::env::var_os("LOCAL_TEST_DIR") else { return };
    let dir = Path::new(&dir);
    let stack = start(dir, TEST).await.unwrap();
    let pids: Vec<_> = stack.pids().values().map(u32::to_string).collect();
    fs::write(dir.join("pids.tmp"), pids.join(" ")).unwrap();
    fs::rename(dir.join("pids.tmp"), dir.join("pids")).unwrap();
    std::future::pending::<()>().await;
}

/// Not a separate test: the body of a process that another test starts.
#[tokio::test]
async fn joiner_for_tests() {
    let Some(dir) = std::env::var_os("LOCAL_TEST_DIR") else { return };
    let dir = Path::new(&dir);
    let set = shared::join(dir).await.unwrap();
    fs::write(dir.join("joined.tmp"), &set.postgres_url).unwrap();
    fs::rename(dir.join("joined.tmp"), dir.join("joined")).unwrap();
    std::future::pending::<()>().await;
}
