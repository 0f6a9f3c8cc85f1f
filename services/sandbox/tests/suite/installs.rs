//! Installs: the service runs the script once, in a clone of its own, and copies the files that it added into each session of the project.

use crate::{
    copies::export,
    environments::{Built, Running, begin_from, project},
    harness::{Machine, Session, code, directory, git, repository},
};
use rpc::v1::{self, EnvironmentStage, EnvironmentState, open_workspace_request::Part};
use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};
use tempfile::TempDir;
use tokio_stream::StreamExt as _;
use tonic::Status;

/// Waits for a file that a test makes in the door of the session.
const WAIT: &str = "until [ -e /run/egress/go ]; do sleep 0.05; done";

pub struct Site {
    pub directory: TempDir,
    pub machine: Machine,
    repository: PathBuf,
    arguments: Vec<String>,
}

impl Site {
    pub async fn start(arguments: &[&str]) -> Self {
        let directory = directory();
        let repository = repository(directory.path());
        for (name, content) in
            [("package.json", "{}"), ("package-lock.json", "one"), (".gitignore", "node_modules/\n")]
        {
            fs::write(repository.join(name), content).unwrap();
        }
        git(&repository, &["add", "."]);
        git(&repository, &["commit", "-qm", "packages"]);
        let root = directory.path().to_str().unwrap().to_owned();
        let fixed =
            ["--file-roots".to_owned(), root.clone(), "--egress".to_owned(), format!("{root}/egress")];
        let arguments: Vec<String> =
            fixed.into_iter().chain(arguments.iter().map(ToString::to_string)).collect();
        let machine = Self::launch(&directory, &arguments).await;
        Self { directory, machine, repository, arguments }
    }

    async fn launch(directory: &TempDir, arguments: &[String]) -> Machine {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Machine::start_with(directory.path(), &arguments).await
    }

    async fn restart(self) -> Self {
        let Self { directory, machine, repository, arguments } = self;
        machine.stop().await;
        let machine = Self::launch(&directory, &arguments).await;
        Self { directory, machine, repository, arguments }
    }

    pub fn header(&self, script: &str) -> v1::WorkspaceHeader {
        let install = v1::WorkspaceInstall { script: script.to_owned(), hosts: vec![], secrets: vec![] };
        v1::WorkspaceHeader {
            project_id: project(),
            git_url: format!("file://{}", self.repository.display()),
            install: Some(install),
            ..Default::default()
        }
    }

    fn session_of(&self, tenant: &str) -> Session {
        Session { tenant: tenant.to_owned(), ..self.machine.session() }
    }

    pub async fn begin(&self, session: &Session, header: v1::WorkspaceHeader) -> Result<Running, Status> {
        let header = v1::WorkspaceHeader { fence: session.fence(), ..header };
        let workspace = v1::OpenWorkspaceRequest { part: Some(Part::Header(header)) };
        let parts = [v1::InstallWorkspaceRequest { workspace: Some(workspace) }];
        let items = session.client.clone().install_workspace(tokio_stream::iter(parts)).await?;
        let progress = |item: v1::InstallWorkspaceResponse| item.progress.unwrap_or_default();
        Ok(begin_from(Box::pin(items.into_inner().map(move |item| item.map(progress)))).await)
    }

    async fn install(&self, session: &Session, script: &str) -> Built {
        self.begin(session, self.header(script)).await.unwrap().finish().await
    }

    /// Opens a session as a worker does, and gives whether something had to be installed.
    async fn open(&self, session: &Session, script: &str) -> bool {
        match session.open(self.header(script), vec![]).await {
            Ok(_) => return false,
            Err(status) => assert_eq!(rpc::status::code_of(&status).unwrap(), "install_missing"),
        }
        let built = self.install(session, script).await;
        assert_eq!(built.code, "", "{built:?}");
        session.open(self.header(script), vec![]).await.unwrap();
        true
    }

    async fn list(&self, tenant: &str) -> Vec<v1::Environment> {
        let request = v1::FindEnvironmentsRequest { tenant_id: tenant.to_owned(), project_id: String::new() };
        self.machine.client.clone().find_environments(request).await.unwrap().into_inner().environments
    }

    fn data(&self, name: &str) -> PathBuf {
        self.directory.path().join("data").join(name)
    }

    fn kept(&self, tenant: &str, key: &str) -> PathBuf {
        self.data("images/env").join(tenant.replace('-', "")).join(key).join("tree")
    }

    fn let_go(&self, session: &Session) {
        let tenant = session.tenant.replace('-', "");
        let door = self.directory.path().join("egress").join(tenant).join(&session.id).join("door");
        fs::write(door.join("go"), "").unwrap();
    }
}

fn count(directory: &Path) -> usize {
    fs::read_dir(directory).map_or(0, Iterator::count)
}

async fn diff(session: &Session) -> String {
    let request = v1::DiffWorkspaceRequest {
        tenant_id: session.tenant.clone(),
        session_id: session.id.clone(),
        ..Default::default()
    };
    session.client.clone().diff_workspace(request).await.unwrap().into_inner().patch
}

async fn snapshot(session: &Session) -> String {
    let request = v1::TrackSnapshotRequest { fence: session.fence() };
    session.client.clone().track_snapshot(request).await.unwrap().into_inner().snapshot
}

#[tokio::test]
async fn an_install_runs_once_and_each_session_gets_the_files_that_it_left() {
    let site = Site::start(&[]).await;
    let session = site.machine.session();
    let script = "echo $UID $PWD; mkdir -p node_modules/deep .git/hooks src; echo $RANDOM$RANDOM > node_modules/id
        echo tool > node_modules/deep/tool; chmod 750 node_modules/deep/tool; ln node_modules/deep/tool node_modules/again
        ln -s deep/tool node_modules/link; echo hook > .git/hooks/pre-commit; echo changed > README.md
        rm package.json; echo made > src/made.txt; echo made > made.txt; mkdir empty; sleep 1000 &";
    assert!(site.open(&session, script).await);
    let second = site.session_of(&session.tenant);
    assert!(!site.open(&second, script).await, "it is there");
    let look = "cat node_modules/id README.md made.txt src/made.txt package.json; stat -c '%a %h %U' node_modules/deep/tool
        readlink node_modules/link; cat node_modules/link; [ -e .git/hooks ] || echo no hooks; git status --short; ls -d empty";
    let first = session.sh(look).await;
    assert_eq!(second.sh(look).await, first);
    assert!(
        first.contains("one\ntwo\nmade\nmade\n{}"),
        "files of the repository are as in the commit: {first}"
    );
    assert!(first.ends_with("754 2 agent\ndeep/tool\ntool\nno hooks\nempty"), "{first}");
    // Neither a diff nor a snapshot shows what the install left, and both show what the agent does.
    assert_eq!(diff(&session).await, "");
    let before = snapshot(&session).await;
    session.sh("echo again >> made.txt; echo new >> node_modules/new").await;
    assert_eq!((diff(&session).await.as_str(), snapshot(&session).await), ("", before.clone()));
    session.sh("echo work > work.txt").await;
    assert!(diff(&session).await.contains("b/work.txt"));
    assert_ne!(snapshot(&session).await, before);
    // The copies are apart.
    assert_eq!(second.sh("cat made.txt; ls node_modules").await, "made\nagain\ndeep\nid\nlink");
    let list = site.list(&session.tenant).await;
    assert_eq!(
        (list.len(), list[0].state(), list[0].stage()),
        (1, EnvironmentState::Ready, EnvironmentStage::Install)
    );
    // Another lock file, script or host is another key; another file of the repository is not.
    fs::write(site.repository.join("side.txt"), "other").unwrap();
    git(&site.repository, &["add", "."]);
    git(&site.repository, &["commit", "-qm", "other"]);
    assert!(!site.open(&site.session_of(&session.tenant), script).await);
    let mut header = site.header(script);
    header.install.as_mut().unwrap().hosts = vec!["a.dev".to_owned()];
    assert_eq!(code(site.session_of(&session.tenant).open(header, vec![]).await), "install_missing");
    fs::write(site.repository.join("package-lock.json"), "two").unwrap();
    git(&site.repository, &["commit", "-qam", "lock"]);
    assert!(site.open(&site.session_of(&session.tenant), script).await);
    assert_eq!((count(&site.data("images/arrivals")), count(&site.data("scratch"))), (0, 0));
    site.machine.stop().await;
}

#[tokio::test]
async fn hostile_files_of_an_install_are_not_kept() {
    let site = Site::start(&[]).await;
    let session = site.machine.session();
    let secret = site.directory.path().join("secret");
    fs::write(&secret, "canary").unwrap();
    let script = format!(
        "mkdir node_modules; cd node_modules; mkfifo fifo; echo x > setid; chmod 6777 setid; mkdir dir; chmod 7777 dir
        ln -s {secret} out; ln -s / root; ln -s ../../../../../etc up; ln ../README.md hard; echo x > closed; chmod 0 closed
        bash -c 'exec 9<>/dev/tcp/1.1.1.1/53' 2>/dev/null && echo reached; cd ..; rm -rf src; ln -s / src
        mkdir -p nested/.git; echo evil > nested/.git/config; rm -rf .git; ln -s / .git; echo over",
        secret = secret.display()
    );
    let built = site.install(&session, &script).await;
    assert_eq!((built.code.as_str(), built.log.as_str()), ("", "over\n"), "{built:?}");
    let kept = site.kept(&session.tenant, &built.key);
    let mut open = vec![kept.clone()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let stat = path.symlink_metadata().unwrap();
            let kind = stat.file_type();
            assert!(!kind.is_fifo() && !kind.is_socket() && stat.mode() & 0o7000 == 0, "{}", path.display());
            assert!(path.file_name().unwrap() != ".git", "{}", path.display());
            assert!(!kind.is_file() || stat.nlink() == 1, "{}", path.display());
            if kind.is_dir() {
                open.push(path);
            }
        }
    }
    // Links are kept as they are, and the service follows none: they mean something only inside.
    assert_eq!(fs::read_link(kept.join("node_modules/out")).unwrap(), secret);
    assert!(!kept.join("src").exists() || kept.join("src").is_symlink());
    session.open(site.header(&script), vec![]).await.unwrap();
    assert_eq!(
        session
            .sh("cat node_modules/out 2>/dev/null; cat node_modules/hard README.md; git status --short")
            .await,
        "one\ntwo\none\ntwo"
    );
    // A repository with links in the place of directories is not left either.
    let linked = site.directory.path().join("linked");
    fs::create_dir(&linked).unwrap();
    std::os::unix::fs::symlink(site.directory.path(), site.repository.join("node_modules")).unwrap();
    git(&site.repository, &["add", "-f", "node_modules"]);
    git(&site.repository, &["commit", "-qm", "link"]);
    let other = site.session_of(&session.tenant);
    other.open(site.header(&script), vec![]).await.unwrap();
    assert!(!site.directory.path().join("setid").exists() && !site.directory.path().join("dir").exists());
    site.machine.stop().await;
}

#[tokio::test]
async fn another_tenant_or_project_has_no_part_in_an_install() {
    let site = Site::start(&[]).await;
    let (session, other) = (site.machine.session(), site.machine.session());
    let script = "mkdir node_modules; echo of one tenant > node_modules/secret";
    assert!(site.open(&session, script).await);
    assert_eq!(code(other.open(site.header(script), vec![]).await), "install_missing");
    assert!(site.list(&other.tenant).await.is_empty());
    let mut header = site.header(script);
    header.project_id = format!("prj_{}", "1".repeat(26));
    assert_eq!(code(site.session_of(&session.tenant).open(header, vec![]).await), "install_missing");
    // It goes with its tenant, or when a person removes it; a session keeps its copy.
    let key = site.list(&session.tenant).await[0].key.clone();
    let drop = |tenant: &str| v1::DropEnvironmentRequest { tenant_id: tenant.to_owned(), key: key.clone() };
    assert_eq!(
        code(site.machine.client.clone().drop_environment(drop(&other.tenant)).await),
        "environment_unknown"
    );
    site.machine.client.clone().drop_environment(drop(&session.tenant)).await.unwrap();
    assert_eq!(session.sh("cat node_modules/secret").await, "of one tenant");
    assert_eq!(
        code(site.session_of(&session.tenant).open(site.header(script), vec![]).await),
        "install_missing"
    );
    site.machine.stop().await;
}

#[tokio::test]
async fn a_copy_gets_what_its_origin_has_and_no_script_runs_with_its_files() {
    let site = Site::start(&[]).await;
    let origin = site.machine.session();
    let script =
        "mkdir node_modules; cp package.json node_modules/id; echo $RANDOM$RANDOM > node_modules/number";
    assert!(site.open(&origin, script).await);
    let look = "cat node_modules/number node_modules/id; ls node_modules; git status --short";
    let installed = origin.sh(look).await;
    origin.sh("echo two > package-lock.json; echo mine > package.json; git commit -qam mine").await;
    origin.sh("echo poisoned > node_modules/id").await;
    let (header, data) = export(&origin).await;
    let copy = site.session_of(&origin.tenant);
    copy.open(header.clone(), data.clone()).await.unwrap();
    let status = "\n M package-lock.json\n M package.json";
    assert_eq!(copy.sh(look).await, format!("{installed}{status}"));
    // A copy of the copy has it too.
    let (again, more) = export(&copy).await;
    assert_eq!(again.install_key, header.install_key);
    let second = site.session_of(&origin.tenant);
    second.open(again, more).await.unwrap();
    assert_eq!(second.sh(look).await, format!("{installed}{status}"));

    let other = site.session_of(&origin.tenant);
    let with_lfs =
        v1::WorkspaceHeader { uncommitted: false, lfs_session_id: origin.id.clone(), ..header.clone() };
    for copied in [&header, &with_lfs] {
        let scripted = v1::WorkspaceHeader { install_key: String::new(), ..copied.clone() };
        let scripted = v1::WorkspaceHeader { project_id: project(), ..scripted };
        let scripted = v1::WorkspaceHeader { install: site.header(script).install, ..scripted };
        assert_eq!(code(other.open(scripted.clone(), data.clone()).await), "argument_invalid");
        assert_eq!(code(site.begin(&other, scripted).await.map(|_| ())), "argument_invalid");
    }
    assert_eq!(site.list(&origin.tenant).await.len(), 1);
    // It is not made again from the files of an agent.
    let drop =
        v1::DropEnvironmentRequest { tenant_id: origin.tenant.clone(), key: header.install_key.clone() };
    site.machine.client.clone().drop_environment(drop).await.unwrap();
    assert_eq!(code(other.open(header.clone(), data.clone()).await), "install_missing");
    let without = v1::WorkspaceHeader { install_key: String::new(), ..header };
    other.open(without, data).await.unwrap();
    assert_eq!(other.sh("ls").await, "README.md\npackage-lock.json\npackage.json");
    site.machine.stop().await;
}

#[tokio::test]
async fn an_install_that_is_interrupted_leaves_nothing_and_callers_share_one_that_runs() {
    let site = Site::start(&[]).await;
    let session = site.machine.session();
    let script = format!("mkdir node_modules; echo half > node_modules/half; echo begun; {WAIT}; echo over");
    let mut running = site.begin(&session, site.header(&script)).await.unwrap();
    running.until("begun").await;
    let site = site.restart().await;
    let session = Session { client: site.machine.client.clone(), ..session };
    assert_eq!((count(&site.data("images/arrivals")), count(&site.data("scratch"))), (0, 0));
    assert_eq!(site.list(&session.tenant).await[0].code, "install_interrupted");
    assert_eq!(code(session.open(site.header(&script), vec![]).await), "install_missing");
    let mut running = site.begin(&session, site.header(&script)).await.unwrap();
    running.until("begun").await;
    let second = site.session_of(&session.tenant);
    let mut shared = site.begin(&second, site.header(&script)).await.unwrap();
    shared.until("begun").await;
    assert_eq!(shared.key, running.key);
    drop(running);
    site.let_go(&session);
    let built = shared.finish().await;
    assert_eq!((built.code.as_str(), built.log.as_str()), ("", "begun\nover\n"));
    // A session that is deleted ends its install, and one that has files begins none.
    let other = format!("{script}; true");
    let mut running = site.begin(&second, site.header(&other)).await.unwrap();
    running.until("begun").await;
    second.close().await;
    assert_eq!(running.finish().await.code, "install_interrupted");
    session.open(site.header(&script), vec![]).await.unwrap();
    let refused = site.begin(&session, site.header(&other)).await.map(|_| ());
    assert_eq!(code(refused), "argument_invalid");
    site.machine.stop().await;
}

#[tokio::test]
async fn an_install_that_fails_is_too_slow_or_too_large_tells_why_and_runs_again() {
    // Long enough for a walk of the disk on a busy machine.
    let site = Site::start(&["--install-ms", "5000", "--disk-bytes", "16777216"]).await;
    let session = site.machine.session();
    let script = "for n in {1..50}; do echo line $n; done; echo 'no such package' >&2; false; echo never";
    for _ in 0..2 {
        let failed = site.install(&session, script).await;
        assert_eq!((failed.code.as_str(), failed.is_ready), ("install_failed", false));
        assert!(
            failed.message.starts_with("the install failed with exit code 1; its last lines:\nline 12\n"),
            "{failed:?}"
        );
        assert!(failed.message.ends_with("no such package"), "{failed:?}");
    }
    assert_eq!(code(session.open(site.header(script), vec![]).await), "install_missing");
    let slow = site.install(&session, "echo begun; sleep 1000").await;
    assert_eq!(slow.code, "install_timeout");
    assert!(slow.message.contains("FLOTILLA_SANDBOX_INSTALL_MS"), "{slow:?}");
    let large = "for n in {1..9}; do head -c 4194304 /dev/zero > big$n; done; sleep 1000";
    assert_eq!(site.install(&session, large).await.code, "install_disk_full");
    // The kernel stops a single file before anybody looks.
    let single = site.install(&session, "set -e; head -c 33554432 /dev/zero > big").await;
    assert_eq!(single.code, "install_disk_full", "{single:?}");
    // Files without blocks still have bytes.
    let sparse = site.install(&session, "for n in {1..9}; do truncate -s 4194304 big$n; done").await;
    assert_eq!(sparse.code, "install_disk_full");
    let deep = site.install(&session, "for n in {1..70}; do mkdir d; cd d; done").await;
    assert_eq!(deep.code, "install_failed");
    assert_eq!(count(&site.data("scratch")), 0);
    assert_eq!(
        code(
            session.open(v1::WorkspaceHeader { git_url: String::new(), ..site.header("x\0") }, vec![]).await
        ),
        "argument_invalid"
    );
    site.machine.stop().await;
}
