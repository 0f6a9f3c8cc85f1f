//! Runs pushes: each in a directory of its own, a few at a time. A push ends with its caller.
//!
//! A push has three steps:
//!
//! 1. It asks the server, receives the bundle from its caller, and loads the files of the base commit, all at the same time (`preparation`).
//! 2. It loads the bundle, inspects the commits, and packs them meanwhile (`plan`).
//! 3. It sends the objects of Git LFS, and moves the branch. A preview lists the files instead (`commits`), and ends.
//!
//! Before step 3, the server gets only questions: the names of the branch and of commits that it has, and, after the inspection, those of objects of
//! Git LFS.

use super::{
    audit::AuditLine,
    bundle,
    commits::listing::{self, ChangedFile},
    directories::PushDirectories,
    error::PushError,
    git::WalledGit,
    plan::{PUSHED_PACK, Plan, Planner},
    preparation::{Preparation, Preparer},
    remote::{receive::Move, report::Report, server::Server, upload::References},
    repository::Repository,
    request::{ObjectId, PushPart, PushRequest},
};
use crate::{
    egress::git::{credential::RepositoryUse, servers::GitServers},
    forge::github::GitUse,
};
use anyhow::Context as _;
use chassis::{Service, tasks::Tasks};
use domain::{ids::TenantId, text};
use futures::Stream;
use shares::Shares;
use std::{path::Path, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Pushes of all tenants at the same time: each may take a few GiB of the disk and two processors. Beyond it: `push_busy`.
const PUSHES_MAX: u32 = 4;
/// Those of one tenant. Beyond it: `push_busy`.
const PUSHES_TENANT_MAX: usize = 2;
/// Longest wait of a push for its turn.
const TURN_WAIT: Duration = Duration::from_secs(20);
/// Longest time of a push. Beyond it: `push_interrupted`.
const PUSH_TIME: Duration = Duration::from_secs(600);
/// The setting that names the secrets.
const SETTING: &str = "environment.git.push";
/// Bytes of what a server says in an error. Headers carry errors, and these are short.
const REFUSAL_BYTES_MAX: usize = 2_000;

/// The pushes of a broker.
#[derive(Debug)]
pub struct Pusher {
    directories: PushDirectories,
    git: WalledGit,
    servers: Arc<GitServers>,
    turns: Shares<TenantId>,
    tasks: Tasks,
    shutdown: CancellationToken,
}

/// The pushes of a broker, or why it has none.
pub(crate) type Pushes = Result<Arc<Pusher>, String>;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub(crate) url: String,
    pub(crate) branch: String,
    /// The commit at which the branch is.
    pub(crate) commit: ObjectId,
    /// New commits, and the files that they change; 0: the branch had all of it.
    pub(crate) commits: usize,
    pub(crate) files: usize,
    /// What the server said to people.
    pub(crate) message: String,
    /// The files, for a preview.
    pub(crate) changes: Vec<ChangedFile>,
}

impl Pusher {
    /// Prepares pushes with directories in `directory`. Checks that git behind its walls works here, and can read none of the files `secrets`.
    ///
    /// # Errors
    /// If the directory cannot be used, a program is missing, or a wall does not stand.
    pub async fn start(
        directory: &Path,
        secrets: &[&Path],
        servers: Arc<GitServers>,
        service: &Service,
    ) -> anyhow::Result<Arc<Self>> {
        let directories = PushDirectories::open(directory).await?;
        let probe = directories.make().context("make the directory of a push")?;
        let git = WalledGit::find(&probe, secrets).await;
        probe.remove().await;
        Ok(Arc::new(Self {
            directories,
            git: git?,
            servers,
            turns: Shares::new(PUSHES_MAX, PUSHES_TENANT_MAX),
            tasks: service.tasks.clone(),
            shutdown: service.shutdown.clone(),
        }))
    }

    /// Pushes the commits of a bundle. An item that is `None` says that the caller left.
    ///
    /// # Errors
    /// Those of [`PushError`]. After `Unreachable` and `Interrupted` the branch was moved or not; the same push again finds out.
    ///
    /// Dropped midway: the push ends, and nothing of it stays here.
    pub(crate) async fn push(
        self: &Arc<Self>,
        request: PushRequest,
        parts: impl Stream<Item = Option<PushPart>> + Send + Unpin + 'static,
    ) -> Result<Receipt, PushError> {
        let turn = self.turns.acquire(request.tenant, TURN_WAIT).await.map_err(|_| PushError::Busy)?;
        let (left, own) = (CancellationToken::new(), Arc::clone(self));
        let _left = left.clone().drop_guard();
        let run = self.tasks.run("push", async move {
            let _turn = turn;
            own.run(&request, parts, &left).await
        });
        run.await.unwrap_or(Err(PushError::Failed))
    }

    /// Runs a push until its end, its time or its caller's.
    async fn run(
        &self,
        request: &PushRequest,
        parts: impl Stream<Item = Option<PushPart>> + Unpin,
        left: &CancellationToken,
    ) -> Result<Receipt, PushError> {
        let made = self.directories.make();
        let directory = made.map_err(|error| PushError::failed("make the directory of a push", &error))?;
        let mut audit = AuditLine::new(request);
        let result = {
            let repository = Repository { git: &self.git, directory: &directory };
            let push = Push { servers: &self.servers, request, repository };
            let work = tokio::time::timeout(PUSH_TIME, push.run(parts, &mut audit));
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => Err(PushError::Interrupted("this server stops")),
                () = left.cancelled() => Err(PushError::CallerLeft),
                result = work => result.unwrap_or(Err(PushError::Interrupted("the push took too long"))),
            }
        };
        // Its gits were killed with the work.
        directory.remove().await;
        // The caller may have left at any moment. Which of its streams tells that first is chance.
        if !left.is_cancelled() {
            let ok = if request.is_preview { "previewed" } else { "ok" };
            audit.note_outcome(result.as_ref().map_or_else(|error| error.code().as_str(), |_| ok));
        }
        result
    }
}

/// One push in its directory.
struct Push<'a> {
    servers: &'a GitServers,
    request: &'a PushRequest,
    repository: Repository<'a>,
}

impl Push<'_> {
    async fn run(
        &self,
        mut parts: impl Stream<Item = Option<PushPart>> + Unpin,
        audit: &mut AuditLine<'_>,
    ) -> Result<Receipt, PushError> {
        let PushRequest { tenant, project, repository, secret, branch, base, .. } = self.request;
        let servers = self.servers;
        let at = RepositoryUse { setting: SETTING, repository, git_use: GitUse::Push };
        let opened = servers.credentials.open(*tenant, project.as_ref(), secret, at).await;
        let credential = match opened {
            Ok(credential) => credential,
            Err(error) => {
                // A push of nothing needs no secret, so `Nothing` comes before the error of the secret.
                bundle::receive_commit(&mut parts, base).await?;
                return Err(error.into());
            }
        };
        audit.secret_version = Some(credential.version);
        let authorization = credential.authorization;
        let server = Server { servers, tenant: *tenant, repository, secret, authorization };
        let preparer = Preparer { request: self.request, server: &server, repository: self.repository };
        let Preparation { commit, capabilities, branch: remote_branch } = preparer.run(parts).await?;
        let planner = Planner {
            request: self.request,
            server: &server,
            repository: self.repository,
            commit: &commit,
            capabilities: &capabilities,
        };
        let plan = planner.plan(remote_branch).await?;
        audit.commit = Some(plan.new.clone());
        if plan.old.as_ref() == Some(&plan.new) {
            return Ok(self.receipt(plan, String::new()));
        }
        if self.request.is_preview {
            let old = plan.old.as_ref().unwrap_or(base);
            let changes = listing::list(self.repository, old, &plan.new).await?;
            return Ok(Receipt { changes, ..self.receipt(plan, String::new()) });
        }
        // A branch never has a pointer whose object the server lacks.
        server.upload_lfs(&plan.objects).await?;
        let pack = self.repository.directory.path().join(PUSHED_PACK);
        let command = Move { branch, old: plan.old.as_ref(), new: &plan.new, pack: &pack };
        let sent = server.push(&command, &capabilities).await;
        let (failure, message) = match sent {
            Ok(Report { refusal: None, message }) => return Ok(self.receipt(plan, message)),
            Ok(Report { refusal: Some(reason), message }) => {
                (self.refused(&server, &reason, &message), message)
            }
            Err(error @ PushError::Unreachable(_)) => (error, String::new()),
            Err(error) => return Err(error),
        };
        // The server may have moved the branch although its answer is missing, or another push may have come first.
        match server.references(branch, base).await {
            Ok(References { tip: Some(tip), .. }) if tip == plan.new => Ok(self.receipt(plan, message)),
            Ok(References { tip: Some(tip), .. }) if Some(&tip) != plan.old.as_ref() => {
                Err(self.request.moved(&tip))
            }
            Ok(_) | Err(_) => Err(failure),
        }
    }

    fn receipt(&self, plan: Plan, message: String) -> Receipt {
        let PushRequest { repository, branch, .. } = self.request;
        let Plan { new: commit, commits, files, .. } = plan;
        let (url, branch) = (repository.to_string(), branch.to_string());
        Receipt { url, branch, commit, commits, files, message, changes: vec![] }
    }

    fn refused(&self, server: &Server<'_>, reason: &str, message: &str) -> PushError {
        let said: String = message.lines().map(|line| format!("\nremote: {line}")).collect();
        let reason = text::head(&format!("{reason}{said}"), REFUSAL_BYTES_MAX).to_owned();
        PushError::Refused { host: server.host(), reason }
    }
}
