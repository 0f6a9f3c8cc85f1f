//! What a commit has for agents, read without giving files to a session.

use crate::harness::{Machine, Session, code, directory, git, repository};
use rpc::v1::{self, WorkspaceHeader};
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// A repository with guidance of every kind, and a machine that may clone it.
struct Testbed {
    directory: TempDir,
    repository: PathBuf,
    machine: Machine,
}

impl Testbed {
    async fn start() -> Self {
        let directory = directory();
        let repository = repository(directory.path());
        for (name, text) in [
            ("CLAUDE.md", "be brief\n"),
            ("docs/style.md", "no tabs\n"),
            (".claude/skills/deploy/SKILL.md", "---\nname: deploy\ndescription: ships it\n---\n"),
            ("opencode.json", "{\"instructions\":[\"docs/*.md\"]}"),
            (".gitmodules", "[submodule \"a\"]\n\tpath = vendor/a\n"),
        ] {
            write(&repository, name, text);
        }
        symlink("CLAUDE.md", repository.join("AGENTS.md")).unwrap();
        fs::create_dir_all(repository.join("vendor/a")).unwrap();
        commit(&repository);
        let root = directory.path().to_str().unwrap();
        let machine = Machine::start_with(directory.path(), &["--file-roots", root]).await;
        Self { directory, repository, machine }
    }

    fn header(&self) -> WorkspaceHeader {
        WorkspaceHeader { git_url: format!("file://{}", self.repository.display()), ..Default::default() }
    }

    /// The entries of a directory of the machine.
    fn entries(&self, name: &str) -> usize {
        fs::read_dir(self.directory.path().join("data").join(name)).map_or(0, Iterator::count)
    }
}

fn write(repository: &Path, name: &str, text: &str) {
    let file = repository.join(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

fn commit(repository: &Path) -> String {
    git(repository, &["add", "--all"]);
    git(repository, &["commit", "-qm", "next"]);
    git(repository, &["rev-parse", "HEAD"])
}

fn question(known_commit: &str) -> v1::ReadSourceRequest {
    v1::ReadSourceRequest {
        instructions: vec!["docs/*.md".to_owned()],
        known_commit: known_commit.to_owned(),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_commit_guides_as_the_files_of_a_new_workspace_do_and_gives_the_session_none() {
    let testbed = Testbed::start().await;
    let session = testbed.machine.session();
    let read = session.read_source(testbed.header(), vec![], question("")).await.unwrap();
    let guidance = read.guidance.unwrap();
    assert_eq!((read.commit.as_str(), read.is_known), (guidance.base_commit.as_str(), false));
    assert!(read.has_linked_content);
    assert!(!guidance.missing_content.is_empty() && guidance.skills.len() == 1, "{guidance:?}");
    let request = v1::GetWorkspaceRequest { fence: session.fence() };
    assert!(!session.client.clone().get_workspace(request).await.unwrap().into_inner().exists);
    assert_eq!(testbed.entries("scratch"), 0);

    // It opens the files that were read, although there is a newer commit.
    write(&testbed.repository, "newer", "");
    commit(&testbed.repository);
    let opened = session.open(testbed.header(), vec![]).await.unwrap();
    assert_eq!(opened.base_commit, read.commit);
    let request = v1::ReadGuidanceRequest {
        fence: session.fence(),
        instructions: question("").instructions,
        ..Default::default()
    };
    let of_files = session.client.clone().read_guidance(request).await.unwrap().into_inner();
    assert_eq!(guidance, of_files);
    // From now on the files count.
    let read = session.read_source(testbed.header(), vec![], question("")).await.unwrap();
    assert_eq!(read, v1::ReadSourceResponse::default());
}

#[tokio::test]
async fn only_a_revision_that_names_another_commit_is_read_again() {
    let testbed = Testbed::start().await;
    let session = testbed.machine.session();
    let of = |revision: &str, branch: &str| WorkspaceHeader {
        revision: revision.to_owned(),
        branch: branch.to_owned(),
        ..testbed.header()
    };
    let read = async |header: &WorkspaceHeader, known: &str| {
        session.read_source(header.clone(), vec![], question(known)).await.unwrap()
    };
    let main = git(&testbed.repository, &["rev-parse", "HEAD"]);
    let side = git(&testbed.repository, &["rev-parse", "side"]);
    git(&testbed.repository, &["tag", "light"]);
    git(&testbed.repository, &["tag", "-m", "text", "heavy"]);
    for (header, want) in [
        (of("", ""), &main),
        (of("side", ""), &side),
        (of("refs/heads/side", ""), &side),
        (of("light", ""), &main),
        (of("heavy", ""), &main),
        (of("", "side"), &side),
        (of("side", "new"), &side),
    ] {
        let first = read(&header, "").await;
        assert_eq!((&first.commit, first.is_known), (want, false), "{header:?}");
        let again = read(&header, want).await;
        assert_eq!((&again.commit, again.is_known, again.guidance), (want, true, None), "{header:?}");
        let other = read(&header, &"0".repeat(40)).await;
        assert_eq!((&other.commit, other.is_known, other.guidance), (want, false, first.guidance));
    }
    // Only a clone finds what this names.
    let short = read(&of(&main[..8], ""), &main).await;
    assert_eq!((&short.commit, short.is_known), (&main, false));
    write(&testbed.repository, "CLAUDE.md", "be long\n");
    let newer = commit(&testbed.repository);
    let read = read(&of("", ""), &main).await;
    assert_eq!((&read.commit, read.is_known), (&newer, false));
    assert_eq!(read.guidance.unwrap().instructions[0].text, "be long\n");
}

#[tokio::test]
async fn a_reading_shuts_no_other_caller_out_and_only_a_warm_up_reads_ahead() {
    let testbed = Testbed::start().await;
    let session = Session { epoch: 7, ..testbed.machine.session() };
    session.read_source(testbed.header(), vec![], question("")).await.unwrap();
    let person = Session { epoch: 0, ..session.clone() };
    let first = Session { epoch: 1, ..session.clone() };
    first.open(testbed.header(), vec![]).await.unwrap();
    let request = v1::ReadGuidanceRequest { fence: person.fence(), ..Default::default() };
    person.client.clone().read_guidance(request).await.unwrap();
    let ahead = v1::ReadSourceRequest { ahead: true, ..Default::default() };
    for project in ["", "prj_1"] {
        let header = WorkspaceHeader { project_id: project.to_owned(), ..testbed.header() };
        let refused = testbed.machine.session().read_source(header, vec![], ahead.clone()).await;
        assert_eq!(code(refused), "argument_invalid");
    }
    let missing = WorkspaceHeader { git_url: format!("{}x", testbed.header().git_url), ..Default::default() };
    let refused = testbed.machine.session().read_source(missing, vec![], question("")).await;
    assert_eq!(code(refused), "repository_not_found");
    let nothing = testbed.machine.session();
    let refused = nothing.read_source(WorkspaceHeader::default(), vec![], question("")).await;
    assert_eq!(code(refused), "argument_invalid");
}
