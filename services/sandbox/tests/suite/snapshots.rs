//! Snapshots of a workspace: kept, compared, restored, and forgotten.

use crate::harness::{Machine, Session, code, directory, fresh, repository};
use rpc::v1::{self, FileStatus, WorkspaceHeader};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::SystemTime,
};
use tonic::Status;

impl Session {
    pub async fn track(&self) -> Result<v1::TrackSnapshotResponse, Status> {
        let request = v1::TrackSnapshotRequest { fence: self.fence() };
        self.client.clone().track_snapshot(request).await.map(tonic::Response::into_inner)
    }

    pub async fn snapshot(&self) -> String {
        self.track().await.unwrap().snapshot
    }

    pub async fn compare(
        &self,
        from: &str,
        to: &str,
        bytes_max: u32,
    ) -> Result<v1::DiffSnapshotsResponse, Status> {
        let (from_snapshot, to_snapshot) = (from.to_owned(), to.to_owned());
        let request = v1::DiffSnapshotsRequest { fence: self.fence(), from_snapshot, to_snapshot, bytes_max };
        self.client.clone().diff_snapshots(request).await.map(tonic::Response::into_inner)
    }

    /// Path, status, additions and deletions of every file that changed since a snapshot.
    pub async fn changed(&self, from: &str) -> Vec<(String, FileStatus, u32, u32)> {
        let files = self.compare(from, "", 0).await.unwrap().files;
        files
            .into_iter()
            .map(|file| (file.path.clone(), file.status(), file.additions, file.deletions))
            .collect()
    }

    pub async fn restore(&self, snapshot: &str) -> Result<String, Status> {
        let request = v1::RestoreSnapshotRequest { fence: self.fence(), snapshot: snapshot.to_owned() };
        let restored = self.client.clone().restore_snapshot(request).await;
        restored.map(|response| response.into_inner().previous_snapshot)
    }

    pub async fn revert(&self, files: &[(&str, &[&str])]) -> Result<String, Status> {
        let files = files.iter().map(|(snapshot, paths)| v1::FilesOfSnapshot {
            snapshot: (*snapshot).to_owned(),
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        });
        let request = v1::RevertFilesRequest { fence: self.fence(), files: files.collect() };
        let reverted = self.client.clone().revert_files(request).await;
        reverted.map(|response| response.into_inner().previous_snapshot)
    }
}

/// Everything that a snapshot keeps of the files: names, kinds, the executable bit, bytes.
pub const STATE: &str = "find . -name .git -prune -o \\( -type f -o -type l \\) -print0 | LC_ALL=C sort -z | \
    while IFS= read -r -d '' f; do printf '%q ' \"$f\"; \
    if [ -L \"$f\" ]; then readlink \"$f\"; else [ -x \"$f\" ] && printf 'x '; sha256sum < \"$f\"; fi; done";

async fn cloned(directory: &Path) -> (Machine, Session) {
    let path = repository(directory);
    let (machine, session) = Machine::with_open(directory, &path).await;
    (machine, session)
}

const WORK: &str = "echo three >> README.md; mkdir -p new target; echo neu > 'new/ä b.txt'; echo x > target/ignored; \
                    ln -s README.md link; printf '#!/bin/sh\\n' > tool; chmod +x tool; head -c 3000 /dev/urandom > binary; rm .gitignore; \
                    echo target/ > .gitignore";

#[tokio::test]
async fn a_restore_brings_back_the_whole_tree_and_can_be_undone() {
    let directory = directory();
    let (_machine, session) = cloned(directory.path()).await;
    let (first, state) = (session.snapshot().await, session.sh(STATE).await);
    assert_eq!(session.snapshot().await, first, "the same files are the same snapshot");
    session.sh(WORK).await;
    let (changed, second) = (session.changed(&first).await, session.sh(STATE).await);
    let file = |path: &str, status, lines| (path.to_owned(), status, lines, 0);
    assert_eq!(
        changed,
        [
            file("README.md", FileStatus::Modified, 1),
            file("binary", FileStatus::Added, 0),
            file("link", FileStatus::Added, 1),
            file("new/ä b.txt", FileStatus::Added, 1),
            file("tool", FileStatus::Added, 1),
        ]
    );
    let previous = session.restore(&first).await.unwrap();
    let left = "x target/ignored: not kept, so not removed";
    assert_eq!(
        session.sh(&format!("{STATE} | grep -v target; echo '{left}'")).await,
        format!("{state}\n{left}")
    );
    assert_eq!(
        session.sh("cat target/ignored; ls -d new 2>&1 | wc -l; git status --porcelain").await,
        "x\n1"
    );
    assert_eq!(session.snapshot().await, first);
    session.restore(&previous).await.unwrap();
    assert_eq!(session.sh(STATE).await, second);
}

#[tokio::test]
async fn differences_are_listed_file_by_file_and_bounded() {
    let (_directory, _machine, session) = fresh(&[]).await;
    session.sh("seq 100 > lines; head -c 3000 /dev/urandom > binary; echo a > gone; echo a > becomes").await;
    let first = session.snapshot().await;
    session
        .sh("sed -i s/^50$/fifty/ lines; echo >> binary; rm gone; ln -sf lines becomes; chmod +x lines")
        .await;
    let second = session.snapshot().await;
    session.sh("echo later > later").await;
    let changes = session.compare(&first, &second, 0).await.unwrap();
    let facts =
        |file: &v1::FileDiff| (file.path.clone(), file.status(), file.additions, file.deletions, file.binary);
    let (modified, deleted) = (FileStatus::Modified, FileStatus::Deleted);
    assert_eq!(
        changes.files.iter().map(facts).collect::<Vec<_>>(),
        [
            ("becomes".to_owned(), modified, 1, 1, false),
            ("binary".to_owned(), modified, 0, 0, true),
            ("gone".to_owned(), deleted, 0, 1, false),
            ("lines".to_owned(), modified, 1, 1, false),
        ]
    );
    let patch = |path: &str| &changes.files.iter().find(|file| file.path == path).unwrap().patch;
    assert!(
        patch("lines").contains("old mode 100644\nnew mode 100755")
            && patch("lines").contains("-50\n+fifty\n")
    );
    assert!(
        patch("becomes").contains("-a\n") && patch("becomes").contains("+lines\n"),
        "{}",
        patch("becomes")
    );
    assert!(patch("binary").contains("Binary files a/binary and b/binary differ"));
    assert!(!changes.truncated && changes.to_snapshot == second);
    let back = session.compare(&second, &first, 0).await.unwrap();
    assert_eq!(back.files.iter().find(|file| file.path == "gone").unwrap().status(), FileStatus::Added);
    let cut = session.compare(&first, &second, 300).await.unwrap();
    assert!(cut.truncated && cut.files.len() == 4 && cut.files[3].patch.is_empty(), "{cut:?}");
    assert!(session.compare(&first, &first, 0).await.unwrap().files.is_empty());
}

#[tokio::test]
async fn single_files_are_reverted_each_from_its_own_snapshot() {
    let (_directory, _machine, session) = fresh(&[]).await;
    session.sh("echo 1 > a; echo 1 > b; mkdir d; echo 1 > d/f; echo 1 > mine").await;
    let first = session.snapshot().await;
    session.sh("echo 2 > a; echo 2 > b; echo 2 > c; rm -r d; echo 2 > d; chmod +x b").await;
    let second = session.snapshot().await;
    session.sh("echo 3 > a; rm b; echo 3 > c; echo 3 > mine; mkdir -p e; echo 3 > e/new; echo 3 > -rf").await;
    let before = session.sh(STATE).await;
    let previous = session
        .revert(&[
            (&first, &["a", "d/f", "d", "/workspace/e/new"]),
            (&second, &["b", "c", "a", "-rf", ":(glob)**"]),
        ])
        .await
        .unwrap();
    let output = session.sh("head -n 9 a b c d/f mine; ls -A; stat -c %A b").await;
    assert_eq!(
        output,
        "==> a <==\n1\n\n==> b <==\n2\n\n==> c <==\n2\n\n==> d/f <==\n1\n\n==> mine <==\n3\n.git\na\nb\nc\nd\nmine\n-rwxr-xr-x"
    );
    session.restore(&previous).await.unwrap();
    assert_eq!(session.sh(STATE).await, before);
}

/// Git only warns about a file that it cannot remove.
#[tokio::test]
async fn files_that_a_restore_or_a_revert_cannot_change_are_named() {
    let (_directory, _machine, session) = fresh(&[]).await;
    session.sh("mkdir ro; echo a > f; echo old > ro/old").await;
    let first = session.snapshot().await;
    session.sh("echo b > f; echo new > ro/new; chmod 555 ro").await;
    let second = session.snapshot().await;
    let expect_names = |refused: Status, names: &str| {
        assert!(
            refused.message().ends_with(&format!("could not be written or removed: {names}")),
            "{refused}"
        );
        assert_eq!(code::<()>(Err(refused)), "file_not_permitted");
    };
    expect_names(session.restore(&first).await.unwrap_err(), "ro/new");
    assert_eq!(session.sh("cat f ro/*").await, "a\nnew\nold");
    session.restore(&second).await.unwrap();
    expect_names(session.revert(&[(&first, &["f", "ro/new"])]).await.unwrap_err(), "ro/new");
    assert_eq!(session.sh("cat f ro/*").await, "a\nnew\nold");
    session.sh("chmod 755 ro; rm ro/old; chmod 555 ro").await;
    expect_names(session.restore(&first).await.unwrap_err(), "ro/old; ro/new");
    expect_names(session.revert(&[(&first, &["ro/new", "ro/old"])]).await.unwrap_err(), "ro/old; ro/new");
    session.sh("chmod 755 ro").await;
    session.revert(&[(&first, &["ro/new", "ro/old"])]).await.unwrap();
    assert_eq!(session.sh("cat f ro/*").await, "a\nold");
}

#[tokio::test]
async fn an_unknown_snapshot_is_refused() {
    let (_directory, machine, session) = fresh(&[]).await;
    let snapshot = session.snapshot().await;
    let other = machine.empty_session().await;
    other.write("secret", b"theirs").await.unwrap();
    let theirs = other.snapshot().await;
    let unknown = "0".repeat(40);
    for bad in [theirs.as_str(), &unknown, "", "HEAD", "../x", "--all"] {
        assert_eq!(code(session.restore(bad).await), "snapshot_unknown", "{bad}");
        assert_eq!(code(session.compare(bad, &snapshot, 0).await), "snapshot_unknown", "{bad}");
        assert_eq!(code(session.revert(&[(bad, &["x"])]).await), "snapshot_unknown", "{bad}");
    }
    assert_eq!(code(session.compare(&snapshot, &theirs, 0).await), "snapshot_unknown");
    for path in ["/etc/passwd", "../x", ".git/config", "a/.git/hooks/x"] {
        assert!(session.revert(&[(&snapshot, &[path])]).await.is_err(), "{path}");
    }
    assert_eq!(code(machine.session().track().await), "workspace_missing");
    assert_eq!(session.sh("ls").await, "");
}

#[tokio::test]
async fn a_replaced_worker_restores_nothing() {
    let (_directory, _machine, session) = fresh(&[]).await;
    let first = session.snapshot().await;
    let successor = Session { epoch: 2, ..session.clone() };
    successor.sh("echo mine > file").await;
    assert_eq!(code(session.track().await), "epoch_stale");
    assert_eq!(code(session.restore(&first).await), "epoch_stale");
    assert_eq!(code(session.revert(&[(&first, &["file"])]).await), "epoch_stale");
    assert_eq!(successor.sh("cat file").await, "mine");
}

#[tokio::test]
async fn a_subtask_has_the_snapshots_of_its_root() {
    let (_directory, _machine, session) = fresh(&[]).await;
    let child = session.child();
    let first = child.snapshot().await;
    session.sh("echo x > x").await;
    assert_eq!(child.changed(&first).await.len(), 1);
    child.restore(&first).await.unwrap();
    assert_eq!(session.sh("ls").await, "");
}

#[tokio::test]
async fn snapshots_live_with_their_workspace() {
    let directory = directory();
    let machine = Machine::start(directory.path()).await;
    let session = machine.empty_session().await;
    session.sh("echo first > first").await;
    let first = session.snapshot().await;
    session.sh("echo x > x").await;
    machine.stop().await;
    let machine = Machine::start(directory.path()).await;
    let session = Session { client: machine.client.clone(), ..session };
    session.restore(&first).await.unwrap();
    assert_eq!(session.sh("ls").await, "first");
    session.close().await;
    assert!(!session.place(&directory, "ws").exists());
    session.open(v1::WorkspaceHeader::default(), Vec::new()).await.unwrap();
    assert_eq!(code(session.restore(&first).await), "snapshot_unknown");
}

#[tokio::test]
async fn old_snapshots_are_forgotten_and_newer_ones_stay_whole() {
    let (directory, _machine, session) = fresh(&[]).await;
    session.sh("echo old > old; echo shared > shared").await;
    let old = session.snapshot().await;
    session.sh("rm old; echo young > young").await;
    let young = session.snapshot().await;
    session.sh("rm young").await;
    session.snapshot().await;
    let git_directory = session.place(&directory, "ws").join("snapshots/git");
    let age = |what: &str, days: u32| {
        let command =
            format!("find {} -exec touch -h -d '{days} days ago' {{}} +", git_directory.join(what).display());
        assert!(std::process::Command::new("sh").args(["-c", &command]).status().unwrap().success());
    };
    // All snapshots are eight days old, and one of them was returned again six days ago.
    age("objects", 8);
    age("refs/snapshots", 8);
    age(&format!("refs/snapshots/{young}"), 6);
    assert!(session.compare(&old, &young, 0).await.is_ok(), "no sweep has run yet");
    // A time that cannot be read, as after a crash of the machine, counts as long ago.
    std::fs::write(git_directory.join("swept"), "12x\n").unwrap();
    session.sh("echo later > later").await;
    session.snapshot().await;
    assert_eq!(code(session.restore(&old).await), "snapshot_unknown");
    session.restore(&young).await.unwrap();
    assert_eq!(session.sh("head -n 9 *").await, "==> shared <==\nshared\n\n==> young <==\nyoung");
    let mut objects = vec![];
    for entry in std::fs::read_dir(git_directory.join("objects")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().len() == 2 {
            objects.extend(std::fs::read_dir(entry.path()).unwrap());
        }
    }
    assert_eq!(
        objects.len(),
        6,
        "three files, and the trees of the younger one, the last one and this one: {objects:?}"
    );
}

/// When each file below a directory was changed.
fn ages(directory: &Path) -> BTreeMap<PathBuf, SystemTime> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            let own = (path.clone(), path.symlink_metadata().unwrap().modified().unwrap());
            let below = if path.is_dir() { ages(&path) } else { BTreeMap::new() };
            below.into_iter().chain([own])
        })
        .collect()
}

/// Git renews the age of a snapshot whenever it reads the files.
#[tokio::test]
async fn a_sandbox_that_changes_no_file_needs_no_git() {
    let (directory, _machine, session) = fresh(&[]).await;
    session.sh("mkdir -p a/b; echo text > a/b/c").await;
    let first = session.snapshot().await;
    let snapshots = session.place(&directory, "ws").join("snapshots");
    // The first looks come too soon after the change.
    loop {
        let before = ages(&snapshots);
        session.sh("cat a/b/c").await;
        assert_eq!(session.snapshot().await, first);
        if ages(&snapshots) == before {
            break;
        }
    }
    session.sh("echo TEXT > a/b/c; touch -d 2001-01-01 a/b/c").await;
    assert_ne!(session.snapshot().await, first);
}

#[tokio::test]
async fn a_first_command_that_changes_no_file_needs_no_git() {
    let (directory, _machine, session) = fresh(&[]).await;
    session.open(WorkspaceHeader::default(), vec![]).await.unwrap();
    let first = session.snapshot().await;
    let snapshots = session.place(&directory, "ws").join("snapshots");
    let before = ages(&snapshots);
    session.sh("ls -a").await;
    assert_eq!(session.snapshot().await, first);
    assert_eq!(ages(&snapshots), before);
    session.sh("echo text > file").await;
    assert_ne!(session.snapshot().await, first);
}

/// The test changes files from outside, which the service cannot know. So it sees when the service looks at them.
#[tokio::test]
async fn the_files_are_read_again_only_if_something_may_have_changed_them() {
    let (directory, _machine, session) = fresh(&[]).await;
    session.open(WorkspaceHeader::default(), vec![]).await.unwrap();
    let tree = session.place(&directory, "ws").join("tree");
    let change = |text: &str| std::fs::write(tree.join("seen"), text).unwrap();
    let first = session.snapshot().await;
    change("one");
    assert_eq!(session.snapshot().await, first, "no program has run yet");
    session.sh("true").await;
    change("1");
    let second = session.snapshot().await;
    assert_ne!(second, first, "a program runs");
    change("two");
    assert_ne!(session.snapshot().await, second, "its sandbox still runs");
    assert!(session.release().await.unwrap());
    change("three");
    let third = session.snapshot().await;
    assert_eq!(session.changed(&second).await, [("seen".to_owned(), FileStatus::Modified, 1, 1)]);
    change("four");
    assert_eq!(session.snapshot().await, third, "no sandbox has run since");
    assert_eq!(session.restore(&first).await.unwrap(), third);
    assert!(!tree.join("seen").exists());
    assert_eq!(session.snapshot().await, first, "the service wrote files itself");
    session.sh("true").await;
    change("five");
    assert!(session.release().await.unwrap());
    assert_ne!(session.snapshot().await, first, "a sandbox was started and ended");
}
