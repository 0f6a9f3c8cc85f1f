//! When sandboxes and the service begin and end.

use crate::harness::{
    HOLDER, Machine, Session, TOKEN, code, directory, fresh, is_root, missing_walls, uid_base,
};
use rpc::v1::{GetIsolationRequest, sandbox_service_client::SandboxServiceClient};
use std::{fs::File, os::unix::process::ExitStatusExt as _, path::Path};
use tonic::{Code, Request};

/// Waits until no process inside holds a lock on `name` in the workspace. No polling: the lock is free when its holder
/// is gone.
async fn released(file: File) {
    tokio::task::spawn_blocking(move || file.lock().unwrap()).await.unwrap();
}

fn inside(directory: &tempfile::TempDir, session: &crate::harness::Session, name: &str) -> File {
    let tenant = session.tenant.replace('-', "");
    let tree = directory.path().join("data/ws").join(tenant).join(&session.id).join("tree");
    File::open(tree.join(name)).unwrap()
}

#[tokio::test]
async fn an_idle_sandbox_ends_and_starts_again() {
    let (directory, _machine, session) = fresh(&["--idle-ms", "100"]).await;
    session.sh(HOLDER).await;
    released(inside(&directory, &session, "held")).await;
    assert_eq!(session.sh("ls; pgrep -c sleep || true").await, "held\nready\n0");
}

#[tokio::test]
async fn the_first_exec_in_another_sandbox_says_so() {
    let (_directory, _machine, session) = fresh(&[]).await;
    let is_new = async |command: &str| session.run(command).await.exit.in_new_sandbox;
    let both = tokio::join!(is_new("echo one"), is_new("echo two"));
    assert_eq!(both, (false, false), "the session had none before");
    assert!(session.release().await.unwrap());
    assert!(session.read("missing").await.is_err(), "a call that is no exec starts the sandbox");
    assert!(is_new("echo three").await, "background processes and /tmp are gone");
    assert!(!is_new("echo four").await);
}

#[tokio::test]
async fn a_sandbox_starts_before_the_call_that_needs_it() {
    let (_directory, machine, session) = fresh(&[]).await;
    assert!(!session.kill_all().await.unwrap(), "none runs yet");
    session.start_sandbox().await.unwrap();
    session.start_sandbox().await.unwrap();
    assert!(session.kill_all().await.unwrap(), "one runs");
    session.start_sandbox().await.unwrap();
    session.sh("echo one > /tmp/kept").await;
    session.start_sandbox().await.unwrap();
    assert_eq!(session.sh("cat /tmp/kept").await, "one", "the same one still runs");
    assert!(session.kill_all().await.unwrap());
    session.start_sandbox().await.unwrap();
    assert!(session.run("ls /tmp").await.exit.in_new_sandbox, "no exec has told it yet");
    assert!(session.release().await.unwrap());
    assert_eq!(code(machine.session().start_sandbox().await), "workspace_missing");
    let successor = Session { epoch: session.epoch + 1, ..session.clone() };
    successor.read("missing").await.unwrap_err();
    assert_eq!(code(session.start_sandbox().await), "epoch_stale");
}

/// The last process in a mount namespace holds a lock of the whole machine while it leaves. A process of a busy tenant would hold it for seconds.
#[tokio::test]
async fn the_service_leaves_the_mounts_of_a_sandbox_last() {
    if !is_root() {
        return testkit::left_out::skip("only root holds the mount namespaces of its sandboxes");
    }
    let (_directory, _machine, session) = fresh(&[]).await;
    let namespace = session.sh("readlink /proc/self/ns/mnt").await;
    // The service runs in this process.
    let is_held = || {
        let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        files
            .filter_map(|file| std::fs::read_link(file.path()).ok())
            .any(|link| link == Path::new(&namespace))
    };
    assert!(is_held(), "{namespace}");
    assert!(session.release().await.unwrap());
    assert!(!is_held());
}

#[tokio::test]
async fn a_sandbox_with_a_running_exec_is_not_idle() {
    let (_directory, _machine, session) = fresh(&["--idle-ms", "10"]).await;
    assert_eq!(session.sh("sleep 0.5; echo done").await, "done");
}

#[tokio::test]
async fn no_process_outlives_the_service() {
    let (directory, machine, session) = fresh(&[]).await;
    session.sh(HOLDER).await;
    let held = inside(&directory, &session, "held");
    machine.stop().await;
    released(held).await;
}

/// As a killed service leaves it: a bubblewrap whose child was still waiting for it.
#[tokio::test]
async fn the_next_service_ends_what_a_killed_one_left() {
    let directory = directory();
    Machine::start(directory.path()).await.stop().await;
    let data = directory.path().join("data");
    let process = |uid: u32| {
        let mut command = tokio::process::Command::new("bwrap");
        let shown = if nix::unistd::geteuid().is_root() {
            command.uid(uid);
            Path::new("/usr")
        } else {
            &data
        };
        command
            .args(["--unshare-user", "--die-with-parent", "--dev-bind", "/", "/", "--bind"])
            .arg(shown)
            .arg("/mnt");
        command.args(["sleep", "1000"]).kill_on_drop(true).spawn().unwrap()
    };
    let mut left = process(uid_base().parse::<u32>().unwrap() + 1);
    let mut of_others = tokio::process::Command::new("sleep").arg("1000").kill_on_drop(true).spawn().unwrap();
    let machine = Machine::start(directory.path()).await;
    assert_eq!(left.wait().await.unwrap().signal(), Some(libc::SIGKILL));
    assert_eq!(of_others.try_wait().unwrap(), None, "a process of somebody else goes on");
    machine.stop().await;
}

#[tokio::test]
async fn a_second_service_waits_until_the_first_has_ended() {
    let directory = directory();
    let machine = Machine::start(directory.path()).await;
    let data = directory.path().to_owned();
    let second = tokio::spawn(async move { Machine::start(&data).await });
    let session = machine.empty_session().await;
    assert_eq!(session.sh("echo here").await, "here");
    assert!(!second.is_finished());
    machine.stop().await;
    let machine = second.await.unwrap();
    let session = Session { client: machine.client.clone(), ..session };
    assert_eq!(session.sh("echo there").await, "there");
}

#[tokio::test]
async fn a_port_that_others_can_reach_needs_consent() {
    let directory = directory();
    let start = async |arguments: &[&str]| {
        let arguments = [&["--without", missing_walls(), "--listen", "0.0.0.0:0"], arguments].concat();
        Machine::try_start(directory.path(), &arguments).await
    };
    let error = format!("{:#}", start(&[]).await.err().expect("it does not start"));
    assert!(error.contains("FLOTILLA_SANDBOX_PLAINTEXT=network"), "{error}");
    start(&["--plaintext", "network"]).await.unwrap().stop().await;
}

#[tokio::test]
async fn callers_without_the_token_are_refused() {
    let named =
        ["--tokens", "gateway:token-of-the-gateway,worker:token-of-the-worker,worker:next-token-of-it"];
    let (_directory, machine, _session) = fresh(&named).await;
    let mut client = SandboxServiceClient::connect(machine.url.clone()).await.unwrap();
    for token in [TOKEN, "token-of-the-gateway", "token-of-the-worker", "next-token-of-it"] {
        let mut request = Request::new(GetIsolationRequest {});
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        client.get_isolation(request).await.unwrap();
    }
    for header in
        [None, Some("Bearer wrong".to_owned()), Some(TOKEN.to_owned()), Some(format!("Bearer {TOKEN}x"))]
    {
        let mut request = Request::new(GetIsolationRequest {});
        if let Some(header) = &header {
            request.metadata_mut().insert("authorization", header.parse().unwrap());
        }
        let status = client.get_isolation(request).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{header:?}");
        assert_eq!(code::<()>(Err(status)), "token_invalid");
    }
}

#[tokio::test]
async fn the_isolation_is_reported() {
    let (_directory, machine, _session) = fresh(&[]).await;
    let isolation = machine.client.clone().get_isolation(GetIsolationRequest {}).await.unwrap().into_inner();
    assert_eq!(isolation.backend, "bwrap");
    assert!(isolation.missing.is_empty() || !is_root(), "{:?}", isolation.missing);
    for (name, value) in
        [("uid", "1000"), ("seccomp", "2"), ("network", "refused"), ("init_environment", "refused")]
    {
        assert_eq!(isolation.properties.get(name).map(String::as_str), Some(value), "{name}");
    }
}

#[tokio::test]
async fn a_service_without_its_walls_does_not_serve() {
    let directory = directory();
    let data = directory.path().to_owned();
    let started =
        tokio::spawn(async move { drop(Machine::start_with(&data, &["--bwrap", "/usr/bin/false"]).await) });
    let panic = started.await.unwrap_err().into_panic();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("cannot run sandboxes") && text.contains("did not start"), "{text}");
}

#[tokio::test]
async fn a_missing_wall_stops_the_start_unless_the_operator_accepts_it_by_name() {
    let directory = directory();
    let start = async |accepted: &str| {
        let arguments = ["--control-groups", "off", "--without", accepted];
        Machine::try_start(directory.path(), &arguments).await
    };
    let error = format!("{:#}", start("users,terminals").await.err().unwrap());
    for text in ["memory: ", "cpu: ", "FLOTILLA_SANDBOX_WITHOUT=memory,cpu,users,terminals"] {
        assert!(error.contains(text), "{text} is not in {error}");
    }
    let error = format!("{:#}", start("users,terminals,cpu").await.err().unwrap());
    assert!(error.contains("memory: ") && !error.contains("cpu: "), "{error}");
    let machine = start("users,terminals,cpu,memory").await.unwrap();
    let isolation = machine.client.clone().get_isolation(GetIsolationRequest {}).await.unwrap().into_inner();
    let missing: Vec<_> = isolation.missing.iter().filter_map(|gap| Some(gap.split_once(':')?.0)).collect();
    assert!(missing.starts_with(&["memory", "cpu"]), "{missing:?}");
    machine.stop().await;
}

/// Finished sessions keep their sandbox for a while; other sessions neither wait for it nor fail.
#[tokio::test]
async fn an_idle_sandbox_ends_for_a_session_that_needs_one() {
    let directory = crate::harness::directory();
    let machine = Machine::start_with(directory.path(), &["--live-max", "2"]).await;
    let mut sessions = vec![];
    for number in 0..5 {
        let session = machine.empty_session().await;
        assert_eq!(session.sh(&format!("echo {number}")).await, number.to_string());
        sessions.push(session);
    }
    // A running command keeps its sandbox; the second permit serves all others.
    let busy = &sessions[0];
    assert!(busy.start(busy.command("busy", "sleep 600")).await.unwrap());
    for session in &sessions[1..] {
        assert_eq!(session.sh("echo again").await, "again");
    }
    let both =
        futures::future::join_all(sessions[1..].iter().map(|session| session.sh("echo at once"))).await;
    assert!(both.iter().all(|answer| answer == "at once"), "{both:?}");
    busy.kill_all().await.unwrap();
}
