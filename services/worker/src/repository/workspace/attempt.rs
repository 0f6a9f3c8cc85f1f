//! One attempt to open a workspace: performs the steps that `domain::opening` decides on. Before each step it sets the door of the session
//! to where the step lets it lead.

use super::{
    install::TeamInstall,
    means::{Means, OpenWorkspace, WorkspaceOrigin},
};
use crate::{
    process::sandbox::lost,
    repository::{
        egress::{CloneAccess, has_no_doors},
        environment::{entries, with_interruptions},
        image::{WorkspaceImage, with_variables},
        proposal::{ChosenEnvironment, Proposer},
        reading,
        secrets::{SecretUse, SetupSecrets},
    },
};
use domain::{
    opening::{Assurance, Door, Failure, FoundFiles, Opening, Outcome, Scripts, Stage, Step},
    session::Origin,
};
use rpc::v1::{self, ErrorCode};
use settings::Settings;
use std::{collections::BTreeMap, sync::Arc};
use tokio_stream::StreamExt as _;
use tonic::Status;

/// An attempt to open a workspace, with what its steps have found so far.
pub(super) struct Attempt<'a> {
    means: &'a Means,
    /// The settings above the repository, with its environment if that was allowed.
    settings: Arc<Settings>,
    /// The commit of the source; empty: it was not cloned ahead.
    base_commit: String,
    /// What its sandboxes see at `/`, with their variables.
    image: Option<v1::Image>,
    /// The install that runs with its files; `None`: none does.
    install: Option<TeamInstall>,
    secrets: SetupSecrets,
    /// The name of what the setup made; empty: there is none.
    environment_key: String,
    clone_door: CloneDoor,
    opened: Option<OpenWorkspace>,
    /// Why the newest step failed.
    failure: Option<Status>,
}

/// What the door of a session reads for its clone.
#[derive(Debug, Default, PartialEq)]
struct CloneDoor {
    /// The prefixes of the URLs for which the broker has a credential.
    git_prefixes: Vec<String>,
    /// The repository whose objects of Git LFS it reads; empty: none.
    lfs_url: String,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(means: &'a Means) -> Self {
        Self {
            means,
            settings: Arc::clone(&means.origin.above.settings),
            base_commit: String::new(),
            image: None,
            install: None,
            secrets: SetupSecrets::default(),
            environment_key: String::new(),
            clone_door: CloneDoor::default(),
            opened: None,
            failure: None,
        }
    }

    /// Opens the workspace, unless it is open.
    ///
    /// # Errors
    /// `workspace_lost`, `store_unavailable`, `secret_not_found`; those of the clone, of the scripts, of the broker and of the sandbox.
    ///
    /// Dropped midway: a script that has begun goes on, and the next attempt closes its door.
    pub(super) async fn open(mut self) -> Result<OpenWorkspace, Status> {
        let mut opening = Opening::of(self.means.has_source());
        loop {
            let step = opening.step();
            match step {
                Step::End => return self.opened.ok_or_else(lost),
                Step::Fail => return Err(self.failure.unwrap_or_else(lost)),
                Step::Find
                | Step::Clone
                | Step::Prepare
                | Step::SetUp
                | Step::Install
                | Step::CloseDoor
                | Step::LeaveInstallOut
                | Step::OpenFiles(_)
                | Step::SealDoor
                | Step::Record => {}
            }
            if let Some(stage) = step.stage() {
                self.means.progress.enter(stage);
            }
            // The door is closed after a failed script; why that failed remains the reason.
            if step != Step::CloseDoor {
                self.failure = None;
            }
            let outcome = match Box::pin(self.perform(step)).await {
                Ok(outcome) => outcome,
                Err(status) => {
                    let failure = failure_of(&status);
                    self.failure.get_or_insert(status);
                    Outcome::Failed(failure)
                }
            };
            opening.apply(outcome);
        }
    }

    /// Asks the machine what the commit of the source has for agents, through the door of a clone. Gives the session no files.
    ///
    /// # Errors
    /// Those of a clone.
    pub(super) async fn read_source(
        mut self,
        question: v1::ReadSourceRequest,
    ) -> Result<v1::ReadSourceResponse, Status> {
        let means = self.means;
        means.progress.enter(Stage::Clone);
        if let Some(clone_door) = self.set_door(Step::Clone.door()).await? {
            self.clone_door = clone_door;
        }
        let header = self.source_header();
        let read = means.deps.sandbox.call(|mut client| {
            let messages = reading::messages(question.clone(), means.messages(header.clone()));
            async move { client.read_source(messages).await }
        });
        let read = read.await;
        if self.clone_door != CloneDoor::default() {
            // A person may open the files before a loop sets the rules of the door again.
            means.egress.close_to_repositories().await;
        }
        read
    }

    async fn perform(&mut self, step: Step) -> Result<Outcome, Status> {
        // Each run of a script opens the door itself.
        if !step.runs_script()
            && let Some(clone_door) = self.set_door(step.door()).await?
        {
            self.clone_door = clone_door;
        }
        match step {
            Step::Find => return self.find().await.map(Outcome::Found),
            Step::Clone => return self.clone_source().await,
            Step::Prepare => return self.prepare().await.map(Outcome::Prepared),
            Step::SetUp => self.environment_key = self.set_up(step.door()).await?,
            Step::Install => self.install(step.door()).await?,
            Step::LeaveInstallOut => self.means.leave_install_out(),
            Step::OpenFiles(_) => self.open_files().await?,
            Step::Record => self.means.note_opened().await?,
            Step::CloseDoor | Step::SealDoor | Step::End | Step::Fail => {}
        }
        Ok(Outcome::Done)
    }

    /// Lets the door lead where a step needs it, and nowhere else. Returns what a clone reads through it, if it was opened for that.
    async fn set_door(&self, door: Door) -> Result<Option<CloneDoor>, Status> {
        let (egress, network) = (&self.means.egress, &self.settings.setup_network);
        match door {
            Door::Unchanged => {}
            Door::Repositories => return self.open_to_repositories().await.map(Some),
            Door::Setup => {
                let nothing = CloneAccess { git: &BTreeMap::new(), url: "" };
                egress.open_for_setup(network, nothing, &self.secrets).await?;
            }
            Door::Install => {
                let has_door = !self.clone_door.git_prefixes.is_empty();
                let git = if has_door { self.settings.git_credentials.clone() } else { BTreeMap::new() };
                let access = CloneAccess { git: &git, url: &self.clone_door.lfs_url };
                egress.open_for_setup(network, access, &self.secrets).await?;
            }
            Door::Closed => egress.close(Assurance::Confirmed).await?,
            Door::Files(assurance) => {
                egress.close(assurance).await?;
                return self.open_to_repositories().await.map(Some);
            }
            Door::Sealed => egress.seal().await,
        }
        Ok(None)
    }

    /// Opens the door to the repositories of the source, and to nothing else. The submodules and the objects of Git LFS of a public repository, or of
    /// copied files, need the door too, but the files themselves come without it.
    ///
    /// # Errors
    /// Those of the broker, for a repository below a prefix.
    async fn open_to_repositories(&self) -> Result<CloneDoor, Status> {
        let git = &self.means.origin.above.settings.git_credentials;
        let source = &self.means.origin.source;
        let Some(url) = source.repository() else { return Ok(CloneDoor::default()) };
        let access = CloneAccess { git, url };
        let needs_door = matches!(source.origin, Origin::GitUrl(_)) && access.has_credential();
        if access.is_empty() || !needs_door && self.means.deps.broker.is_none() {
            return Ok(CloneDoor::default());
        }
        match self.means.egress.open_for_clone(access).await {
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

    /// Asks the sandbox and the database whether the files exist.
    async fn find(&mut self) -> Result<FoundFiles, Status> {
        let is_new = !self.means.origin.was_opened;
        // A session that this loop found without files usually has none. It need not wait for one answer after the other.
        let record = async { if is_new { self.means.is_recorded().await.map(Some) } else { Ok(None) } };
        let (found, record) = tokio::try_join!(self.means.find(), record)?;
        if found.is_some() {
            self.opened = found;
            return Ok(if is_new { FoundFiles::Unrecorded } else { FoundFiles::Recorded });
        }
        let is_recorded = match record {
            Some(is_recorded) => is_recorded,
            None => self.means.is_recorded().await?,
        };
        if !is_recorded {
            return Ok(FoundFiles::Missing);
        }
        // Another loop of the same tree may have opened them since the answer of the sandbox. If not, they are lost.
        self.opened = self.means.find().await?;
        Ok(if self.opened.is_some() { FoundFiles::Recorded } else { FoundFiles::Lost })
    }

    /// Has the machine clone the source, and reads the settings with the environment that it proposes, if that was allowed.
    ///
    /// # Errors
    /// Those of the clone and of the store.
    async fn clone_source(&mut self) -> Result<Outcome, Status> {
        let means = self.means;
        let header = self.source_header();
        let cloned = means.deps.sandbox.call(|mut client| {
            let parts = means.messages(header.clone());
            let parts = parts.map(|part| v1::CloneSourceRequest { workspace: Some(part) });
            async move { client.clone_source(parts).await }
        });
        let v1::CloneSourceResponse { base_commit, configuration } = cloned.await?;
        let files = configuration.unwrap_or_default().files;
        let WorkspaceOrigin { project, source, above, .. } = &means.origin;
        let proposer = Proposer { project, source, above: &above.settings };
        let chosen = ChosenEnvironment::of(&means.deps, &means.identity, proposer, &files).await?;
        means.set_notice(chosen.notice);
        self.settings = above.with(chosen.document).unwrap_or_else(|problems| {
            tracing::warn!("an environment that was allowed does not fit the settings: {problems}");
            Arc::clone(&above.settings)
        });
        self.base_commit = base_commit;
        if self.base_commit.is_empty() {
            (self.image, self.install, self.secrets) = (None, None, SetupSecrets::default());
            self.environment_key.clear();
            return Ok(Outcome::OpenElsewhere);
        }
        Ok(Outcome::Cloned)
    }

    /// Brings the image, and finds the scripts of the workspace with their secrets.
    ///
    /// # Errors
    /// Those of the store, of the broker and of the sandbox; `secret_not_found`.
    async fn prepare(&mut self) -> Result<Scripts, Status> {
        let (means, settings) = (self.means, Arc::clone(&self.settings));
        let (deps, project) = (&means.deps, &means.origin.project);
        let image = WorkspaceImage {
            deps,
            identity: &means.identity,
            project,
            setting: settings.image.as_ref(),
            progress: &means.progress,
        };
        self.image = with_variables(image.bring().await?, &settings.variables);
        self.environment_key.clear();
        let has_setup = settings.image.as_ref().is_some_and(|image| image.setup.is_some());
        self.install = TeamInstall::of(&settings, &means.origin.source);
        let secret_use = match &self.install {
            Some(install) => Some(install.secret_use()),
            None => has_setup.then_some(SecretUse::Setup),
        };
        self.secrets = match secret_use {
            Some(of) => SetupSecrets::find(deps, &means.identity, project, &settings.secrets, of).await?,
            None => SetupSecrets::default(),
        };
        Ok(Scripts { setup: has_setup, install: self.install.is_some() })
    }

    /// Brings what the setup of the settings makes on top of the image, and gives its key. The machine builds it once for all sessions that need the
    /// same.
    ///
    /// # Errors
    /// `setup_failed`, `setup_timeout`, `setup_disk_full`, `setup_interrupted`; those of the broker and of the sandbox.
    async fn set_up(&self, door: Door) -> Result<String, Status> {
        let script = self.settings.image.as_ref().and_then(|image| image.setup.as_ref());
        let Some((image, script)) = self.image.as_ref().zip(script) else { return Ok(String::new()) };
        let means = self.means;
        let request = v1::BuildEnvironmentRequest {
            fence: means.identity.fence(),
            project_id: means.origin.project.to_string(),
            image: Some(image.clone()),
            script: script.clone(),
            hosts: self.settings.setup_network.iter().map(entries).collect(),
            secrets: self.secrets.versions.clone(),
        };
        with_interruptions(|| async {
            self.set_door(door).await?;
            let build = means.deps.sandbox.call(|mut client| {
                let request = request.clone();
                async move { client.build_environment(request).await }
            });
            build.await
        })
        .await
    }

    /// Has the machine install what the repository needs.
    ///
    /// # Errors
    /// Those of the install, of the broker and of the sandbox.
    async fn install(&self, door: Door) -> Result<(), Status> {
        let (means, header) = (self.means, self.header());
        let installed = with_interruptions(|| async {
            self.set_door(door).await?;
            let items = means.deps.sandbox.call(|mut client| {
                let parts = means.messages(header.clone());
                let parts = parts.map(|part| v1::InstallWorkspaceRequest { workspace: Some(part) });
                async move { client.install_workspace(parts).await }
            });
            let progress = |item: v1::InstallWorkspaceResponse| item.progress.unwrap_or_default();
            items.await.map(|items| items.map(move |item| item.map(progress)))
        });
        installed.await.map(drop)
    }

    /// Lets the files become the workspace.
    ///
    /// # Errors
    /// Those of the sandbox, such as `source_changed`, `environment_missing` and `install_missing`.
    async fn open_files(&mut self) -> Result<(), Status> {
        let (means, header) = (self.means, self.header());
        let open = means.deps.sandbox.call(|mut client| {
            let messages = means.messages(header.clone());
            async move { client.open_workspace(messages).await }
        });
        let v1::OpenWorkspaceResponse { base_commit, branch, .. } = open.await?;
        self.opened = Some(OpenWorkspace::at(base_commit, branch));
        Ok(())
    }

    /// The header with everything that the workspace gets.
    fn header(&self) -> v1::WorkspaceHeader {
        let settings = &self.settings;
        v1::WorkspaceHeader {
            environment_key: self.environment_key.clone(),
            image: self.image.clone(),
            install: self.install.as_ref().map(|install| install.spec(&self.secrets.versions)),
            start: settings.start.clone().unwrap_or_default(),
            options: Some(v1::SandboxOptions {
                allow_ptrace: settings.allow_ptrace == Some(true),
                allow_user_namespaces: settings.allow_user_namespaces == Some(true),
            }),
            base_commit: self.base_commit.clone(),
            ..self.source_header()
        }
    }

    /// The header that names the source.
    fn source_header(&self) -> v1::WorkspaceHeader {
        let mut source = v1::WorkspaceHeader::from(&self.means.origin.source);
        if self.means.missing_install().is_some() {
            source.install_key = String::new();
        }
        v1::WorkspaceHeader {
            fence: self.means.identity.fence(),
            git_prefixes: self.clone_door.git_prefixes.clone(),
            lfs_url: self.clone_door.lfs_url.clone(),
            project_id: self.means.origin.project.to_string(),
            ..source
        }
    }
}

/// What a refusal means for the opening.
fn failure_of(status: &Status) -> Failure {
    match rpc::status::code(status) {
        Some(ErrorCode::SourceChanged) => Failure::SourceChanged,
        Some(ErrorCode::EnvironmentMissing) => Failure::EnvironmentMissing,
        Some(ErrorCode::InstallMissing) => Failure::InstallMissing,
        Some(_) | None => Failure::Other,
    }
}
