//! The changes of a session, also with a hostile repository.

use crate::harness::{Machine, Session, code, directory, fresh, git, repository};
use domain::limits;
use nix::{
    errno::Errno,
    sys::inotify::{AddWatchFlags, InitFlags, Inotify},
};
use rpc::v1;
use std::path::{Path, PathBuf};

pub async fn diff(session: &Session, bytes_max: u32) -> Result<v1::DiffWorkspaceResponse, tonic::Status> {
    let (tenant_id, session_id) = (session.tenant.clone(), session.id.clone());
    let workspace_session_id = session.workspace.clone();
    let request = v1::DiffWorkspaceRequest {
        tenant_id,
        session_id,
        bytes_max,
        workspace_session_id,
        workspace_opening: session.opening,
        ..Default::default()
    };
    session.client.clone().diff_workspace(request).await.map(tonic::Response::into_inner)
}

pub async fn export(session: &Session) -> Result<(String, String, Vec<u8>), tonic::Status> {
    let Exported { commit, base, bundle, .. } =
        export_as(session, v1::ExportWorkspaceRequest::default()).await?;
    Ok((commit, base, bundle))
}

/// A whole export.
#[derive(Debug)]
struct Exported {
    commit: String,
    base: String,
    left_out: Vec<String>,
    bundle: Vec<u8>,
}

async fn export_as(session: &Session, form: v1::ExportWorkspaceRequest) -> Result<Exported, tonic::Status> {
    let mut parts = export_parts(session, form).await?;
    let begun = parts.message().await?.unwrap();
    let first = parts.message().await?.unwrap();
    assert_eq!(begun.base_commit, first.base_commit);
    let v1::ExportWorkspaceResponse { mut data, commit, base_commit, left_out, .. } = first;
    while let Some(part) = parts.message().await? {
        data.extend(part.data);
    }
    Ok(Exported { commit, base: base_commit, left_out, bundle: data })
}

async fn export_parts(
    session: &Session,
    form: v1::ExportWorkspaceRequest,
) -> Result<tonic::Streaming<v1::ExportWorkspaceResponse>, tonic::Status> {
    let request = v1::ExportWorkspaceRequest {
        tenant_id: session.tenant.clone(),
        session_id: session.id.clone(),
        commit_message: "-m Agent's work".to_owned(),
        workspace_session_id: session.workspace.clone(),
        ..form
    };
    session.client.clone().export_workspace(request).await.map(tonic::Response::into_inner)
}

/// A clone of `repository` with the branch `flotilla` of an export checked out.
fn clone_with(repository: &Path, exported: &Exported) -> (tempfile::TempDir, PathBuf) {
    let directory = directory();
    let (file, clone) = (directory.path().join("out.bundle"), directory.path().join("clone"));
    std::fs::write(&file, &exported.bundle).unwrap();
    git(directory.path(), &["clone", "-q", repository.to_str().unwrap(), clone.to_str().unwrap()]);
    git(&clone, &["fetch", "-q", file.to_str().unwrap(), "refs/heads/flotilla:refs/heads/flotilla"]);
    git(&clone, &["checkout", "-q", "flotilla"]);
    assert_eq!(git(&clone, &["rev-parse", "HEAD"]), exported.commit);
    (directory, clone)
}

async fn opened(directory: &Path) -> (Machine, Session, std::path::PathBuf) {
    let path = repository(directory);
    let (machine, session) = Machine::with_open(directory, &path).await;
    (machine, session, path)
}

const WORK: &str = "echo three >> README.md; mkdir -p new target; echo neu > 'new/ä b.txt'; echo x > target/ignored; \
                    ln -s README.md link; echo run > tool; chmod +x tool; git add tool; head -c 3000 /dev/urandom > binary";

#[tokio::test]
async fn a_diff_has_changed_files_and_no_ignored_ones() {
    let directory = directory();
    let (_machine, session, path) = opened(directory.path()).await;
    assert!(diff(&session, 0).await.unwrap().files.is_empty());
    session.sh(WORK).await;
    let before = session.sh("git status --porcelain").await;
    let changes = diff(&session, 0).await.unwrap();
    let mut names: Vec<_> =
        changes.files.iter().map(|f| (f.path.as_str(), f.additions, f.deletions)).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [("README.md", 1, 0), ("binary", 0, 0), ("link", 1, 0), ("new/ä b.txt", 1, 0), ("tool", 1, 0)]
    );
    assert!(changes.patch.contains("+three\n") && !changes.truncated, "{}", changes.patch);
    assert_eq!(changes.base_commit, git(&path, &["rev-parse", "main"]));
    assert_eq!(session.sh("git status --porcelain").await, before, "the index is the tenant's");
    let cut = diff(&session, 300).await.unwrap();
    assert!(cut.truncated && cut.patch.len() <= 300 && cut.patch.ends_with('\n'));
}

#[tokio::test]
async fn an_export_has_the_files_of_the_workspace() {
    let directory = directory();
    let (_machine, session, path) = opened(directory.path()).await;
    let base = git(&path, &["rev-parse", "main"]);
    assert_eq!(export(&session).await.unwrap(), (base.clone(), base.clone(), Vec::new()), "no changes");
    session.sh(&format!("{WORK}; rm -f .gitignore; git rm -q --cached README.md")).await;
    let exported = export_as(&session, v1::ExportWorkspaceRequest::default()).await.unwrap();
    assert_eq!((exported.base.as_str(), &exported.left_out[..]), (base.as_str(), &[][..]));
    let (_directory, clone) = clone_with(&path, &exported);
    let facts = git(&clone, &["log", "-1", "--format=%P %an <%ae> %s"]);
    assert_eq!(facts, format!("{base} Flotilla Agent <agent@flotilla.invalid> -m Agent's work"));
    // target is no longer ignored: .gitignore was removed.
    let digest = "find . -path ./.git -prune -o -type f -print -o -type l -print | LC_ALL=C sort | \
                  while read -r f; do echo \"$f $(stat -c %A \"$f\" | cut -c 4) $(sha256sum < \"$f\")\"; done";
    let output =
        std::process::Command::new("bash").args(["-c", digest]).current_dir(&clone).output().unwrap();
    assert_eq!(session.sh(digest).await, String::from_utf8(output.stdout).unwrap().trim_end());
}

const COMMITS: &str = "echo a > a; git add a; git commit -qm 'feat: a' -m 'with a body'; echo b > b; git add b; \
                       GIT_AUTHOR_NAME=Ann GIT_AUTHOR_EMAIL=ann@b.c git commit -qm 'feat: b'; echo secret > target.log; echo '*.log' > .gitignore; \
                       git add -f target.log .gitignore; git commit -qm ignored";

#[tokio::test]
async fn commits_of_the_agent_stay_commits() {
    let directory = directory();
    let (_machine, session, path) = opened(directory.path()).await;
    session.sh(COMMITS).await;
    let head = session.sh("git rev-parse HEAD").await;
    let exported = export_as(&session, v1::ExportWorkspaceRequest::default()).await.unwrap();
    assert_eq!(
        (exported.commit.as_str(), &exported.left_out[..]),
        (head.as_str(), &[][..]),
        "nothing else changed"
    );
    session.sh("echo c > c").await;
    let exported = export_as(&session, v1::ExportWorkspaceRequest::default()).await.unwrap();
    let (_directory, clone) = clone_with(&path, &exported);
    let log = ["log", "--format=%s|%b|%an", "main..HEAD"];
    let agent = "Flotilla Agent";
    assert_eq!(
        git(&clone, &log),
        format!("-m Agent's work||{agent}\nignored||{agent}\nfeat: b||Ann\nfeat: a|with a body\n|{agent}")
    );
    assert_eq!(git(&clone, &["ls-files"]), ".gitignore\nREADME.md\na\nb\nc\ntarget.log");
    assert_eq!(git(&clone, &["rev-parse", "HEAD^"]), head);

    let squashed = v1::ExportWorkspaceRequest { squash: true, ..Default::default() };
    let exported = export_as(&session, squashed).await.unwrap();
    let (_directory, clone) = clone_with(&path, &exported);
    assert_eq!(git(&clone, &log), format!("-m Agent's work||{agent}"));
    assert_eq!(git(&clone, &["ls-files"]), ".gitignore\nREADME.md\na\nb\nc\ntarget.log");
}

#[tokio::test]
async fn with_a_line_the_commits_become_commits_of_flotilla_and_always_the_same() {
    let directory = directory();
    let (_machine, session, path) = opened(directory.path()).await;
    session.sh(&format!("{COMMITS}; echo c > c")).await;
    let marked = || v1::ExportWorkspaceRequest {
        message_line: "Flotilla-Session: x".to_owned(),
        ..Default::default()
    };
    let exported = export_as(&session, marked()).await.unwrap();
    let (_directory, clone) = clone_with(&path, &exported);
    let log = git(&clone, &["log", "--format=%an %cn %(trailers:only,unfold)", "main..HEAD"]);
    let line = |author: &str| format!("{author} Flotilla Agent Flotilla-Session: x");
    let own = line("Flotilla Agent");
    assert_eq!(log, format!("{own}\n\n{own}\n\n{}\n\n{own}", line("Ann")));
    let again = export_as(&session, marked()).await.unwrap();
    let parent = |clone: &Path| git(clone, &["rev-parse", "HEAD^"]);
    let (_directory, second) = clone_with(&path, &again);
    assert_eq!(parent(&clone), parent(&second));
    // A merge is no chain, which a later push could continue.
    session.sh("git switch -qc other HEAD~1; echo d > d; git add d; git commit -qm d; git switch -q main; git merge -q other").await;
    let exported = export_as(&session, marked()).await.unwrap();
    assert_eq!(
        exported.left_out,
        ["5 commits of the session as commits, because there is a merge among them"]
    );
    let (_directory, clone) = clone_with(&path, &exported);
    assert_eq!(git(&clone, &["rev-list", "--count", "main..HEAD"]), "1");
    assert_eq!(git(&clone, &["ls-files"]), ".gitignore\nREADME.md\na\nb\nc\nd\ntarget.log");
}

#[tokio::test]
async fn a_result_says_what_work_it_lacks() {
    let directory = directory();
    let (_machine, session, path) = opened(directory.path()).await;
    session
        .sh("git checkout -qb fix/x; echo a > a; git add -A; git commit -qm fix; git checkout -q main; echo s >> README.md; git stash -q; \
             mkdir newapp; cd newapp; git init -q; echo page > page.tsx; echo out > .gitignore; touch out; cd ..; \
             git clone -q . lib; echo no > no; chmod 000 no; mkdir -m 000 dir")
        .await;
    let lacks = [
        "dir/, which cannot be read",
        "no, which cannot be read",
        "lib/, a repository from elsewhere",
        "branch fix/x, 1 commit",
        "the stash, 1 entry",
    ];
    let sorted = |mut texts: Vec<String>| {
        texts.sort();
        texts
    };
    let want = || sorted(lacks.iter().map(|text| (*text).to_owned()).collect());
    let changes = diff(&session, 0).await.unwrap();
    let files: Vec<_> = changes.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(files, ["newapp/.gitignore", "newapp/page.tsx"]);
    assert_eq!(sorted(changes.left_out), want());
    let exported = export_as(&session, v1::ExportWorkspaceRequest::default()).await.unwrap();
    assert_eq!(sorted(exported.left_out.clone()), want());
    let (_directory, clone) = clone_with(&path, &exported);
    assert_eq!(git(&clone, &["ls-files"]), ".gitignore\nREADME.md\nnewapp/.gitignore\nnewapp/page.tsx");
}

#[tokio::test]
async fn a_repository_outside_of_the_files_has_an_author() {
    let (_directory, _machine, session) = fresh(&[]).await;
    let log = session.sh("mkdir /tmp/r; cd /tmp/r; git init -q; git commit -q --allow-empty -m x; git log --format='%an <%ae>'").await;
    assert_eq!(log, "Flotilla Agent <agent@flotilla.invalid>");
}

#[tokio::test]
async fn a_rewritten_history_becomes_one_commit() {
    let directory = directory();
    let (_machine, session, path) = opened(directory.path()).await;
    session.sh("echo a > a; git add a; git commit -q --amend -m other; echo b > b; git add b; git commit -qm more").await;
    let exported = export_as(&session, v1::ExportWorkspaceRequest::default()).await.unwrap();
    let reason =
        "2 commits of the session as commits, because they do not descend from the commit that it began with";
    assert_eq!(exported.left_out, [reason]);
    let (_directory, clone) = clone_with(&path, &exported);
    assert_eq!(git(&clone, &["log", "--format=%s", "main..HEAD"]), "-m Agent's work");
    assert_eq!(git(&clone, &["ls-files"]), ".gitignore\nREADME.md\na\nb");
}

#[tokio::test]
async fn a_file_that_the_agent_committed_and_cannot_read_is_in_the_result() {
    let directory = directory();
    let (_machine, session, path) = opened(directory.path()).await;
    session.sh("echo mine > README.md; git commit -qam mine; chmod 000 README.md; echo a > a").await;
    let exported = export_as(&session, v1::ExportWorkspaceRequest::default()).await.unwrap();
    assert_eq!(exported.left_out, ["README.md, which cannot be read"]);
    let (_directory, clone) = clone_with(&path, &exported);
    assert_eq!(std::fs::read_to_string(clone.join("README.md")).unwrap(), "mine\n");
}

/// Whether the file was opened since the last call.
fn was_opened(watch: &Inotify) -> bool {
    match watch.read_events() {
        Ok(events) => !events.is_empty(),
        Err(Errno::EAGAIN) => false,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn nothing_that_looks_at_files_opens_those_that_have_not_changed() {
    let directory = directory();
    let path = repository(directory.path());
    std::fs::write(path.join("quiet"), "quiet\n").unwrap();
    git(&path, &["add", "."]);
    git(&path, &["commit", "-qm", "two files"]);
    let (_machine, session) = Machine::with_open(directory.path(), &path).await;
    // An old file: git reads files of the second in which its index was written. The first look learns the time.
    session.sh("touch -d '1 day ago' quiet; echo more >> README.md").await;
    diff(&session, 0).await.unwrap();
    let watch = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
    let quiet = session.place(&directory, "ws").join("tree/quiet");
    watch.add_watch(&quiet, AddWatchFlags::IN_OPEN).unwrap();
    assert_eq!(diff(&session, 0).await.unwrap().files.len(), 1);
    export(&session).await.unwrap();
    session.sh("git commit -qam mine").await;
    was_opened(&watch);
    diff(&session, 0).await.unwrap();
    export(&session).await.unwrap();
    assert!(!was_opened(&watch), "git reads a file that has not changed");
    session.sh("echo more >> quiet").await;
    assert!(was_opened(&watch));
    assert_eq!(diff(&session, 0).await.unwrap().files.len(), 2);
    assert!(was_opened(&watch), "the watch sees what the helper reads");
}

#[tokio::test]
async fn the_commit_of_an_export_does_not_wait_for_its_bundle() {
    let (_directory, _machine, session) = fresh(&[]).await;
    session.sh("head -c 3000 /dev/urandom > binary").await;
    let mut parts = export_parts(&session, v1::ExportWorkspaceRequest::default()).await.unwrap();
    let begun = parts.message().await.unwrap().unwrap();
    assert!(begun.base_commit.len() == 40 && begun.commit.is_empty() && begun.data.is_empty(), "{begun:?}");
    let first = parts.message().await.unwrap().unwrap();
    assert!(first.commit.len() == 40 && first.data.len() < 128, "{first:?}");
    let rest = parts.message().await.unwrap().unwrap();
    assert!(rest.commit.is_empty() && rest.data.len() > 2_900, "{rest:?}");
}

#[tokio::test]
async fn a_diff_and_an_export_beyond_their_bounds_are_refused_by_name() {
    let (_directory, _machine, session) = fresh(&[]).await;
    // One byte more than a bundle may have, and none of them on the disk.
    session.sh(&format!("truncate -s {} large", limits::BUNDLE_BYTES_MAX + 1)).await;
    let refused = export(&session).await.unwrap_err();
    assert!(
        refused.message().contains("268435456 bytes") && refused.message().contains("large, 256.0 MiB"),
        "{refused:?}"
    );
    assert_eq!(code::<()>(Err(refused)), "bundle_too_large");
    // 1,200 names of 3.6 KB.
    session
        .sh("rm large; name=$(printf 'x%.0s' {1..240}); for n in {1..15}; do mkdir $name; cd $name; done; for n in {1..1200}; do : > $n; done")
        .await;
    assert_eq!(code(diff(&session, 0).await), "diff_too_large");
}

#[tokio::test]
async fn an_export_of_an_empty_workspace_stands_alone() {
    let (directory, _machine, session) = fresh(&[]).await;
    session.write("hello.txt", b"hello\n").await.unwrap();
    let (commit, _, bundle) = export(&session).await.unwrap();
    let file = directory.path().join("out.bundle");
    std::fs::write(&file, bundle).unwrap();
    let clone = directory.path().join("clone");
    git(
        directory.path(),
        &["clone", "-q", "-b", "flotilla", file.to_str().unwrap(), clone.to_str().unwrap()],
    );
    assert_eq!(git(&clone, &["rev-parse", "HEAD"]), commit);
    assert_eq!(std::fs::read(clone.join("hello.txt")).unwrap(), b"hello\n");
}

#[tokio::test]
async fn configuration_in_the_workspace_runs_nothing_outside() {
    let directory = directory();
    let (_machine, session, _) = opened(directory.path()).await;
    // These programs leave a mark wherever git runs them.
    let mark = directory.path().join("mark");
    let program = format!("touch {0}; touch /workspace/ran; touch /run/sbx/scratch/ran; cat", mark.display());
    session.write("evil.sh", format!("#!/bin/sh\n{program}\n").as_bytes()).await.unwrap();
    session.sh("chmod +x evil.sh; \
        git init -q sub; echo x > sub/f; git -C sub add f; git -C sub -c user.name=a -c user.email=a@b commit -qm x; \
        for d in . sub; do git -C $d config core.fsmonitor /workspace/evil.sh; \
          git -C $d config filter.evil.clean /workspace/evil.sh; git -C $d config filter.evil.process /workspace/evil.sh; \
          git -C $d config diff.evil.textconv /workspace/evil.sh; git -C $d config diff.external /workspace/evil.sh; \
          git -C $d config core.hooksPath /workspace/hooks; done; \
        mkdir hooks; cp evil.sh hooks/post-index-change; cp evil.sh hooks/reference-transaction; \
        echo '* filter=evil diff=evil' > .gitattributes; echo '* filter=evil diff=evil' > sub/.gitattributes; \
        echo changed >> README.md; echo changed > sub/f; rm -f ran; git init -q nothing").await;
    let changes = diff(&session, 0).await.unwrap();
    let mut names: Vec<_> = changes.files.iter().map(|file| file.path.as_str()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            ".gitattributes",
            "README.md",
            "evil.sh",
            "hooks/post-index-change",
            "hooks/reference-transaction",
            "sub/.gitattributes",
            "sub/f"
        ]
    );
    assert!(changes.patch.contains("+changed"));
    export(&session).await.unwrap();
    assert!(!mark.exists());
    assert_eq!(
        session.sh("ls ran 2>/dev/null || echo none").await,
        "none",
        "git runs none of them inside either"
    );
}

#[tokio::test]
async fn line_ends_of_the_repository_are_not_changes() {
    let directory = directory();
    let path = repository(directory.path());
    std::fs::write(path.join(".gitattributes"), "*.bat text eol=crlf\n").unwrap();
    std::fs::write(path.join("run.bat"), "one\r\n").unwrap();
    git(&path, &["add", "."]);
    git(&path, &["commit", "-qm", "windows"]);
    let (_machine, session) = Machine::with_open(directory.path(), &path).await;
    assert_eq!(session.sh("od -c run.bat | head -n 1").await, "0000000   o   n   e  \\r  \\n");
    assert!(diff(&session, 0).await.unwrap().files.is_empty());
}

#[tokio::test]
async fn a_workspace_without_its_base_commit_gives_an_error() {
    let (_directory, machine, session) = fresh(&[]).await;
    session.sh("rm -rf .git; ln -s /oldroot/tmp .git").await;
    assert_eq!(code(diff(&session, 0).await), "base_commit_missing");
    assert_eq!(code(export(&session).await), "base_commit_missing");
    assert_eq!(code(diff(&machine.session(), 0).await), "workspace_missing");
}

pub async fn apply(session: &Session, patch: &str) -> Result<(), tonic::Status> {
    let fence = v1::Fence { epoch: 0, ..session.fence().unwrap() };
    let request = v1::ApplyPatchRequest { fence: Some(fence), patch: patch.to_owned() };
    session.client.clone().apply_patch(request).await.map(drop)
}

#[tokio::test]
async fn a_patch_that_does_not_fit_changes_nothing() {
    let directory = directory();
    let (_machine, session, _) = opened(directory.path()).await;
    session.sh(WORK).await;
    let patch = diff(&session, 0).await.unwrap().patch;
    session.sh("git checkout --quiet README.md && rm -r new link binary && git rm --quiet -f tool").await;
    assert!(diff(&session, 0).await.unwrap().files.is_empty());
    let text = patch.split("diff --git a/binary b/binary").collect::<Vec<_>>();
    let rest = text[1].split_once("diff --git ").unwrap().1;
    let patch = format!("{}diff --git {rest}", text[0]);
    apply(&session, &patch).await.unwrap();
    assert_eq!(
        session.sh("cat 'new/ä b.txt' && test -x tool && readlink link && tail -1 README.md").await,
        "neu\nREADME.md\nthree"
    );
    // The existing file does not match, so the file before it is not written either.
    let twice = format!(
        "diff --git a/0 b/0\nnew file mode 100644\n--- /dev/null\n+++ b/0\n@@ -0,0 +1 @@\n+x\n{patch}"
    );
    let refused = apply(&session, &twice).await.unwrap_err();
    assert!(refused.message().contains("already exists"), "{refused}");
    assert_eq!(code::<()>(Err(refused)), "patch_refused");
    assert_eq!(session.sh("ls 0 2>&1 || true").await, "ls: cannot access '0': No such file or directory");
}

#[tokio::test]
async fn an_incomplete_patch_is_undone() {
    let directory = directory();
    let (_machine, session, _) = opened(directory.path()).await;
    session.sh("mkdir a b ro; echo one | tee a/x b/y; chmod -R a-w a ro").await;
    let change = |path: &str| format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-one\n+two\n");
    let new = |path: &str| format!("--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n");
    let gone = "--- a/b/y\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n";
    for patch in [change("b/y") + &change("a/x"), new("n") + &new("ro/sub/x"), gone.to_owned() + &new("ro/x")]
    {
        assert_eq!(code(apply(&session, &patch).await), "file_not_permitted", "{patch}");
        assert_eq!(session.sh("cat a/x b/y; ls").await, "one\none\nREADME.md\na\nb\nro", "{patch}");
    }
    apply(&session, gone).await.unwrap();
    assert_eq!(session.sh("ls").await, "README.md\na\nro", "with its empty directory");
    let mut request = v1::ApplyPatchRequest { fence: session.fence(), patch: new("n") };
    let refused = session.client.clone().apply_patch(request.clone()).await;
    assert_eq!(code(refused), "argument_invalid", "a call of a loop");
    request.fence = Some(v1::Fence { epoch: 0, ..session.fence().unwrap() });
    session.client.clone().apply_patch(request).await.unwrap();
}

#[tokio::test]
async fn a_patch_cannot_reach_outside_the_files_or_run_a_program() {
    let directory = directory();
    let (machine, session, _) = opened(directory.path()).await;
    session.sh("ln -s /tmp out; git config core.hooksPath /workspace; git config core.fsmonitor 'touch /workspace/ran'; cat .git/config > was").await;
    let new = |path: &str| format!("--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n");
    for patch in [
        new("../x"),
        new(".git/hooks/post-checkout"),
        new("out/x"),
        new("/etc/x"),
        String::new(),
        "x".to_owned(),
    ] {
        let refused = apply(&session, &patch).await;
        assert_eq!(code(refused), "patch_refused", "{patch:?}");
    }
    assert_eq!(session.sh("ls /tmp .git/hooks ran 2>/dev/null; cmp was .git/config").await.trim(), "/tmp:");
    let long = "x".repeat(domain::limits::DIFF_BYTES_MAX + 1);
    assert_eq!(code(apply(&session, &long).await), "argument_invalid");
    assert_eq!(code(apply(&machine.session(), &new("x")).await), "workspace_missing");
}
