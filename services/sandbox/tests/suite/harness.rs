//! A sandbox service in this process, and one session of it.

use chassis::Service;
use clap::Parser as _;
use rpc::v1::{
    self, AttachExecRequest, ExecEnd, ExecExit, Fence, OpenWorkspaceRequest, StartExecRequest,
    WorkspaceHeader, attach_exec_response::Item, open_workspace_request::Part,
    sandbox_service_client::SandboxServiceClient,
};
use sandbox::{
    config::Config,
    isolation::{
        facts::Facts,
        launch::{Directories, LaunchSpec, Launcher, Mount, Program, give_to},
        policy::Network,
        root::image::Root,
    },
    user_ids::UserIds,
};
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};
use tempfile::TempDir;
use tokio::{io::AsyncReadExt as _, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tonic::{
    Request, Status, metadata::MetadataValue, service::interceptor::InterceptedService, transport::Channel,
};

pub const TOKEN: &str = "test-token-of-the-sandbox";
/// A command that leaves a process behind, which holds a lock on the file `held`.
pub const HOLDER: &str = "touch held; (setsid flock held bash -c 'touch ready; sleep 1000' > /dev/null 2>&1 &); \
                          until [ -e ready ]; do sleep 0.02; done";

type Auth = fn(Request<()>) -> Result<Request<()>, Status>;
pub type Client = SandboxServiceClient<InterceptedService<Channel, Auth>>;

#[derive(clap::Parser)]
struct Cli {
    #[command(flatten)]
    config: Config,
}

/// One life of the service.
pub struct Machine {
    pub client: Client,
    pub url: String,
    /// What the service reports on its admin port.
    pub health: chassis::admin::Health,
    shutdown: CancellationToken,
    running: JoinHandle<anyhow::Result<()>>,
}

/// A session on a machine.
#[derive(Clone)]
pub struct Session {
    pub client: Client,
    pub tenant: String,
    pub id: String,
    /// The session whose workspace it uses; empty: its own.
    pub workspace: String,
    pub epoch: u64,
    /// The opening of the workspace that it knows; `None`: any.
    pub opening: Option<u32>,
}

/// The result of an exec.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub output: String,
    pub exit: ExecExit,
}

#[allow(clippy::result_large_err)]
fn authorize(mut request: Request<()>) -> Result<Request<()>, Status> {
    let value = MetadataValue::try_from(format!("Bearer {TOKEN}")).unwrap();
    request.metadata_mut().insert("authorization", value);
    Ok(request)
}

pub fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// The settings of a service on `data` with further arguments.
pub fn config(data: &Path, arguments: &[&str]) -> Config {
    parse_config(data, arguments).unwrap()
}

/// The same, and what is wrong with the arguments.
pub fn parse_config(data: &Path, arguments: &[&str]) -> Result<Config, clap::Error> {
    let data = data.join("data");
    let uid_base = uid_base();
    let fixed = ["sandbox", "--token", TOKEN, "--data-directory", data.to_str().unwrap()];
    let fixed = fixed.into_iter().chain(["--uid-base", &uid_base, "--uids", "100"]);
    Ok(Cli::try_parse_from(fixed.chain(arguments.iter().copied()))?.config)
}

/// The first of a hundred users that the sandboxes of no other test have. Every start in one test has the same, because the
/// files of its workspaces belong to them.
pub fn uid_base() -> String {
    static TESTS: AtomicU32 = AtomicU32::new(0);
    thread_local!(static TEST: u32 = TESTS.fetch_add(1, Ordering::Relaxed) % 60);
    (1_950_000_000 + (std::process::id() % 32_768 * 60 + TEST.with(|test| *test)) * 100).to_string()
}

/// Whether the tests run as root, as CI does.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// The walls that the machines of developers may lack, and for users other than root also the memory wall.
pub fn missing_walls() -> &'static str {
    if is_root() { "users,terminals,cpu" } else { "users,terminals,cpu,memory" }
}

impl Machine {
    /// Starts a service on `data` with further arguments. It may lack [`missing_walls`].
    pub async fn start_with(data: &Path, arguments: &[&str]) -> Self {
        let arguments = [&["--without", missing_walls()][..], arguments].concat();
        match Self::try_start(data, &arguments).await {
            Ok(machine) => machine,
            Err(error) => panic!("this machine cannot run sandboxes, so nothing was tested: {error:#}"),
        }
    }

    /// Starts a service on `data`, or returns why it does not start.
    pub async fn try_start(data: &Path, arguments: &[&str]) -> anyhow::Result<Self> {
        let config = config(data, arguments);
        let (service, mut ready) = Service::in_process();
        let (shutdown, health) = (service.shutdown.clone(), service.health.clone());
        let running = tokio::spawn(sandbox::run(config, service));
        let Ok(ready) = ready.recv().await else {
            return Err(running.await.unwrap().unwrap_err());
        };
        let channel =
            Channel::from_shared(ready.url.clone()).unwrap().tcp_nodelay(true).connect().await.unwrap();
        let client = SandboxServiceClient::with_interceptor(channel, authorize as Auth)
            .max_decoding_message_size(rpc::MESSAGE_BYTES_MAX)
            .max_encoding_message_size(rpc::MESSAGE_BYTES_MAX);
        Ok(Self { client, url: ready.url, health, shutdown, running })
    }

    pub async fn start(data: &Path) -> Self {
        Self::start_with(data, &[]).await
    }

    /// Starts a service on `directory`, and opens a repository in it.
    pub async fn with_open(directory: &Path, repository: &Path) -> (Self, Session) {
        let machine = Self::start_with(directory, &["--file-roots", directory.to_str().unwrap()]).await;
        let session = machine.session();
        session.open_url(&format!("file://{}", repository.display())).await.unwrap();
        (machine, session)
    }

    pub async fn stop(self) {
        self.shutdown.cancel();
        drop(self.client);
        self.running.await.unwrap().unwrap();
    }

    /// A new session without a workspace.
    pub fn session(&self) -> Session {
        let tenant = uuid::Uuid::now_v7().to_string();
        let id = format!("ses_{}", uuid::Uuid::now_v7().simple());
        Session { client: self.client.clone(), tenant, id, workspace: String::new(), epoch: 1, opening: None }
    }

    /// A new session with an empty workspace.
    pub async fn empty_session(&self) -> Session {
        self.empty_session_of(&self.session().tenant).await
    }

    /// The same, for a tenant that may have other sessions.
    pub async fn empty_session_of(&self, tenant: &str) -> Session {
        let session = Session { tenant: tenant.to_owned(), ..self.session() };
        session.open(WorkspaceHeader::default(), Vec::new()).await.unwrap();
        session
    }
}

/// A machine with an empty workspace in a session, and the directory that holds it all.
pub async fn fresh(arguments: &[&str]) -> (TempDir, Machine, Session) {
    let directory = directory();
    let machine = Machine::start_with(directory.path(), arguments).await;
    let session = machine.empty_session().await;
    (directory, machine, session)
}

impl Session {
    /// A new session of the same tenant that works in this one's workspace.
    pub fn child(&self) -> Self {
        let id = format!("ses_{}", uuid::Uuid::now_v7().simple());
        Self { id, workspace: self.id.clone(), epoch: 1, ..self.clone() }
    }

    /// The path of its own workspace, execs or fence (`kind`).
    pub fn place(&self, directory: &TempDir, kind: &str) -> PathBuf {
        directory.path().join("data").join(kind).join(self.tenant.replace('-', "")).join(&self.id)
    }

    pub async fn close(&self) {
        let request = v1::CloseWorkspaceRequest { fence: self.fence() };
        self.client.clone().close_workspace(request).await.unwrap();
    }

    pub async fn kill_all(&self) -> Result<bool, Status> {
        let request = v1::KillExecsRequest { fence: self.fence() };
        self.client.clone().kill_execs(request).await.map(|response| response.into_inner().was_running)
    }

    pub async fn start_sandbox(&self) -> Result<(), Status> {
        let request = v1::StartSandboxRequest { fence: self.fence() };
        self.client.clone().start_sandbox(request).await.map(drop)
    }

    pub async fn release(&self) -> Result<bool, Status> {
        let request = v1::ReleaseSandboxRequest { fence: self.fence() };
        self.client.clone().release_sandbox(request).await.map(|response| response.into_inner().ended)
    }

    pub fn fence(&self) -> Option<Fence> {
        let (tenant_id, session_id) = (self.tenant.clone(), self.id.clone());
        let workspace_session_id = self.workspace.clone();
        let workspace_opening = self.opening;
        Some(Fence { tenant_id, session_id, epoch: self.epoch, workspace_session_id, workspace_opening })
    }

    pub async fn open(
        &self,
        header: WorkspaceHeader,
        data: Vec<u8>,
    ) -> Result<v1::OpenWorkspaceResponse, Status> {
        let header = WorkspaceHeader { fence: self.fence(), ..header };
        let mut parts = vec![OpenWorkspaceRequest { part: Some(Part::Header(header)) }];
        let pieces = data.chunks(rpc::CHUNK_BYTES).map(|piece| Part::Data(piece.to_vec()));
        parts.extend(pieces.map(|part| OpenWorkspaceRequest { part: Some(part) }));
        let mut client = self.client.clone();
        client.open_workspace(tokio_stream::iter(parts)).await.map(tonic::Response::into_inner)
    }

    pub async fn clone_source(
        &self,
        header: WorkspaceHeader,
        data: Vec<u8>,
    ) -> Result<v1::CloneSourceResponse, Status> {
        let header = WorkspaceHeader { fence: self.fence(), ..header };
        let parts = [Part::Header(header), Part::Data(data)].map(|part| v1::CloneSourceRequest {
            workspace: Some(OpenWorkspaceRequest { part: Some(part) }),
        });
        let mut client = self.client.clone();
        client.clone_source(tokio_stream::iter(parts)).await.map(tonic::Response::into_inner)
    }

    /// Asks what a source has for agents.
    pub async fn read_source(
        &self,
        header: WorkspaceHeader,
        data: Vec<u8>,
        question: v1::ReadSourceRequest,
    ) -> Result<v1::ReadSourceResponse, Status> {
        let header = WorkspaceHeader { fence: self.fence(), ..header };
        let part = |part| Some(OpenWorkspaceRequest { part: Some(part) });
        let first = v1::ReadSourceRequest { workspace: part(Part::Header(header)), ..question };
        let second = v1::ReadSourceRequest { workspace: part(Part::Data(data)), ..Default::default() };
        let mut client = self.client.clone();
        client.read_source(tokio_stream::iter([first, second])).await.map(tonic::Response::into_inner)
    }

    pub async fn open_url(&self, url: &str) -> Result<v1::OpenWorkspaceResponse, Status> {
        self.open(WorkspaceHeader { git_url: url.to_owned(), ..Default::default() }, Vec::new()).await
    }

    pub fn command(&self, exec_id: &str, command: &str) -> StartExecRequest {
        StartExecRequest {
            fence: self.fence(),
            exec_id: exec_id.to_owned(),
            command: command.to_owned(),
            ..Default::default()
        }
    }

    pub async fn start(&self, request: StartExecRequest) -> Result<bool, Status> {
        self.client.clone().start_exec(request).await.map(|response| response.into_inner().started)
    }

    pub async fn attach(&self, exec_id: &str, from_offset_bytes: u64) -> Result<Outcome, Status> {
        let request =
            AttachExecRequest { fence: self.fence(), exec_id: exec_id.to_owned(), from_offset_bytes };
        let mut items = self.client.clone().attach_exec(request).await?.into_inner();
        let (mut output, mut offset) = (Vec::new(), from_offset_bytes);
        while let Some(item) = items.message().await? {
            match item.item.unwrap() {
                Item::Output(piece) => {
                    assert_eq!(piece.offset_bytes, offset);
                    offset += piece.data.len() as u64;
                    output.extend_from_slice(&piece.data);
                }
                Item::Exit(exit) => {
                    return Ok(Outcome { output: String::from_utf8_lossy(&output).into_owned(), exit });
                }
            }
        }
        panic!("the stream of {exec_id} ended without an exit");
    }

    /// Runs a command to its end.
    pub async fn run(&self, command: &str) -> Outcome {
        let exec_id = uuid::Uuid::now_v7().to_string();
        assert!(self.start(self.command(&exec_id, command)).await.unwrap());
        self.attach(&exec_id, 0).await.unwrap()
    }

    /// Runs a command that must succeed, and gives its output without the last line end.
    pub async fn sh(&self, command: &str) -> String {
        let outcome = self.run(command).await;
        assert_eq!((outcome.exit.end(), outcome.exit.code), (ExecEnd::Exited, 0), "{command}: {outcome:?}");
        outcome.output.trim_end_matches('\n').to_owned()
    }

    pub async fn read(&self, path: &str) -> Result<v1::ReadFileResponse, Status> {
        let request =
            v1::ReadFileRequest { fence: self.fence(), path: path.to_owned(), ..Default::default() };
        self.client.clone().read_file(request).await.map(tonic::Response::into_inner)
    }

    pub async fn lines(&self, path: &str) -> Result<v1::ReadLinesResponse, Status> {
        let request =
            v1::ReadLinesRequest { fence: self.fence(), path: path.to_owned(), ..Default::default() };
        self.client.clone().read_lines(request).await.map(tonic::Response::into_inner)
    }

    pub async fn write(&self, path: &str, data: &[u8]) -> Result<v1::WriteFileResponse, Status> {
        self.write_if(path, data, "").await
    }

    pub async fn write_if(
        &self,
        path: &str,
        data: &[u8],
        expected: &str,
    ) -> Result<v1::WriteFileResponse, Status> {
        let request = v1::WriteFileRequest {
            fence: self.fence(),
            path: path.to_owned(),
            data: data.to_vec(),
            expected_sha256: expected.to_owned(),
        };
        self.client.clone().write_file(request).await.map(tonic::Response::into_inner)
    }
}

/// The stable code of a failed call.
pub fn code<T: std::fmt::Debug>(result: Result<T, Status>) -> String {
    let status = result.unwrap_err();
    rpc::status::code_of(&status).unwrap_or_else(|| panic!("no code in {status:?}"))
}

/// Runs git on this machine, in a repository that a test made.
pub fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = std::process::Command::new("git")
        .args([
            "-c",
            "user.name=Test",
            "-c",
            "user.email=test@example.invalid",
            "-c",
            "init.defaultBranch=main",
        ])
        .args(arguments)
        .current_dir(directory)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A repository with two commits on `main`, a branch `side` and a tag `v1`.
pub fn repository(directory: &Path) -> PathBuf {
    let path = directory.join("repository");
    testkit::git::init(&path.join(".git"));
    for (name, content) in [("README.md", "one\n"), (".gitignore", "target/\n")] {
        std::fs::write(path.join(name), content).unwrap();
    }
    git(&path, &["add", "."]);
    git(&path, &["commit", "-qm", "first"]);
    git(&path, &["tag", "v1"]);
    git(&path, &["checkout", "-qb", "side"]);
    std::fs::write(path.join("side.txt"), "side\n").unwrap();
    git(&path, &["add", "."]);
    git(&path, &["commit", "-qm", "side"]);
    git(&path, &["checkout", "-q", "main"]);
    std::fs::write(path.join("README.md"), "one\ntwo\n").unwrap();
    git(&path, &["commit", "-qam", "second"]);
    path
}

/// Runs a script as helpers run theirs, on a machine with these arguments, and gives its exit code and its output. It sees `mounts` and an empty workspace.
pub async fn help(script: &'static str, arguments: &[&str], mounts: Vec<Mount>) -> (Option<i32>, String) {
    let directory = directory();
    help_with(facts(directory.path(), arguments), script, mounts).await
}

/// What a service on `data` with these arguments finds.
pub fn facts(data: &Path, arguments: &[&str]) -> Facts {
    let users = UserIds { first: uid_base().parse().unwrap(), count: 1 };
    Facts::find(&config(data, arguments), users).unwrap()
}

/// Starts a launcher on a machine with these facts. The directory has its files, and `tree` for the workspace of its user.
pub fn launcher(facts: Facts) -> (tempfile::TempDir, Launcher) {
    let directory = directory();
    let (etc, tree) = (directory.path().join("etc"), directory.path().join("tree"));
    std::fs::create_dir(&etc).unwrap();
    std::fs::create_dir(&tree).unwrap();
    give_to(&facts, facts.user_ids.first, &tree).unwrap();
    let [libraries, copies] = ["libraries", "copies"].map(|name| directory.path().join(name));
    let directories = Directories { etc, libraries, copies };
    let launcher = Launcher::start(facts, directories, chassis::tasks::Tasks::default()).unwrap();
    (directory, launcher)
}

/// The same as [`help`], on a machine with these facts.
pub async fn help_with(facts: Facts, script: &'static str, mounts: Vec<Mount>) -> (Option<i32>, String) {
    let (directory, launcher) = launcher(facts);
    let spec = LaunchSpec {
        program: Program::Script(script, Vec::new()),
        tenant: domain::ids::TenantId(uuid::Uuid::now_v7()),
        uid: launcher.facts().user_ids.first,
        root: Root::Host,
        mounts: std::iter::once(Mount::write(directory.path().join("tree"), "/workspace"))
            .chain(mounts)
            .collect(),
        network: Network::None,
        options: domain::session::environment::SandboxOptions::NONE,
        permit: None,
    };
    let mut process = launcher.launch(spec).await.unwrap();
    let mut output = String::new();
    process.stdout.take().unwrap().read_to_string(&mut output).await.unwrap();
    (process.wait().await.code, output)
}
