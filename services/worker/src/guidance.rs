//! What the repository tells the agent of a session: instructions, skills, and the configuration of the commit that the
//! workspace was opened at. Read at the start of each turn, because people and agents edit it in between.

use crate::{deps::Deps, sandbox::Identity, workspace::Workspace};
use domain::message::Error;
use rpc::v1;
use settings::{
    Settings,
    document::Document,
    merge::merge,
    problem::Problems,
    repository::{RepositorySettings, UnclearRestriction},
    standing,
};
use std::sync::Arc;
use store::people::settings::StoredSettings;
use tonic::Status;

/// What was read for a turn.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Guidance {
    /// Read once for each commit: it cannot change while the workspace lives.
    pub(crate) base_commit: String,
    /// Of the levels from the workspace's root on, then those that the configuration names.
    pub(crate) instructions: Vec<v1::GuidanceFile>,
    /// By name.
    pub(crate) skills: Vec<v1::Skill>,
    /// What the configuration says, with the settings above it.
    pub(crate) settings: Arc<Settings>,
    /// What is wrong with the configuration, for people.
    pub(crate) problems: Option<String>,
}

/// What binds a session from above its repository: settings of the platform, the tenant and the project.
#[derive(Debug, Clone)]
pub(crate) struct Above {
    documents: Arc<[Document]>,
    /// What they say, for as long as there is no repository.
    pub(crate) settings: Arc<Settings>,
}

impl Above {
    /// Puts the platform's settings and those that were stored together.
    pub(crate) fn of(platform: &[Document], stored: &[StoredSettings]) -> Result<Self, Problems> {
        let stored = stored.iter().map(|stored| standing::stored(stored.level, &stored.document));
        let documents: Vec<_> = platform.iter().cloned().map(Ok).chain(stored).collect::<Result<_, _>>()?;
        let settings = Arc::new(merge(&documents)?.settings);
        Ok(Self { documents: documents.into(), settings })
    }
}

/// Why a turn cannot begin.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The files cannot be had.
    Files(Status),
    /// The configuration is wrong where it narrows rights.
    Unsafe(String),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Files(status)
    }
}

impl Guidance {
    /// Reads it, opening the workspace if it starts from a repository. `known` is that of an earlier turn.
    ///
    /// An empty workspace has no configuration, so for it nothing here is worth a failed turn: it is opened by the first
    /// tool that needs it.
    pub(crate) async fn read(
        (deps, above): (&Deps, &Above),
        identity: &Identity,
        workspace: &Workspace,
        known: &Self,
    ) -> Result<Self, Failure> {
        if !workspace.has_source() {
            let found = deps.sandbox.client().read_guidance(request(identity, known)).await;
            let found = found.map(tonic::Response::into_inner).unwrap_or_default();
            return Self::of(above, found, known);
        }
        workspace.ready().await?;
        let ask = async |known: &Self| {
            deps.sandbox
                .call(|mut client| {
                    let request = request(identity, known);
                    async move { client.read_guidance(request).await }
                })
                .await
        };
        let guidance = Self::of(above, ask(known).await?, known)?;
        if guidance.settings.instructions == known.settings.instructions {
            return Ok(guidance);
        }
        // Only now it is known which files the configuration names.
        Self::of(above, ask(&guidance).await?, &guidance)
    }

    fn of(above: &Above, found: v1::ReadGuidanceResponse, known: &Self) -> Result<Self, Failure> {
        for sentence in &found.left_out {
            tracing::debug!("guidance is left out: {sentence}");
        }
        let is_known = !known.base_commit.is_empty() && found.base_commit == known.base_commit;
        let (settings, problems) = if is_known {
            (Arc::clone(&known.settings), known.problems.clone())
        } else {
            let files: Vec<(&str, &str)> =
                found.configuration.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
            let configured = settings::repository::configure(&above.documents, &files);
            let RepositorySettings { merged, problems } =
                configured.map_err(|UnclearRestriction(text)| Failure::Unsafe(text))?;
            (Arc::new(merged.settings), problems)
        };
        let (base_commit, instructions, skills) = (found.base_commit, found.instructions, found.skills);
        Ok(Self { base_commit, instructions, skills, settings, problems })
    }

    /// The instructions as blocks of the system prompt.
    pub(crate) fn system(&self) -> Vec<String> {
        let texts: Vec<String> = self.instructions.iter().map(instruction).collect();
        if texts.is_empty() { vec![] } else { vec![texts.join("\n\n")] }
    }
}

/// What a session shows of a wrong configuration.
pub(crate) fn wrong(problems: &str) -> Error {
    Error::new("ConfigInvalidError", format!("The configuration of the repository is wrong:\n{problems}"))
}

/// A file of instructions as a model reads it.
pub(crate) fn instruction(file: &v1::GuidanceFile) -> String {
    let text = domain::text::without_nul(&file.text);
    format!("Instructions from: {}/{}\n{}", domain::session::WORKSPACE, file.path, text.trim_end())
}

fn request(identity: &Identity, known: &Guidance) -> v1::ReadGuidanceRequest {
    v1::ReadGuidanceRequest {
        fence: identity.fence(),
        known_base_commit: known.base_commit.clone(),
        instructions: known.settings.instructions.clone(),
        ..Default::default()
    }
}
