//! Runs pushes: each in a quarantine of its own, a few at a time. A push ends with its caller.

use super::{
    audit::AuditLine,
    bundle::{self, BUNDLE_PACK},
    commits::{
        inspection::{Inspection, InspectionReport},
        pointers::{LfsObject, PointerCommit, Pointers},
    },
    error::PushError,
    git::{GitEnd, Input, Output, WalledGit},
    objects::{Commit, missing, parse_batch},
    quarantine::{Quarantine, Quarantines},
    remote::{
        receive::{Capabilities, Move},
        report::Report,
        server::Server,
        upload::{Fetch, References},
    },
    request::{ObjectId, PushRequest},
};
use crate::egress::git::{credential, servers::GitServers};
use anyhow::Context as _;
use chassis::{Service, tasks::Tasks};
use domain::{ids::TenantId, text};
use futures::Stream;
use shares::Shares;
use std::{path::Path, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Pushes of all tenants at the same time: each may take a few GiB of the disk and a processor. Beyond it: `push_busy`.
const PUSHES_MAX: u32 = 4;
/// Those of one tenant. Beyond it: `push_busy`.
const PUSHES_TENANT_MAX: usize = 2;
/// Longest wait of a push for its turn.
const TURN_WAIT: Duration = Duration::from_secs(20);
/// Longest time of a push. Beyond it: `push_interrupted`.
const PUSH_TIME: Duration = Duration::from_secs(600);
/// Commits that a session may have pushed before. Beyond it: `push_branch_moved`.
const OWN_COMMITS_MAX: usize = 1_000;
/// The setting that names the secrets.
const SETTING: &str = "environment.git.push";
/// The file of what the server sends.
const FETCHED_PACK: &str = "fetched.pack";
/// The file of what the server gets.
const PUSHED_PACK: &str = "pushed.pack";
/// The file with the commits that have no history here.
const SHALLOW: &str = "repository/shallow";
/// Git takes no object that it warns of. The paths of git's own directory are left to the inspection, which says where they are.
const STRICT: &str = "--strict=hasDotgit=ignore,badFilemode=error";
/// Bytes of what a server says in an error. Headers carry errors, and these are short.
const REFUSAL_BYTES_MAX: usize = 2_000;

/// The pushes of a broker.
#[derive(Debug)]
pub struct Pusher {
    quarantines: Quarantines,
    git: WalledGit,
    servers: Arc<GitServers>,
    turns: Shares<TenantId>,
    tasks: Tasks,
    shutdown: CancellationToken,
}

/// The pushes of a broker, or why it has none.
pub(crate) type Pushes = Result<Arc<Pusher>, String>;

/// What a push did.
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
}

/// The commits of a bundle, as they may be pushed.
#[derive(Debug)]
struct InspectedCommits {
    /// Newest first.
    commits: Vec<ObjectId>,
    files: usize,
    objects: Vec<LfsObject>,
}

/// How a branch is to be moved.
#[derive(Debug)]
struct Plan {
    old: Option<ObjectId>,
    new: ObjectId,
    commits: usize,
    files: usize,
    /// The objects of Git LFS that the server may lack.
    objects: Vec<LfsObject>,
}

impl Pusher {
    /// Prepares pushes with quarantines in `directory`. Checks that git behind its walls works here, and can read none of the files `secrets`.
    ///
    /// # Errors
    /// If the directory cannot be used, a program is missing, or a wall does not stand.
    pub async fn start(
        directory: &Path,
        secrets: &[&Path],
        servers: Arc<GitServers>,
        service: &Service,
    ) -> anyhow::Result<Arc<Self>> {
        let quarantines = Quarantines::open(directory)?;
        let probe = quarantines.make().context("make a quarantine")?;
        let git = WalledGit::find(&probe, secrets).await;
        probe.remove().await;
        Ok(Arc::new(Self {
            quarantines,
            git: git?,
            servers,
            turns: Shares::new(PUSHES_MAX, PUSHES_TENANT_MAX),
            tasks: service.tasks.clone(),
            shutdown: service.shutdown.clone(),
        }))
    }

    /// Pushes the commits of a bundle. An item that is `None` says that the caller failed.
    ///
    /// # Errors
    /// Those of [`PushError`]. After `Unreachable` and `Interrupted` the branch was moved or not; the same push again finds out.
    ///
    /// Dropped midway: the push ends, and nothing of it stays here.
    pub(crate) async fn push(
        self: &Arc<Self>,
        request: PushRequest,
        pieces: impl Stream<Item = Option<Vec<u8>>> + Send + Unpin + 'static,
    ) -> Result<Receipt, PushError> {
        let turn = self.turns.acquire(request.tenant, TURN_WAIT).await.map_err(|_| PushError::Busy)?;
        let (left, own) = (CancellationToken::new(), Arc::clone(self));
        let _left = left.clone().drop_guard();
        let run = self.tasks.run("push", async move {
            let _turn = turn;
            own.run(&request, pieces, &left).await
        });
        run.await.unwrap_or(Err(PushError::Failed))
    }

    /// Runs a push until its end, its time or its caller's.
    async fn run(
        &self,
        request: &PushRequest,
        pieces: impl Stream<Item = Option<Vec<u8>>> + Unpin,
        left: &CancellationToken,
    ) -> Result<Receipt, PushError> {
        let made = self.quarantines.make();
        let quarantine = made.map_err(|error| PushError::failed("make a quarantine", &error))?;
        let mut audit = AuditLine::new(request);
        let result = {
            let push = Push { pusher: self, request, quarantine: &quarantine };
            let work = tokio::time::timeout(PUSH_TIME, push.run(pieces, &mut audit));
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => Err(PushError::Interrupted("this server stops")),
                () = left.cancelled() => Err(PushError::Interrupted("the caller left")),
                result = work => result.unwrap_or(Err(PushError::Interrupted("the push took too long"))),
            }
        };
        // Its gits were killed with the work.
        quarantine.remove().await;
        if !left.is_cancelled() {
            audit.note_outcome(result.as_ref().map_or_else(PushError::code, |_| "ok"));
        }
        result
    }
}

/// One push in its quarantine.
struct Push<'a> {
    pusher: &'a Pusher,
    request: &'a PushRequest,
    quarantine: &'a Quarantine,
}

impl Push<'_> {
    async fn run(
        &self,
        pieces: impl Stream<Item = Option<Vec<u8>>> + Unpin,
        audit: &mut AuditLine<'_>,
    ) -> Result<Receipt, PushError> {
        let PushRequest { tenant, project, repository, secret, branch, base, .. } = self.request;
        let servers = &*self.pusher.servers;
        let credential = credential::open(&servers.vault, *tenant, project.as_ref(), secret, SETTING).await?;
        audit.secret_version = Some(credential.version);
        let authorization = credential.authorization;
        let server = Server { servers, tenant: *tenant, repository, secret, authorization };
        let references = server.references(branch, base).await?;
        if references.default.as_ref() == Some(&branch.reference()) {
            return Err(PushError::DefaultBranch(branch.to_string()));
        }
        let capabilities = server.capabilities().await?;
        bundle::receive(self.quarantine, pieces).await?;
        self.load_base(&server).await?;
        self.load_bundle().await?;
        let plan = self.plan(&server, references.tip).await?;
        audit.commit = Some(plan.new.clone());
        if plan.old.as_ref() == Some(&plan.new) {
            return Ok(self.receipt(plan, String::new()));
        }
        // A branch never has a pointer whose object the server lacks.
        server.upload_lfs(&plan.objects).await?;
        self.pack(&plan, &capabilities).await?;
        let pack = self.quarantine.path().join(PUSHED_PACK);
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
            Ok(References { tip: Some(tip), .. }) if Some(&tip) != plan.old.as_ref() => Err(self.moved(&tip)),
            Ok(_) | Err(_) => Err(failure),
        }
    }

    /// Packs what the server lacks.
    async fn pack(&self, plan: &Plan, capabilities: &Capabilities) -> Result<(), PushError> {
        let mut arguments = vec!["pack-objects", "--revs", "--stdout", "--quiet"];
        arguments.extend(capabilities.has("ofs-delta").then_some("--delta-base-offset"));
        arguments.extend((!capabilities.has("no-thin")).then_some("--thin"));
        let known = [Some(&self.request.base), plan.old.as_ref()];
        let known: String = known.into_iter().flatten().map(|commit| format!("^{commit}\n")).collect();
        let wanted = format!("{}\n{known}", plan.new);
        self.succeed(&arguments, Input::Bytes(wanted.as_bytes()), Output::File(PUSHED_PACK)).await
    }

    fn receipt(&self, plan: Plan, message: String) -> Receipt {
        let PushRequest { repository, branch, .. } = self.request;
        let Plan { new: commit, commits, files, .. } = plan;
        Receipt { url: repository.to_string(), branch: branch.to_string(), commit, commits, files, message }
    }

    fn refused(&self, server: &Server<'_>, reason: &str, message: &str) -> PushError {
        let said: String = message.lines().map(|line| format!("\nremote: {line}")).collect();
        let reason = text::head(&format!("{reason}{said}"), REFUSAL_BYTES_MAX).to_owned();
        PushError::Refused { host: server.host(), reason }
    }

    /// Loads the files of the base commit, all of them: the bundle has only the differences to them, and git checks that nothing is missing. A server
    /// could send less (`filter`), but git would then look for the rest while it reads the bundle. For this repository the files are 2.6 MiB in 0.6 s; with its
    /// history they are 5.6 MiB in 1.1 s.
    async fn load_base(&self, server: &Server<'_>) -> Result<(), PushError> {
        let base = &self.request.base;
        let made = self.quarantine.make_repository(base.format()).await;
        made.map_err(|error| PushError::failed("make a repository", &error))?;
        let shallow = server.fetch(Fetch::Base(base), self.quarantine, FETCHED_PACK).await?;
        self.load_fetched().await?;
        let lines: String = shallow.iter().map(|commit| format!("{commit}\n")).collect();
        let written = self.quarantine.write(SHALLOW, lines.as_bytes()).await;
        written.map_err(|error| PushError::failed("write the end of the history", &error))
    }

    async fn load_fetched(&self) -> Result<(), PushError> {
        self.succeed(&["index-pack", "--stdin"], Input::File(FETCHED_PACK), Output::Bytes(1_024)).await
    }

    /// Checks each object of the bundle, and that nothing that it names is missing.
    async fn load_bundle(&self) -> Result<(), PushError> {
        let arguments = ["index-pack", "--stdin", "--fix-thin", STRICT];
        self.succeed(&arguments, Input::File(BUNDLE_PACK), Output::Bytes(1_024)).await
    }

    /// Inspects the commits, and decides how the branch is to be moved.
    async fn plan(&self, server: &Server<'_>, tip: Option<ObjectId>) -> Result<Plan, PushError> {
        let PushRequest { base, denied, .. } = self.request;
        let inspection = Inspection { git: &self.pusher.git, quarantine: self.quarantine, denied };
        let InspectedCommits { commits, files, objects } = self.inspect(server, inspection).await?;
        let commit = commits.first().ok_or_else(missing)?;
        let up_to_date =
            |tip: ObjectId| Plan { old: Some(tip.clone()), new: tip, commits: 0, files: 0, objects: vec![] };
        let forward = |old, commits, objects| Plan { old, new: commit.clone(), commits, files, objects };
        let Some(tip) = tip else { return Ok(forward(None, commits.len(), objects)) };
        if tip == *base {
            return Ok(forward(Some(tip), commits.len(), objects));
        }
        match commits.iter().position(|commit| *commit == tip) {
            Some(0) => return Ok(up_to_date(tip)),
            Some(at) => return Ok(forward(Some(tip), at, objects)),
            None => {}
        }
        self.load_earlier(server, &tip).await?;
        let (own, earlier) = (self.read(commit).await?, self.read(&tip).await?);
        let own = Commit::parse(&own).ok_or_else(missing)?;
        let earlier = Commit::parse(&earlier).ok_or_else(missing)?;
        if own.tree == earlier.tree {
            return Ok(up_to_date(tip));
        }
        let moved = own.on_top_of(&tip);
        let arguments = ["hash-object", "-t", "commit", "-w", "--stdin"];
        let output =
            self.pusher.git.check(self.quarantine, &arguments, Input::Bytes(moved.as_bytes())).await?;
        let new = ObjectId::parse(String::from_utf8_lossy(&output).trim()).ok_or_else(missing)?;
        // Its files are those of the commits before. A content of Git LFS among its changes is one of the base commit, to which the session went back.
        let InspectionReport { files, problems, .. } = inspection.inspect(std::slice::from_ref(&new)).await?;
        PushError::check(problems)?;
        Ok(Plan { old: Some(tip), new, commits: 1, files, objects })
    }

    /// Inspects the commits of the bundle, and puts pointers in place of contents of Git LFS.
    async fn inspect(
        &self,
        server: &Server<'_>,
        inspection: Inspection<'_>,
    ) -> Result<InspectedCommits, PushError> {
        let PushRequest { commit, base, .. } = self.request;
        let commits = inspection.list(base, commit).await?;
        let InspectionReport { files, lfs, mut problems } = inspection.inspect(&commits).await?;
        let checked = server.check_lfs(&lfs.pointers, &mut problems).await;
        match checked {
            Err(error) if problems.is_empty() => return Err(error),
            // The person mends the problems of the commits first.
            Ok(()) | Err(_) => PushError::check(problems)?,
        }
        if lfs.contents.is_empty() {
            return Ok(InspectedCommits { commits, files, objects: vec![] });
        }
        // The inspection lets no contents pass in a push of several commits.
        let pointers = Pointers { git: &self.pusher.git, quarantine: self.quarantine };
        let PointerCommit { commit, objects } = pointers.put(commit, base, &lfs.contents).await?;
        Ok(InspectedCommits { commits: vec![commit], files, objects })
    }

    /// Loads the commits that this session pushed before.
    ///
    /// # Errors
    /// `BranchMoved`: there are others among them.
    async fn load_earlier(&self, server: &Server<'_>, tip: &ObjectId) -> Result<(), PushError> {
        let PushRequest { session, base, .. } = self.request;
        let fetched = server.fetch(Fetch::Since { tip, base }, self.quarantine, FETCHED_PACK).await;
        match fetched {
            Ok(_) => self.load_fetched().await?,
            // It was moved again meanwhile.
            Err(PushError::BaseMissing(_)) => return Err(self.moved(tip)),
            Err(error) => return Err(error),
        }
        let (count, without) = (format!("--max-count={}", OWN_COMMITS_MAX + 1), format!("^{base}"));
        let arguments = ["rev-list", "--parents", &count, tip.as_str(), &without, "--"];
        let output = self.pusher.git.check(self.quarantine, &arguments, Input::Nothing).await?;
        let output = String::from_utf8_lossy(&output);
        let lines: Vec<Vec<&str>> = output.lines().map(|line| line.split(' ').collect()).collect();
        let is_chain = lines.len() <= OWN_COMMITS_MAX
            && lines.iter().all(|line| line.len() == 2)
            && lines.last().is_some_and(|line| line[1] == base.as_str());
        let names: String = lines.iter().map(|line| format!("{}\n", line[0])).collect();
        if !is_chain {
            return Err(self.moved(tip));
        }
        let output = self
            .pusher
            .git
            .check(self.quarantine, &["cat-file", "--batch"], Input::Bytes(names.as_bytes()))
            .await?;
        let is_own = |content| Commit::parse(content).is_some_and(|commit| commit.is_of(session));
        let are_own = parse_batch(&output)?.iter().all(|object| is_own(object.content));
        if are_own { Ok(()) } else { Err(self.moved(tip)) }
    }

    /// The text of a commit.
    async fn read(&self, commit: &ObjectId) -> Result<Vec<u8>, PushError> {
        self.pusher.git.check(self.quarantine, &["cat-file", "commit", commit.as_str()], Input::Nothing).await
    }

    /// Runs a git that must succeed.
    async fn succeed(
        &self,
        arguments: &[&str],
        input: Input<'_>,
        output: Output<'_>,
    ) -> Result<(), PushError> {
        let GitEnd { is_success, errors, .. } =
            self.pusher.git.run(self.quarantine, arguments, input, output).await?;
        if is_success { Ok(()) } else { Err(PushError::ContentInvalid(errors)) }
    }

    fn moved(&self, tip: &ObjectId) -> PushError {
        PushError::BranchMoved { branch: self.request.branch.to_string(), tip: tip.short() }
    }
}
