//! A workspace that begins with the files of another one, and its changes as a patch for that one.

use crate::{
    changes::diff,
    harness::{Machine, Session, code, directory, repository},
};
use rpc::v1::{self, ExportHistory, WorkspaceHeader};
use tonic::Status;

/// The current files of `origin`, and what a workspace is opened with that begins with them.
pub async fn export(origin: &Session) -> (WorkspaceHeader, Vec<u8>) {
    let request = v1::ExportWorkspaceRequest {
        tenant_id: origin.tenant.clone(),
        session_id: origin.id.clone(),
        history: ExportHistory::Whole.into(),
        ..Default::default()
    };
    let mut pieces = origin.client.clone().export_workspace(request).await.unwrap().into_inner();
    let first = pieces.message().await.unwrap().unwrap();
    let v1::ExportWorkspaceResponse { mut data, commit, install_key, .. } = first;
    while let Some(piece) = pieces.message().await.unwrap() {
        data.extend(piece.data);
    }
    let header = WorkspaceHeader {
        bundle: true,
        revision: commit,
        uncommitted: true,
        install_key,
        ..WorkspaceHeader::default()
    };
    (header, data)
}

/// A session whose workspace begins with the current files of `origin`, and the commit that holds them.
pub async fn copy(machine: &Machine, origin: &Session) -> (Session, String) {
    let (header, data) = export(origin).await;
    let (copy, commit) =
        (Session { tenant: origin.tenant.clone(), ..machine.session() }, header.revision.clone());
    copy.open(header, data).await.unwrap();
    (copy, commit)
}

/// Keeps the changes of `copy` as a patch of `session`.
async fn keep(session: &Session, copy: &Session, from_commit: &str) -> Result<v1::KeepPatchResponse, Status> {
    let with_files = Session { workspace: copy.id.clone(), ..session.clone() };
    let (fence, output_id) = (with_files.fence(), "prt_1-patch".to_owned());
    let request = v1::KeepPatchRequest { fence, output_id, from_commit: from_commit.to_owned() };
    session.client.clone().keep_patch(request).await.map(tonic::Response::into_inner)
}

const FILES: &str = "sha256sum $(git ls-files --cached --others | sort -u | xargs ls -d 2> /dev/null)";

#[tokio::test]
async fn a_copy_is_on_the_branch_of_its_origin() {
    let directory = directory();
    let path = repository(directory.path());
    let (machine, origin) = Machine::with_open(directory.path(), &path).await;
    for (prepare, branch) in [
        ("git checkout -q -b feature/one", "feature/one"),
        // Where no branch is checked out, or one that git does not accept.
        ("git checkout -q --detach", "main"),
        ("echo 'ref: refs/heads/-b..c' > .git/HEAD", "main"),
    ] {
        origin.sh(prepare).await;
        let (copied, _) = copy(&machine, &origin).await;
        assert_eq!(copied.sh("git status --short --branch").await, format!("## {branch}"), "{prepare}");
    }
}

#[tokio::test]
async fn the_changes_of_a_copy_are_a_patch_that_its_origin_can_apply() {
    let directory = directory();
    let path = repository(directory.path());
    let (machine, origin) = Machine::with_open(directory.path(), &path).await;
    origin
        .sh("echo '*.txt text eol=lf' > .gitattributes; printf 'a\\r\\n' > crlf.txt; echo mine >> README.md; echo x > untracked")
        .await;
    let before = origin.sh(FILES).await;
    let (copied, commit) = copy(&machine, &origin).await;
    assert_eq!(copied.sh(FILES).await, before, "with what was not committed");
    assert_eq!(keep(&origin, &copied, &commit).await.unwrap(), v1::KeepPatchResponse::default());

    copied
        .sh("echo theirs >> README.md; printf 'b\\r\\n' >> crlf.txt; head -c 3000 /dev/urandom > binary; rm untracked; mkdir d; ln -s .. d/l")
        .await;
    let patch = keep(&origin, &copied, &commit).await.unwrap();
    let names: Vec<&str> = patch.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(names, ["README.md", "binary", "crlf.txt", "d/l", "untracked"]);
    assert_eq!((patch.files_total, patch.left_out.len()), (5, 0));
    assert_eq!(keep(&origin, &copied, &commit).await.unwrap(), patch, "it may be repeated");
    assert_eq!(origin.sh(FILES).await, before, "nothing is applied by itself");
    let applied = origin.sh(&format!("git apply {} && {FILES}; readlink d/l", patch.path)).await;
    assert_eq!(applied, copied.sh(&format!("{FILES}; readlink d/l")).await);
}

#[tokio::test]
async fn a_diff_of_a_copy_can_leave_out_what_it_began_with() {
    let directory = directory();
    let path = repository(directory.path());
    let (machine, origin) = Machine::with_open(directory.path(), &path).await;
    origin.sh("echo x > before").await;
    let (copied, commit) = copy(&machine, &origin).await;
    copied.sh("echo y > after").await;
    let names = |diff: v1::DiffWorkspaceResponse| -> Vec<String> {
        diff.files.into_iter().map(|file| file.path).collect()
    };
    assert_eq!(names(diff(&copied, 0).await.unwrap()), ["after", "before"]);
    let request = v1::DiffWorkspaceRequest {
        tenant_id: copied.tenant.clone(),
        session_id: copied.id.clone(),
        from_commit: commit,
        ..Default::default()
    };
    let since = copied.client.clone().diff_workspace(request).await.unwrap().into_inner();
    assert_eq!(names(since), ["after"]);
}

#[tokio::test]
async fn a_patch_that_is_too_large_or_not_allowed_is_not_kept() {
    let directory = directory();
    let path = repository(directory.path());
    let (machine, origin) = Machine::with_open(directory.path(), &path).await;
    let (copied, commit) = copy(&machine, &origin).await;
    copied.sh("head -c 12000000 /dev/urandom > large").await;
    let patch = keep(&origin, &copied, &commit).await.unwrap();
    assert_eq!((patch.path.as_str(), patch.files_total), ("", 1));

    copied.sh("rm large; echo x > small").await;
    for bad in ["HEAD", "--all", "../x"] {
        assert_eq!(code(keep(&origin, &copied, bad).await), "argument_invalid", "{bad}");
    }
    let unknown = "0".repeat(40);
    assert_eq!(code(keep(&origin, &copied, &unknown).await), "base_commit_missing");
    let stranger = machine.session();
    assert_eq!(code(keep(&stranger, &copied, &commit).await), "workspace_missing", "of another tenant");
    let successor = Session { epoch: 2, ..origin.clone() };
    assert_eq!(keep(&successor, &copied, &commit).await.unwrap().files_total, 1);
    assert_eq!(code(keep(&origin, &copied, &commit).await), "epoch_stale");
}
