//! Several sessions in one workspace: the files are shared, and nothing else is.

use crate::{
    changes::diff,
    harness::{Machine, Session, code, directory, fresh, repository},
};
use rpc::v1::{self, ExecEnd, WorkspaceHeader};
use std::fs::{self, File};

/// Waits until no process inside holds a lock on `name` in the session's own workspace; its holder is then gone.
async fn released(directory: &tempfile::TempDir, root: &Session, name: &str) {
    let file = File::open(root.place(directory, "ws").join("tree").join(name)).unwrap();
    tokio::task::spawn_blocking(move || file.lock().unwrap()).await.unwrap();
}

/// Leaves a process behind that holds a lock on the file.
fn hold(name: &str) -> String {
    format!(
        "touch {name}; (setsid flock {name} bash -c 'touch {name}.ready; sleep 1000' > /dev/null 2>&1 &); \
         until [ -e {name}.ready ]; do sleep 0.02; done"
    )
}

#[tokio::test]
async fn two_sessions_share_files_and_not_processes() {
    let (_directory, _machine, root) = fresh(&[]).await;
    let child = root.child();
    root.write("from-root", b"root").await.unwrap();
    assert_eq!(child.sh("cat from-root; echo child > from-child; id -u").await, "root1000");
    assert_eq!(root.read("from-child").await.unwrap().data, b"child\n");
    child.write("from-root", b"changed").await.unwrap();
    assert_eq!(root.sh("cat from-root; echo >> from-child").await, "changed");
    assert_eq!(child.lines("from-root").await.unwrap().lines, ["changed"]);
    assert_eq!(diff(&child, 0).await.unwrap(), diff(&root, 0).await.unwrap());
    assert_eq!(diff(&child, 0).await.unwrap().files.len(), 2);

    root.sh("sleep 1000 &").await;
    assert_eq!(child.sh("pgrep -c sleep || true").await, "0");
    // Exec ids are each session's own.
    child.start(child.command("e", "echo child")).await.unwrap();
    assert_eq!(child.attach("e", 0).await.unwrap().output, "child\n");
    assert_eq!(code(root.attach("e", 0).await), "exec_unknown");
}

#[tokio::test]
async fn a_workspace_is_opened_once_by_any_session() {
    let directory = directory();
    let path = repository(directory.path());
    let root = directory.path().to_str().unwrap().to_owned();
    let machine = Machine::start_with(directory.path(), &["--file-roots", &root]).await;
    let parent = machine.session();
    let (first, second) = (parent.child(), parent.child());
    let url = format!("file://{}", path.display());
    let (a, b, c) = tokio::join!(first.open_url(&url), parent.open_url(&url), second.open_url(&url));
    let opened = [a.unwrap(), b.unwrap(), c.unwrap()];
    assert_eq!(opened.iter().filter(|opened| opened.created).count(), 1, "{opened:?}");
    assert!(opened.iter().all(|one| one.base_commit == opened[0].base_commit && !one.base_commit.is_empty()));
    first.sh("echo mine > mine").await;
    assert_eq!(second.sh("cat mine README.md").await, "mine\none\ntwo");
    assert_eq!(parent.sh("cat mine").await, "mine");
    assert!(parent.place(&directory, "ws").exists());
    assert!(!first.place(&directory, "ws").exists());
}

/// What begins next may open the door of the session to hosts and secrets of a setup.
#[tokio::test]
async fn programs_in_lost_files_end_before_the_files_are_opened_again() {
    programs_end_when_their_files_are_asked_for(true, None).await;
}

#[tokio::test]
async fn programs_in_an_old_copy_end_before_the_files_are_opened_again() {
    programs_end_when_their_files_are_asked_for(false, Some(1)).await;
}

async fn programs_end_when_their_files_are_asked_for(are_lost: bool, opening: Option<u32>) {
    let (directory, _machine, root) = fresh(&[]).await;
    let child = root.child();
    root.sh(&hold("root")).await;
    child.sh(&hold("child")).await;
    let place = root.place(&directory, "ws");
    let files = ["root", "child"].map(|name| File::open(place.join("tree").join(name)).unwrap());
    if are_lost {
        fs::rename(place, directory.path().join("lost")).unwrap();
    }
    let next = Session { opening, ..child };
    let request = v1::GetWorkspaceRequest { fence: next.fence() };
    assert!(!next.client.clone().get_workspace(request).await.unwrap().into_inner().exists);
    for file in files {
        file.try_lock().unwrap();
    }
}

#[tokio::test]
async fn fences_are_independent() {
    let (_directory, _machine, root) = fresh(&[]).await;
    let old = Session { epoch: 5, ..root.child() };
    let new = Session { epoch: 6, ..old.clone() };
    let sibling = root.child();
    old.write("file", b"5").await.unwrap();
    new.write("file", b"6").await.unwrap();
    // The lower epochs of other sessions do not matter to it.
    root.write("file", b"1").await.unwrap();
    sibling.write("file", b"1").await.unwrap();
    assert_eq!(code(old.write("file", b"5").await), "epoch_stale");
    assert_eq!(code(old.start(old.command("e", "true")).await), "epoch_stale");
    assert_eq!(code(old.kill_all().await), "epoch_stale");
    assert_eq!(code(old.release().await), "epoch_stale");
    assert_eq!(code(old.open(WorkspaceHeader::default(), Vec::new()).await), "epoch_stale");
    assert_eq!(root.read("file").await.unwrap().data, b"1");
}

#[tokio::test]
async fn a_missing_workspace_is_refused() {
    let (_directory, machine, root) = fresh(&[]).await;
    root.write("secret", b"x").await.unwrap();
    let stranger = Session { workspace: root.id.clone(), ..machine.session() };
    let nowhere = Session { workspace: machine.session().id, ..root.child() };
    for session in [&stranger, &nowhere] {
        assert_eq!(code(session.read("secret").await), "workspace_missing");
        assert_eq!(code(session.write("secret", b"y").await), "workspace_missing");
        assert_eq!(code(session.start(session.command("e", "true")).await), "workspace_missing");
        assert_eq!(code(diff(session, 0).await), "workspace_missing");
        let request = v1::GetWorkspaceRequest { fence: session.fence() };
        assert!(!session.client.clone().get_workspace(request).await.unwrap().into_inner().exists);
    }
    let invalid = Session { workspace: "../x".to_owned(), ..root.child() };
    assert_eq!(code(invalid.read("secret").await), "argument_invalid");
    // A running sandbox also cannot be used for a workspace that it does not see.
    let other = Session { tenant: root.tenant.clone(), ..machine.session() };
    other.open(WorkspaceHeader::default(), Vec::new()).await.unwrap();
    let child = root.child();
    child.write("mine", b"").await.unwrap();
    assert_eq!(
        code(Session { workspace: other.id.clone(), ..child }.write("mine", b"").await),
        "argument_invalid"
    );
    assert_eq!(root.read("secret").await.unwrap().data, b"x");
}

#[tokio::test]
async fn closing_a_child_leaves_the_files_and_the_others() {
    let (directory, _machine, root) = fresh(&[]).await;
    let (child, sibling) = (root.child(), root.child());
    root.sh(&hold("root")).await;
    sibling.sh(&hold("sibling")).await;
    child.sh(&hold("child")).await;
    child.close().await;
    released(&directory, &root, "child").await;
    assert!(!child.place(&directory, "execs").exists());
    assert_eq!(
        root.sh("ls *.ready; flock --nonblock root true || echo held").await,
        "child.ready\nroot.ready\nsibling.ready\nheld"
    );
    assert_eq!(sibling.sh("flock --nonblock sibling true || echo held").await, "held");
    // Its late worker stays outside.
    let successor = Session { epoch: 2, ..child.clone() };
    successor.close().await;
    assert_eq!(code(child.write("late", b"").await), "epoch_stale");
}

#[tokio::test]
async fn closing_the_root_ends_every_session_in_the_workspace() {
    let (directory, _machine, root) = fresh(&[]).await;
    let (child, other) = (root.child(), root.child());
    other.sh("true").await;
    child.start(child.command("e", "touch begun; sleep 1000")).await.unwrap();
    root.sh("until [ -e begun ]; do sleep 0.02; done").await;
    root.close().await;
    assert_eq!(child.attach("e", 0).await.unwrap().exit.end(), ExecEnd::Lost);
    assert!(!root.place(&directory, "ws").exists());
    assert_eq!(code(child.write("late", b"").await), "workspace_missing");
    assert_eq!(code(other.start(other.command("late", "true")).await), "workspace_missing");
}

#[tokio::test]
async fn killing_all_of_a_session_leaves_files_and_other_sessions() {
    let (directory, _machine, root) = fresh(&[]).await;
    let child = root.child();
    root.start(root.command("theirs", "touch up; sleep 1000")).await.unwrap();
    child.sh(&hold("held")).await;
    child
        .start(
            child.command("e", "trap 'echo asked; exit 3' TERM; touch begun; while :; do sleep 0.02; done"),
        )
        .await
        .unwrap();
    root.sh("until [ -e begun ] && [ -e up ]; do sleep 0.02; done").await;
    let operator = Session { epoch: 9, ..child.clone() };
    assert!(operator.kill_all().await.unwrap());
    released(&directory, &root, "held").await;
    let outcome = operator.attach("e", 0).await.unwrap();
    // The command gets SIGTERM before SIGKILL.
    assert_eq!(
        (outcome.exit.end(), outcome.output.ends_with("asked\n")),
        (ExecEnd::Killed, true),
        "{outcome:?}"
    );
    assert!(!operator.kill_all().await.unwrap(), "idempotent");
    assert_eq!(code(child.start(child.command("f", "true")).await), "epoch_stale");
    assert_eq!(operator.sh("ls held").await, "held");
    let kill = v1::KillExecRequest { fence: root.fence(), exec_id: "theirs".to_owned() };
    assert!(root.client.clone().kill_exec(kill).await.unwrap().into_inner().was_running);
}

#[tokio::test]
async fn a_released_sandbox_ends_and_starts_again() {
    let (directory, _machine, session) = fresh(&[]).await;
    session.sh(&hold("held")).await;
    assert!(session.release().await.unwrap());
    released(&directory, &session, "held").await;
    assert!(session.release().await.unwrap(), "idempotent");
    assert_eq!(session.sh("ls held; pgrep -c sleep || true").await, "held\n0");
}

#[tokio::test]
async fn a_sandbox_with_a_running_exec_is_not_released() {
    let (_directory, _machine, session) = fresh(&[]).await;
    session.start(session.command("e", "until [ -e go ]; do sleep 0.02; done; echo done")).await.unwrap();
    assert!(!session.release().await.unwrap());
    session.write("go", b"").await.unwrap();
    let outcome = session.attach("e", 0).await.unwrap();
    assert_eq!((outcome.exit.end(), outcome.output.as_str()), (ExecEnd::Exited, "done\n"));
    // A caller that has seen the outcome may release at once.
    assert!(session.release().await.unwrap());
}

#[tokio::test]
async fn an_old_fence_is_removed_although_another_one_cannot_be() {
    let directory = directory();
    let machine = Machine::start(directory.path()).await;
    let (old, recent) = (machine.empty_session().await, machine.empty_session().await);
    machine.stop().await;
    let age = std::time::Duration::from_millis(domain::limits::SANDBOX_FENCE_KEPT_MS + 60_000);
    let then = std::time::SystemTime::now() - age;
    let fence = old.place(&directory, "fence");
    // A directory is not removed as a file is. The sweep comes to the mark of a deleted tenant after all fences.
    let stuck = fence.with_file_name("stuck");
    let mark = directory.path().join("data/closed").join(uuid::Uuid::now_v7().simple().to_string());
    fs::create_dir(&stuck).unwrap();
    fs::write(&mark, "").unwrap();
    for path in [&fence, &stuck, &mark] {
        File::open(path).unwrap().set_modified(then).unwrap();
    }
    let _machine = Machine::start(directory.path()).await;
    // The first sweep runs during the start.
    while fence.exists() || mark.exists() {
        tokio::task::yield_now().await;
    }
    assert!(stuck.exists() && recent.place(&directory, "fence").exists());
}
