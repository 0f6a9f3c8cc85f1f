//! The workspace of a session: opened once, while the model already generates.

mod install;

use super::{
    above::SettingsAbove,
    egress::{CloneAccess, Egress, has_no_doors, is_sealed},
    environment::{WorkspaceEnvironment, with_interruptions},
    image::{WorkspaceImage, with_variables},
    opening::{OpeningProgress, OpeningStage},
    proposal::{ChosenEnvironment, EnvironmentNotice, Proposer},
    secrets::{SecretUse, SetupSecrets},
    stored::from_store,
};
use crate::process::{
    deps::Deps,
    sandbox::{Identity, has_code, lost},
};
use domain::{
    ids::ProjectId,
    session::{Origin, Source},
};
use install::TeamInstall;
use rpc::v1::{self, open_workspace_request::Part};
use settings::Settings;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};
use tokio::sync::{OnceCell, mpsc};
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};
use tonic::Status;

/// Repetitions of a step of an opening whose result vanishes before the workspace uses it: a clone, a setup, an install.
const REPETITIONS_MAX: u32 = 3;
/// Pieces of a bundle that are read ahead of the sandbox, each with 1 MiB at most: 4 MiB for one opening.
const PIECES_AHEAD: usize = 4;

/// The files of one session. Clones share the state.
#[derive(Clone)]
pub(crate) struct Workspace {
    deps: Arc<Deps>,
    identity: Identity,
    origin: WorkspaceOrigin,
    open: Arc<OnceCell<OpenWorkspace>>,
    egress: Egress,
    progress: OpeningProgress,
    /// What people have not been told yet about the environment with which this loop opened the files, or tried to.
    notice: Arc<Mutex<Option<EnvironmentNotice>>>,
    /// Why this loop opened a copy without what is installed in its origin.
    missing_install: Arc<OnceLock<EnvironmentNotice>>,
}

/// What a workspace begins with.
#[derive(Debug, Clone)]
pub(crate) struct WorkspaceOrigin {
    pub(crate) project: ProjectId,
    pub(crate) source: Source,
    /// Whether the files were opened before this loop began.
    pub(crate) was_opened: bool,
    /// The settings above its repository.
    pub(crate) above: SettingsAbove,
}

/// What a workspace needs in addition to its source.
struct WorkspacePlan {
    /// The settings above the repository, with its environment if that was allowed.
    settings: Arc<Settings>,
    /// The commit of the source; empty: it was not cloned ahead.
    base_commit: String,
    /// What its sandboxes see at `/`, with their variables.
    image: Option<v1::Image>,
    /// The install that runs with its files; `None`: none does.
    install: Option<TeamInstall>,
    secrets: SetupSecrets,
    /// Whether a setup or an install belongs to it.
    has_script: bool,
}

/// What the door of a session reads for its clone.
#[derive(Debug, Default)]
struct CloneDoor {
    /// The prefixes of the URLs for which the broker has a credential.
    git_prefixes: Vec<String>,
    /// The repository whose objects of Git LFS it reads; empty: none.
    lfs_url: String,
}

/// A workspace that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenWorkspace {
    /// The branch that was checked out then.
    pub(crate) branch: Option<String>,
}

impl OpenWorkspace {
    fn on(branch: String) -> Self {
        Self { branch: Some(branch).filter(|branch| !branch.is_empty()) }
    }
}

impl Workspace {
    pub(crate) fn new(deps: Arc<Deps>, identity: Identity, origin: WorkspaceOrigin) -> Self {
        let egress = Egress::new(Arc::clone(&deps), identity.clone(), origin.project.clone());
        let progress = OpeningProgress::default();
        let (open, notice, missing_install) = (Arc::default(), Arc::default(), Arc::default());
        Self { deps, identity, origin, open, egress, progress, notice, missing_install }
    }

    /// The project of its session.
    pub(super) fn project(&self) -> &ProjectId {
        &self.origin.project
    }

    /// What its files start from.
    pub(super) fn source(&self) -> &Source {
        &self.origin.source
    }

    /// Its door to the network.
    pub(crate) fn egress(&self) -> &Egress {
        &self.egress
    }

    /// Whether the session starts from a repository, whose files must exist even if no tool reads them.
    pub(crate) fn has_source(&self) -> bool {
        self.origin.source.origin != Origin::Empty
    }

    /// Whether an earlier turn may have written files.
    pub(crate) fn was_opened(&self) -> bool {
        self.origin.was_opened
    }

    /// Waits until the workspace is open, and opens it if necessary. Concurrent callers share one attempt. Files that the sandbox
    /// machine lost are not opened again: the work of earlier turns would vanish without a word.
    ///
    /// # Errors
    /// `workspace_lost`; `store_unavailable`; those of the sandbox.
    pub(crate) async fn ready(&self) -> Result<(), Status> {
        self.open.get_or_try_init(|| self.open()).await.map(|_| ())
    }

    /// What this loop found when it opened the workspace; `None`: it has not opened it.
    pub(crate) fn found(&self) -> Option<&OpenWorkspace> {
        self.open.get()
    }

    /// Takes what people must know about the environment of this loop: the repository has another one. `None` if an earlier loop opened the files.
    pub(crate) fn take_environment_notice(&self) -> Option<EnvironmentNotice> {
        self.notice.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Why this loop opened a copy without what is installed in its origin.
    pub(super) fn missing_install(&self) -> Option<&EnvironmentNotice> {
        self.missing_install.get()
    }

    /// Goes on without what is installed in the origin of a copy, and notes that for people and the model.
    fn go_on_without_install(&self) {
        let missing = self.missing_install.get_or_init(install::not_copied).clone();
        let mut notice = self.notice.lock().unwrap_or_else(PoisonError::into_inner);
        *notice = EnvironmentNotice::joined(notice.take(), Some(missing));
    }

    async fn open(&self) -> Result<OpenWorkspace, Status> {
        let work = Box::pin(self.try_open());
        match self.progress.notify_while(&self.deps, &self.identity, work).await {
            // Another loop of the same tree has opened the files meanwhile.
            Err(status) if is_sealed(&status) => self.find().await?.ok_or_else(lost),
            opened => opened,
        }
    }

    async fn try_open(&self) -> Result<OpenWorkspace, Status> {
        let is_new = !self.origin.was_opened;
        // A session that this loop found without files usually has none. It need not wait for one answer after the other.
        let record = async { if is_new { self.is_recorded().await.map(Some) } else { Ok(None) } };
        let (found, record) = tokio::try_join!(self.find(), record)?;
        if let Some(found) = found {
            if is_new {
                self.note_opened().await?;
            }
            return Ok(found);
        }
        let is_recorded = match record {
            Some(is_recorded) => is_recorded,
            None => self.is_recorded().await?,
        };
        if is_recorded {
            // Another loop of the same tree may have opened them since the answer of the sandbox. If not, they are lost.
            return self.find().await?.ok_or_else(lost);
        }
        let (mut builds, mut installs, mut clones) = (0, 0, 0);
        let mut plan = Box::pin(self.plan()).await?;
        let opened = loop {
            let environment_key = self.set_up(&plan).await?;
            let header = v1::WorkspaceHeader {
                environment_key,
                image: plan.image.clone(),
                install: plan.install.as_ref().map(|install| install.spec(&plan.secrets.versions)),
                start: plan.settings.start.clone().unwrap_or_default(),
                options: Some(v1::SandboxOptions {
                    allow_ptrace: plan.settings.allow_ptrace == Some(true),
                    allow_user_namespaces: plan.settings.allow_user_namespaces == Some(true),
                }),
                base_commit: plan.base_commit.clone(),
                ..self.source_header().await?
            };
            self.progress.enter(OpeningStage::Files);
            // From the opening on, programs of the session can run.
            self.egress.close(plan.has_script).await?;
            let open = self.deps.sandbox.call(|mut client| {
                let messages = self.messages(header.clone());
                async move { client.open_workspace(messages).await }
            });
            match open.await {
                // Its branch moved, and the sandbox service started again.
                Err(status) if has_code(&status, "source_changed") && clones < REPETITIONS_MAX => {
                    clones += 1;
                    plan = Box::pin(self.plan()).await?;
                }
                // The environment made room for layers in this moment.
                Err(status) if has_code(&status, "environment_missing") && builds < REPETITIONS_MAX => {
                    builds += 1
                }
                Err(status) if has_code(&status, "install_missing") && installs < REPETITIONS_MAX => {
                    installs += 1;
                    match &plan.install {
                        Some(install) => Box::pin(self.install(&plan, install, header)).await?,
                        None => self.go_on_without_install(),
                    }
                }
                opened => break opened?,
            }
        };
        if plan.has_script {
            self.egress.seal().await;
        }
        self.note_opened().await?;
        Ok(OpenWorkspace::on(opened.branch))
    }

    /// Finds what the workspace needs, and brings its image.
    ///
    /// # Errors
    /// Those of the clone, of the store, of the broker and of the sandbox; `secret_not_found`.
    async fn plan(&self) -> Result<WorkspacePlan, Status> {
        let (settings, base_commit) = if self.has_source() {
            self.look_at_source().await?
        } else {
            (Arc::clone(&self.origin.above.settings), String::new())
        };
        if self.has_source() && base_commit.is_empty() {
            // Another loop of the same tree has opened the workspace.
            let secrets = SetupSecrets::default();
            let (image, install, has_script) = (None, None, false);
            return Ok(WorkspacePlan { settings, base_commit, image, install, secrets, has_script });
        }
        let image = WorkspaceImage {
            deps: &self.deps,
            identity: &self.identity,
            project: &self.origin.project,
            setting: settings.image.as_ref(),
            progress: &self.progress,
        };
        self.progress.enter(OpeningStage::Image);
        let image = with_variables(image.bring().await?, &settings.variables);
        let has_setup = settings.image.as_ref().is_some_and(|image| image.setup.is_some());
        let install = TeamInstall::of(&settings, &self.origin.source);
        let secret_use = match &install {
            Some(install) => Some(install.secret_use()),
            None => has_setup.then_some(SecretUse::Setup),
        };
        let (deps, project) = (&self.deps, &self.origin.project);
        let secrets = match secret_use {
            Some(of) => SetupSecrets::find(deps, &self.identity, project, &settings.secrets, of).await?,
            None => SetupSecrets::default(),
        };
        let has_script = secret_use.is_some();
        Ok(WorkspacePlan { settings, base_commit, image, install, secrets, has_script })
    }

    /// Has the machine clone the source, and gives the settings with the environment that it proposes, if that was allowed, and the commit.
    ///
    /// # Errors
    /// Those of the clone and of the store.
    async fn look_at_source(&self) -> Result<(Arc<Settings>, String), Status> {
        self.progress.enter(OpeningStage::Clone);
        let header = self.source_header().await?;
        let cloned = self.deps.sandbox.call(|mut client| {
            let parts = self.messages(header.clone());
            let parts = parts.map(|part| v1::CloneSourceRequest { workspace: Some(part) });
            async move { client.clone_source(parts).await }
        });
        let v1::CloneSourceResponse { base_commit, configuration } = cloned.await?;
        let files = configuration.unwrap_or_default().files;
        let WorkspaceOrigin { project, source, above, .. } = &self.origin;
        let proposer = Proposer { project, source, above: &above.settings };
        let chosen = ChosenEnvironment::of(&self.deps, &self.identity, proposer, &files).await?;
        *self.notice.lock().unwrap_or_else(PoisonError::into_inner) = chosen.notice;
        let settings = self.origin.above.with(chosen.document).unwrap_or_else(|problems| {
            tracing::warn!("an environment that was allowed does not fit the settings: {problems}");
            Arc::clone(&self.origin.above.settings)
        });
        Ok((settings, base_commit))
    }

    /// Brings what the setup of the settings makes on top of the image, and gives its key; empty without a setup. The door of the session leads to no
    /// host afterwards.
    ///
    /// # Errors
    /// Those of the setup, of the broker and of the sandbox.
    async fn set_up(&self, plan: &WorkspacePlan) -> Result<String, Status> {
        let WorkspacePlan { settings, image, secrets, .. } = plan;
        let script = settings.image.as_ref().and_then(|image| image.setup.as_ref());
        let Some((image, script)) = image.as_ref().zip(script) else { return Ok(String::new()) };
        let environment = WorkspaceEnvironment {
            deps: &self.deps,
            identity: &self.identity,
            project: &self.origin.project,
            egress: &self.egress,
            script,
            network: &settings.setup_network,
            secrets,
        };
        self.progress.enter(OpeningStage::Setup);
        Box::pin(self.close_door_after(environment.bring(image))).await
    }

    /// Does work for which the door of the session leads to hosts, and closes the door, also after an error.
    ///
    /// # Errors
    /// Those of the work, else those of the broker.
    async fn close_door_after<T>(&self, work: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        let done = work.await;
        let closed = self.egress.close(true).await;
        let value = done?;
        closed.map(|()| value)
    }

    /// Has the machine install what the repository needs. The door of the session leads to no host afterwards.
    ///
    /// # Errors
    /// Those of the install, of the broker and of the sandbox.
    async fn install(
        &self,
        plan: &WorkspacePlan,
        install: &TeamInstall,
        header: v1::WorkspaceHeader,
    ) -> Result<(), Status> {
        let WorkspacePlan { settings, secrets, .. } = plan;
        let header = v1::WorkspaceHeader { install: Some(install.spec(&secrets.versions)), ..header };
        self.progress.enter(OpeningStage::Install);
        let installed = async {
            let has_door = !header.git_prefixes.is_empty();
            let git = if has_door { settings.git_credentials.clone() } else { BTreeMap::new() };
            let access = CloneAccess { git: &git, url: &header.lfs_url };
            with_interruptions(|| async {
                self.egress.open_for_setup(&settings.setup_network, access, secrets).await?;
                let items = self.deps.sandbox.call(|mut client| {
                    let parts = self.messages(header.clone());
                    let parts = parts.map(|part| v1::InstallWorkspaceRequest { workspace: Some(part) });
                    async move { client.install_workspace(parts).await }
                });
                let progress = |item: v1::InstallWorkspaceResponse| item.progress.unwrap_or_default();
                items.await.map(|items| items.map(move |item| item.map(progress)))
            })
            .await
        };
        self.close_door_after(installed).await.map(drop)
    }

    /// Opens the door to git before the clone. The submodules and the objects of Git LFS of a public repository, or of copied files, need the door too, but the
    /// files themselves come without it.
    ///
    /// # Errors
    /// Those of the broker, for a repository below a prefix.
    async fn open_door(&self) -> Result<CloneDoor, Status> {
        let git = &self.origin.above.settings.git_credentials;
        let source = &self.origin.source;
        let Some(url) = source.repository() else { return Ok(CloneDoor::default()) };
        let access = CloneAccess { git, url };
        let needs_door = matches!(source.origin, Origin::GitUrl(_)) && access.has_credential();
        if access.is_empty() || !needs_door && self.deps.broker.is_none() {
            return Ok(CloneDoor::default());
        }
        match self.egress.open_for_clone(access).await {
            Ok(()) => Ok(CloneDoor {
                git_prefixes: git.keys().map(ToString::to_string).collect(),
                lfs_url: access.lfs_url(),
            }),
            Err(status) if needs_door => Err(status),
            Err(status) if has_no_doors(&status) => Ok(CloneDoor::default()),
            Err(status) => {
                tracing::warn!(
                    "files come without their submodules and their objects of Git LFS: {}",
                    status.message()
                );
                Ok(CloneDoor::default())
            }
        }
    }

    /// Asks the sandbox whether it has the files.
    async fn find(&self) -> Result<Option<OpenWorkspace>, Status> {
        let request = v1::GetWorkspaceRequest { fence: self.identity.fence() };
        let found = self.deps.sandbox.call(|mut client| {
            let request = request.clone();
            async move { client.get_workspace(request).await }
        });
        let found = found.await?;
        Ok(found.exists.then(|| OpenWorkspace::on(found.branch)))
    }

    /// Records that the files exist, before any call can change them.
    async fn note_opened(&self) -> Result<(), Status> {
        from_store(|| self.deps.store.note_workspace(self.identity.tenant, &self.identity.workspace)).await
    }

    /// Whether a loop recorded that the files exist. Another loop of the same tree may have done so since this loop began.
    pub(super) async fn is_recorded(&self) -> Result<bool, Status> {
        let store = &self.deps.store;
        let owner = from_store(|| store.get_session(self.identity.tenant, &self.identity.workspace));
        Ok(owner.await?.has_workspace)
    }

    /// The header that names the source, and opens the door to its server.
    ///
    /// # Errors
    /// As [`Workspace::open_door`].
    async fn source_header(&self) -> Result<v1::WorkspaceHeader, Status> {
        let CloneDoor { git_prefixes, lfs_url } = self.open_door().await?;
        let mut source = v1::WorkspaceHeader::from(&self.origin.source);
        if self.missing_install().is_some() {
            source.install_key = String::new();
        }
        Ok(v1::WorkspaceHeader {
            fence: self.identity.fence(),
            git_prefixes,
            lfs_url,
            project_id: self.origin.project.to_string(),
            ..source
        })
    }

    /// The header and, for a bundle, its pieces from Postgres.
    fn messages(&self, header: v1::WorkspaceHeader) -> ReceiverStream<v1::OpenWorkspaceRequest> {
        let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
        let this = self.clone();
        self.deps.tasks.spawn("workspace source", async move {
            let bundle = match &this.origin.source.origin {
                Origin::Bundle(id) => Some(id.as_str()),
                Origin::Empty | Origin::GitUrl(_) => None,
            };
            let mut next = Some(Part::Header(header));
            let mut piece = 0;
            while let Some(part) = next.take() {
                if sender.send(v1::OpenWorkspaceRequest { part: Some(part) }).await.is_err() {
                    return;
                }
                if let Some(id) = bundle {
                    let store = &this.deps.store;
                    let found = from_store(|| store.find_bundle_piece(this.identity.tenant, id, piece));
                    // After an error the stream ends early, and the sandbox refuses the incomplete bundle.
                    next = found.await.ok().flatten().map(Part::Data);
                    piece += 1;
                }
            }
        });
        ReceiverStream::new(receiver)
    }
}
