//! Sources that are cloned before their workspace is opened.

use crate::harness::{Machine, Session, code, directory, git, repository};
use rpc::v1::{self, WorkspaceHeader};
use sha2::{Digest as _, Sha256};
use std::{fs, path::PathBuf, time::Duration};
use tempfile::TempDir;

struct Site {
    directory: TempDir,
    machine: Machine,
    repository: PathBuf,
}

impl Site {
    async fn start() -> Self {
        Self::start_with(&[]).await
    }

    async fn start_with(arguments: &[&str]) -> Self {
        let directory = directory();
        let repository = repository(directory.path());
        let machine = Self::launch(&directory, arguments).await;
        let site = Self { directory, machine, repository };
        site.commit(".flotilla/config.yaml", "environment: {image: one}\n");
        site
    }

    async fn launch(directory: &TempDir, arguments: &[&str]) -> Machine {
        let root = directory.path().to_str().unwrap();
        Machine::start_with(directory.path(), &[&["--file-roots", root], arguments].concat()).await
    }

    async fn restart(self) -> Self {
        let Self { directory, machine, repository } = self;
        machine.stop().await;
        let machine = Self::launch(&directory, &[]).await;
        Self { directory, machine, repository }
    }

    fn commit(&self, name: &str, content: &str) -> String {
        let file = self.repository.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
        git(&self.repository, &["add", "--all"]);
        git(&self.repository, &["commit", "-qm", "next"]);
        git(&self.repository, &["rev-parse", "HEAD"])
    }

    fn header(&self) -> WorkspaceHeader {
        WorkspaceHeader { git_url: format!("file://{}", self.repository.display()), ..Default::default() }
    }

    fn build(&self, session: &Session) -> PathBuf {
        session.place(&self.directory, "ws").join("build")
    }
}

fn at(header: WorkspaceHeader, cloned: &v1::CloneSourceResponse) -> WorkspaceHeader {
    WorkspaceHeader { base_commit: cloned.base_commit.clone(), ..header }
}

fn files(cloned: &v1::CloneSourceResponse) -> Vec<(&str, &str)> {
    let files = cloned.configuration.iter().flat_map(|configuration| &configuration.files);
    files.map(|file| (file.path.as_str(), file.text.as_str())).collect()
}

#[tokio::test]
async fn opening_takes_the_files_that_were_cloned_ahead() {
    let site = Site::start().await;
    for name in
        [".devcontainer.json", ".devcontainer/devcontainer.json", ".github/workflows/copilot-setup-steps.yml"]
    {
        site.commit(name, "{}");
    }
    site.commit(".github/workflows/ci.yml", "{}");
    let session = site.machine.session();
    let cloned = session.clone_source(site.header(), vec![]).await.unwrap();
    let want = [
        (".devcontainer.json", "{}"),
        (".devcontainer/devcontainer.json", "{}"),
        (".flotilla/config.yaml", "environment: {image: one}\n"),
        (".github/workflows/copilot-setup-steps.yml", "{}"),
    ];
    assert_eq!(files(&cloned), want);
    let request = v1::GetWorkspaceRequest { fence: session.fence() };
    assert!(!session.client.clone().get_workspace(request).await.unwrap().into_inner().exists);
    // A commit that comes meanwhile does not count, because no call clones again.
    let newer = site.commit("newer", "");
    assert_eq!(session.clone_source(site.header(), vec![]).await.unwrap(), cloned);
    let opened = session.open(at(site.header(), &cloned), vec![]).await.unwrap();
    assert_eq!((opened.created, &opened.base_commit), (true, &cloned.base_commit));
    assert_ne!(opened.base_commit, newer);
    assert_eq!(
        session.sh("ls newer 2>&1; git status --porcelain").await,
        "ls: cannot access 'newer': No such file or directory"
    );
    assert!(!site.build(&session).exists());
    // The files are those of the workspace now.
    assert_eq!(
        session.clone_source(site.header(), vec![]).await.unwrap(),
        v1::CloneSourceResponse::default()
    );
    // Another revision is another clone.
    let other = site.machine.session();
    let first = other.clone_source(site.header(), vec![]).await.unwrap();
    let side = WorkspaceHeader { revision: "side".to_owned(), ..site.header() };
    let second = other.clone_source(side.clone(), vec![]).await.unwrap();
    assert_ne!(first.base_commit, second.base_commit);
    assert_eq!(other.open(at(side, &second), vec![]).await.unwrap().base_commit, second.base_commit);
}

#[tokio::test]
async fn files_that_vanish_with_the_service_are_cloned_again_and_a_new_commit_is_told() {
    let site = Site::start().await;
    let session = site.machine.session();
    let cloned = session.clone_source(site.header(), vec![]).await.unwrap();
    assert!(site.build(&session).exists());
    let site = site.restart().await;
    let session = Session { client: site.machine.client.clone(), ..session };
    let newer = site.commit(".flotilla/config.yaml", "environment: {image: two}\n");
    assert_eq!(code(session.open(at(site.header(), &cloned), vec![]).await), "source_changed");
    let again = session.clone_source(site.header(), vec![]).await.unwrap();
    assert_eq!((files(&again)[0].1, &again.base_commit), ("environment: {image: two}\n", &newer));
    assert_eq!(session.open(at(site.header(), &again), vec![]).await.unwrap().base_commit, newer);
    // What was cloned and never opened goes with its session.
    let left = site.machine.session();
    left.clone_source(site.header(), vec![]).await.unwrap();
    left.close().await;
    assert!(!site.build(&left).exists());
    // A session without a source has nothing to clone.
    assert_eq!(code(left.clone_source(WorkspaceHeader::default(), vec![]).await), "argument_invalid");
}

#[tokio::test]
async fn files_that_no_session_opens_expire() {
    let site = Site::start_with(&["--draft-ms", "100"]).await;
    let session = site.machine.session();
    session.clone_source(site.header(), vec![]).await.unwrap();
    let build = site.build(&session);
    // The service tells no client that it has removed them.
    while build.exists() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(session.open(site.header(), vec![]).await.unwrap().created);
}

#[tokio::test]
async fn a_bundle_is_received_once() {
    let site = Site::start().await;
    let file = site.directory.path().join("source.bundle");
    git(&site.repository, &["bundle", "create", "-q", file.to_str().unwrap(), "HEAD", "main"]);
    let bytes = fs::read(file).unwrap();
    let sha256 = domain::text::hex(&Sha256::digest(&bytes));
    let header = WorkspaceHeader { bundle: true, bundle_sha256: sha256, ..Default::default() };
    let session = site.machine.session();
    let cloned = session.clone_source(header.clone(), bytes.clone()).await.unwrap();
    // No bytes come with the second call.
    let opened = session.open(at(header.clone(), &cloned), vec![]).await.unwrap();
    assert_eq!((opened.created, opened.base_commit), (true, cloned.base_commit.clone()));
    // Without the files, the bytes are needed.
    let other = site.machine.session();
    assert_eq!(code(other.open(at(header, &cloned), vec![]).await), "bundle_invalid");
}
