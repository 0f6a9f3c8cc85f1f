//! Opening and closing workspaces.

use crate::{
    changes::{self, diff},
    harness::{Machine, Session, code, directory, fresh, git, repository},
};
use rpc::v1::{self, WorkspaceHeader};
use tokio::{io::AsyncReadExt as _, net::TcpListener};

fn of(git_url: &str, revision: &str) -> WorkspaceHeader {
    WorkspaceHeader { git_url: git_url.to_owned(), revision: revision.to_owned(), ..Default::default() }
}

#[tokio::test]
async fn a_directory_is_cloned_at_a_branch_tag_or_commit() {
    let directory = directory();
    let path = repository(directory.path());
    let root = directory.path().to_str().unwrap();
    let machine = Machine::start_with(directory.path(), &["--file-roots", root]).await;
    let url = format!("file://{}", path.display());
    let first = git(&path, &["rev-parse", "v1"]);
    for (revision, commit, branch) in [
        ("", "main", "main"),
        ("side", "side", "side"),
        ("refs/heads/side", "side", "side"),
        ("v1", "v1", "HEAD"),
        (first.as_str(), "v1", "HEAD"),
        (&first[..10], "v1", "HEAD"),
    ] {
        let session = machine.session();
        let opened = session.open(of(&url, revision), Vec::new()).await.unwrap();
        assert_eq!(opened.base_commit, git(&path, &["rev-parse", commit]), "{revision}");
        assert_eq!((opened.created, opened.directory.as_str()), (true, "/workspace"));
        let facts = session.sh("git status --porcelain; git rev-parse --abbrev-ref HEAD; git config user.email; git remote get-url origin").await;
        assert_eq!(facts, format!("{branch}\nagent@flotilla.invalid\n{url}"), "{revision}");
        let again = session.open(of(&url, "no such thing"), Vec::new()).await.unwrap();
        assert_eq!((again.created, again.base_commit), (false, opened.base_commit));
    }
    let session = machine.session();
    assert_eq!(code(session.open(of(&url, "nowhere"), Vec::new()).await), "revision_not_found");
    assert_eq!(code(session.open(of(&url, "--upload-pack=x"), Vec::new()).await), "revision_not_found");
    let missing = format!("{root}/missing");
    assert_eq!(code(session.open_url(&format!("file://{missing}")).await), "repository_not_found");
    std::fs::create_dir(&missing).unwrap();
    assert_eq!(code(session.open_url(&format!("file://{missing}")).await), "repository_not_found");
    // After all those failures the workspace can still be opened.
    assert!(session.open_url(&url).await.unwrap().created);
}

#[tokio::test]
async fn files_begin_on_a_named_branch() {
    let directory = directory();
    let path = repository(directory.path());
    let root = directory.path().to_str().unwrap();
    let machine = Machine::start_with(directory.path(), &["--file-roots", root]).await;
    let url = format!("file://{}", path.display());
    let at =
        |revision: &str, branch: &str| WorkspaceHeader { branch: branch.to_owned(), ..of(&url, revision) };
    for (revision, branch, commit) in [
        ("", "opencode/new", "main"),
        ("v1", "opencode/new", "v1"),
        ("v1", "side", "side"),
        ("side", "main", "main"),
    ] {
        let session = machine.session();
        let opened = session.open(at(revision, branch), Vec::new()).await.unwrap();
        assert_eq!(opened.base_commit, git(&path, &["rev-parse", commit]), "{revision} {branch}");
        assert_eq!(opened.branch, branch, "{revision}");
        assert_eq!(session.sh("git status --porcelain; git rev-parse --abbrev-ref HEAD").await, branch);
    }
    assert_eq!(code(machine.session().open(at("", "-x"), Vec::new()).await), "revision_not_found");
}

#[tokio::test]
async fn sessions_without_files_share_nothing_but_what_they_begin_with() {
    let (directory, machine, first) = fresh(&[]).await;
    let second = machine.empty_session_of(&uuid::Uuid::now_v7().to_string()).await;
    let opened = first.open(WorkspaceHeader::default(), vec![]).await.unwrap();
    let facts = "git status --porcelain --branch; git log --format='%an %ae %s'; git config user.name; find . -not -user $(id -u)";
    let want = "## main\nFlotilla Agent agent@flotilla.invalid Empty workspace\nFlotilla Agent";
    for session in [&first, &second] {
        assert_eq!(session.sh(facts).await, want);
    }
    first
        .sh("echo x > .git/HEAD; chmod -R u+w .git; for f in $(find .git -type f); do echo broken > $f; done")
        .await;
    assert_eq!(second.sh(facts).await, want);
    let third = machine.empty_session().await;
    assert_eq!(third.sh(facts).await, want);
    assert_eq!(
        third.sh("echo a > a; git add a; git commit -qm more; git rev-parse HEAD^").await,
        opened.base_commit
    );
    assert!(!directory.path().join("data/empty/tree/a").exists());
}

/// A machine may get back a copy of files that were lost and then started again.
#[tokio::test]
async fn a_copy_of_an_earlier_opening_is_not_taken_for_the_current_files() {
    let (directory, machine, _session) = fresh(&[]).await;
    let first = Session { opening: Some(0), ..machine.session() };
    first.open(WorkspaceHeader::default(), vec![]).await.unwrap();
    first.write("old", b"old").await.unwrap();
    let (place, copy) = (first.place(&directory, "ws"), directory.path().join("copy"));
    first.release().await.unwrap();
    std::fs::rename(&place, &copy).unwrap();
    let second = Session { opening: Some(1), ..first.clone() };
    second.open(WorkspaceHeader::default(), vec![]).await.unwrap();
    second.write("new", b"new").await.unwrap();
    assert_eq!(code(first.read("new").await), "workspace_missing");
    assert_eq!(code(first.open(WorkspaceHeader::default(), vec![]).await), "workspace_missing");
    assert_eq!(second.read("new").await.unwrap().data, b"new", "a late caller changes nothing");
    second.release().await.unwrap();
    std::fs::rename(&place, directory.path().join("newest")).unwrap();
    std::fs::rename(&copy, &place).unwrap();
    let mut client = second.client.clone();
    let request = v1::GetWorkspaceRequest { fence: second.fence() };
    assert!(!client.get_workspace(request).await.unwrap().into_inner().exists);
    assert_eq!(code(second.read("old").await), "workspace_missing");
    assert_eq!(code(second.write("old", b"x").await), "workspace_missing");
    assert_eq!(code(second.start(second.command("exec", "ls")).await), "workspace_missing");
    assert_eq!(code(diff(&second, 0).await), "workspace_missing");
    // The next opening replaces the copy.
    let third = Session { opening: Some(2), ..second.clone() };
    assert!(third.open(WorkspaceHeader::default(), vec![]).await.unwrap().created);
    assert_eq!(third.sh("ls").await, "");
}

#[tokio::test]
async fn a_part_of_a_history_is_opened_and_its_copy_is_too() {
    let directory = directory();
    let path = repository(directory.path());
    let end = git(&path, &["rev-parse", "HEAD"]);
    std::fs::write(path.join("more"), "more\n").unwrap();
    git(&path, &["add", "."]);
    git(&path, &["commit", "-qm", "more"]);
    let head = git(&path, &["rev-parse", "HEAD"]);
    // A repository whose history ends at the commit before the last one, as a shallow clone has it.
    std::fs::write(path.join("later"), "later\n").unwrap();
    git(&path, &["add", "."]);
    git(&path, &["commit", "-qm", "later"]);
    let clone = directory.path().join("shallow");
    let url = format!("file://{}", path.display());
    git(directory.path(), &["clone", "-q", "--depth=2", &url, clone.to_str().unwrap()]);
    git(&clone, &["update-ref", "refs/flotilla/shallow/0", &head]);
    let file = directory.path().join("part.bundle");
    git(
        &clone,
        &["bundle", "create", "-q", file.to_str().unwrap(), "HEAD", "main", "refs/flotilla/shallow/0"],
    );
    let machine = Machine::start(directory.path()).await;
    let session = machine.session();
    let header = v1::WorkspaceHeader { bundle: true, ..Default::default() };
    session.open(header, std::fs::read(&file).unwrap()).await.unwrap();
    let facts = "git log --format=%s; git status --short --branch; ls; git cat-file -t HEAD^^ 2>&1 || true; git fsck 2>&1";
    let seen = session.sh(facts).await;
    assert!(seen.starts_with("later\nmore\n## main...origin/main\nREADME.md\nlater\nmore\n"), "{seen}");
    assert!(
        !seen.contains("missing")
            && session.sh(&format!("git cat-file -e {end} || echo away")).await.contains("away"),
        "{seen}"
    );
    session.sh("echo x > new; git add new; git commit -qm new; echo y > other").await;
    assert_eq!(changes::diff(&session, 0).await.unwrap().files.len(), 2);
    let (commit, base, _) = changes::export(&session).await.unwrap();
    assert_eq!((base, commit.len()), (git(&path, &["rev-parse", "HEAD"]), 40));

    // The copy of a subtask, and a fork.
    let request = v1::ExportWorkspaceRequest {
        tenant_id: session.tenant.clone(),
        session_id: session.id.clone(),
        history: v1::ExportHistory::Whole.into(),
        ..Default::default()
    };
    let mut pieces = session.client.clone().export_workspace(request).await.unwrap().into_inner();
    let v1::ExportWorkspaceResponse { mut data, commit, .. } = pieces.message().await.unwrap().unwrap();
    while let Some(piece) = pieces.message().await.unwrap() {
        data.extend(piece.data);
    }
    let header =
        v1::WorkspaceHeader { bundle: true, revision: commit, uncommitted: true, ..Default::default() };
    let copy = machine.session();
    copy.open(header, data).await.unwrap();
    assert_eq!(copy.sh("git log --format=%s; git status --short").await, "later\nmore\n?? new\n?? other");
}

#[tokio::test]
async fn a_bundle_is_opened() {
    let (directory, machine, _session) = fresh(&[]).await;
    let path = repository(directory.path());
    let file = directory.path().join("all.bundle");
    git(&path, &["bundle", "create", "-q", file.to_str().unwrap(), "--branches", "--tags"]);
    let bytes = std::fs::read(&file).unwrap();
    for (revision, commit) in [("", "main"), ("side", "side"), ("v1", "v1")] {
        let session = machine.session();
        let header = WorkspaceHeader { bundle: true, revision: revision.to_owned(), ..Default::default() };
        let opened = session.open(header, bytes.clone()).await.unwrap();
        assert_eq!(opened.base_commit, git(&path, &["rev-parse", commit]), "{revision}");
        assert_eq!(session.sh("git status --porcelain").await, "");
    }
    let bundle = || WorkspaceHeader { bundle: true, ..Default::default() };
    let session = machine.session();
    assert_eq!(code(session.open(bundle(), b"PACK nonsense".to_vec()).await), "bundle_invalid");
    assert_eq!(code(session.open(bundle(), Vec::new()).await), "bundle_invalid");
    git(&path, &["bundle", "create", "-q", file.to_str().unwrap(), "v1..main"]);
    assert_eq!(code(session.open(bundle(), std::fs::read(&file).unwrap()).await), "bundle_invalid");
    let left = std::fs::read_dir(directory.path().join("data/uploads")).unwrap().count();
    assert_eq!(left, 0, "uploads are removed");
}

#[tokio::test]
async fn an_ssh_source_is_reached_at_its_address() {
    let directory = directory();
    let settings = ["--git-schemes", "ssh", "--git-private-networks"];
    let machine = Machine::start_with(directory.path(), &settings).await;
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ssh://git@127.0.0.1:{}/r.git", server.local_addr().unwrap().port());
    let session = machine.session();
    let greeting = async {
        let mut greeting = [0; 4];
        server.accept().await.unwrap().0.read_exact(&mut greeting).await.unwrap();
        greeting
    };
    // The server says nothing and leaves.
    let (opened, greeting) = tokio::join!(session.open_url(&url), greeting);
    assert_eq!(&greeting, b"SSH-");
    assert_eq!(code(opened), "repository_unreachable");
}

#[tokio::test]
async fn urls_that_run_programs_or_reach_inside_are_refused() {
    let directory = directory();
    let path = repository(directory.path());
    let allowed = directory.path().join("allowed");
    std::fs::create_dir(&allowed).unwrap();
    std::os::unix::fs::symlink(&path, allowed.join("link")).unwrap();
    let machine = Machine::start_with(directory.path(), &["--file-roots", allowed.to_str().unwrap()]).await;
    let session = machine.session();
    for url in [
        "ext::sh -c touch% /tmp/pwned",
        "ext::x",
        "fd::17/foo",
        "/etc",
        "../x",
        "-uhttps://x",
        "--upload-pack=touch",
        "https://example.com/a b",
        "https://example.com/a\n",
        "http://example.com/x.git",
        "git://example.com/x.git",
        "ssh://git@example.com/x.git",
        "git@example.com:x.git",
        "https://user:secret@example.com/x.git",
        "https://token@example.com/x.git",
        "https://127.0.0.1/x.git",
        "https://localhost/x.git",
        "https://169.254.169.254/latest",
        "https://0x7f.1/x",
        "https://[::1]/x.git",
        "https:///x.git",
        "file:///etc",
        "file://localhost/etc",
        &format!("file://{}", path.display()),
        &format!("file://{}/../repository", allowed.display()),
        &format!("file://{}/link", allowed.display()),
    ] {
        assert_eq!(code(session.open_url(url).await), "url_not_allowed", "{url}");
    }
    assert!(
        !session
            .client
            .clone()
            .get_workspace(v1::GetWorkspaceRequest { fence: session.fence() })
            .await
            .unwrap()
            .into_inner()
            .exists
    );
}

#[tokio::test]
async fn an_empty_workspace_has_a_first_commit() {
    let (_directory, _machine, session) = fresh(&[]).await;
    assert_eq!(
        session
            .sh("git log --format='%an <%ae> %s'; git status --porcelain; git branch --show-current")
            .await,
        "Flotilla Agent <agent@flotilla.invalid> Empty workspace\nmain"
    );
    session.sh("echo x > file; git add file; git commit -qm mine").await;
}

#[tokio::test]
async fn a_closed_workspace_is_gone_whatever_it_contained() {
    let (directory, _machine, session) = fresh(&[]).await;
    session
        .sh("mkdir -p closed/inside; echo x > closed/inside/f; chmod 000 closed/inside closed; \
                for i in $(seq 200); do mkdir deep$i && cd deep$i; done")
        .await;
    session.start(session.command("left", "sleep 1000")).await.unwrap();
    let request = v1::CloseWorkspaceRequest { fence: session.fence() };
    session.client.clone().close_workspace(request.clone()).await.unwrap();
    let tenant = session.tenant.replace('-', "");
    for kind in ["ws", "execs"] {
        assert!(!directory.path().join("data").join(kind).join(&tenant).join(&session.id).exists(), "{kind}");
    }
    assert_eq!(code(session.start(session.command("e", "true")).await), "workspace_missing");
    assert_eq!(code(session.read("f").await), "workspace_missing");
    session.client.clone().close_workspace(request).await.unwrap();
    // And may be opened again.
    assert!(session.open(WorkspaceHeader::default(), Vec::new()).await.unwrap().created);
    assert_eq!(session.sh("ls").await, "");
}

#[tokio::test]
async fn invalid_ids_are_refused() {
    let (_directory, machine, session) = fresh(&[]).await;
    for (tenant, id) in [("../x", session.id.as_str()), (session.tenant.as_str(), "ses_../../x"), ("", "")] {
        let fence =
            v1::Fence { tenant_id: tenant.to_owned(), session_id: id.to_owned(), ..Default::default() };
        let request = v1::GetWorkspaceRequest { fence: Some(fence) };
        assert_eq!(code(machine.client.clone().get_workspace(request).await), "argument_invalid");
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_named() {
    let directory = directory();
    let machine = Machine::start_with(directory.path(), &["--git-private-networks"]).await;
    let status = machine.session().open_url("https://localhost:1/x.git").await.unwrap_err();
    // The helper reached the machine's network, where no server listens.
    assert!(status.message().contains("localhost"), "{status:?}");
    assert_eq!(code::<()>(Err(status)), "repository_unreachable");
}

#[tokio::test]
async fn a_machine_lists_what_it_has_of_each_session() {
    let (_directory, machine, session) = fresh(&[]).await;
    let child = session.child();
    child.sh("echo x > file").await;
    let request = v1::ListWorkspacesRequest::default();
    let answer = machine.client.clone().list_workspaces(request).await.unwrap().into_inner();
    assert_eq!(answer.next_cursor, "");
    let mut listed = answer.workspaces;
    listed.sort_by_key(|stored| !stored.has_files);
    let listed: Vec<_> = listed.iter().map(|it| (it.session_id.as_str(), it.has_files, it.epoch)).collect();
    assert_eq!(listed, [(session.id.as_str(), true, 1), (child.id.as_str(), false, 1)]);
}

#[tokio::test]
async fn nothing_of_a_closed_tenant_stays_or_comes_back() {
    let (directory, machine, session) = fresh(&[]).await;
    let child = session.child();
    child.sh("echo x > file").await;
    let other = machine.empty_session().await;
    session.start(session.command("left", "sleep 1000")).await.unwrap();
    let request = || v1::CloseTenantRequest { tenant_id: session.tenant.clone() };
    machine.client.clone().close_tenant(request()).await.unwrap();
    let tenant = session.tenant.replace('-', "");
    for kind in ["ws", "execs", "fence"] {
        assert!(!directory.path().join("data").join(kind).join(&tenant).exists(), "{kind}");
    }
    assert_eq!(code(session.open(WorkspaceHeader::default(), Vec::new()).await), "tenant_closed");
    assert_eq!(code(child.read("file").await), "tenant_closed");
    machine.client.clone().close_tenant(request()).await.unwrap();
    assert_eq!(other.sh("echo here").await, "here", "other tenants keep theirs");

    machine.stop().await;
    let machine = Machine::start(directory.path()).await;
    let session = crate::harness::Session { client: machine.client.clone(), ..session };
    assert_eq!(code(session.open(WorkspaceHeader::default(), Vec::new()).await), "tenant_closed");
    let invalid = v1::CloseTenantRequest { tenant_id: "../x".to_owned() };
    assert_eq!(code(machine.client.clone().close_tenant(invalid).await), "argument_invalid");
}

#[tokio::test]
async fn a_bundle_with_other_bytes_than_announced_is_refused() {
    let directory = directory();
    let machine = Machine::start(directory.path()).await;
    let header = WorkspaceHeader { bundle: true, bundle_sha256: "0".repeat(64), ..Default::default() };
    let refused = machine.session().open(header, b"bytes".to_vec()).await;
    assert!(refused.as_ref().unwrap_err().message().contains("incomplete or damaged"), "{refused:?}");
    assert_eq!(code(refused), "bundle_invalid");
}
