//! The repository's guidance for the agent of a session: instructions, skills, and the configuration in the commit at which
//! the workspace was opened. The loop reads it at the start of each turn, because people and agents edit it between turns.

use super::{
    above::SettingsAbove,
    proposal::{ChosenEnvironment, EnvironmentNotice, Proposer},
    reading::CommitQuestion,
    workspace::Workspace,
};
use crate::process::{
    deps::Deps,
    sandbox::{Identity, is_stale},
};
use domain::conversation::message::Error;
use rpc::v1::{self, ErrorCode};
use settings::{
    LostWorkspace, Settings,
    document::Document,
    repository::{RepositorySettings, UnclearRestriction},
};
use std::sync::Arc;
use tonic::Status;

/// The guidance of a turn.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Guidance {
    /// The commit of the configuration. The configuration is read only once, because it cannot change while the
    /// workspace lives.
    pub(crate) base_commit: String,
    /// First the files of the directories from the workspace's root down, then those that the configuration names.
    pub(crate) instructions: Vec<v1::GuidanceFile>,
    /// Sorted by name.
    pub(crate) skills: Vec<v1::Skill>,
    /// One sentence for each kind of content that the files lack although their repository names it.
    pub(crate) missing_content: Vec<String>,
    /// The instructions and the configuration that were not read, because they exceed a bound.
    pub(crate) too_large: Vec<v1::UnreadFile>,
    /// The settings of the configuration, merged with those above it.
    pub(crate) settings: Arc<Settings>,
    /// The problems of the configuration, for people.
    pub(crate) problems: Option<String>,
    /// Why the environment of the repository is not used.
    pub(crate) environment_notice: Option<EnvironmentNotice>,
    /// Where it was read.
    pub(crate) origin: GuidanceOrigin,
}

/// Where guidance was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum GuidanceOrigin {
    /// In the files of the session.
    #[default]
    Files,
    /// In the commit that its source named, because the session has no files yet.
    Commit,
}

/// Why the guidance of a turn cannot be read.
#[derive(Debug)]
pub(crate) enum GuidanceError {
    /// The workspace cannot be opened or read.
    Files(Status),
    /// A mistake in the configuration makes its permissions unclear.
    Unsafe(String),
}

impl From<Status> for GuidanceError {
    fn from(status: Status) -> Self {
        Self::Files(status)
    }
}

impl Guidance {
    /// Reads the guidance. `known` is that of an earlier turn. As long as a session has no files, the commit of its source guides it; files that an agent may
    /// have written are opened for that.
    ///
    /// A workspace that starts empty has no configuration. A failure to read its guidance does not fail the turn, unless another loop has taken over; the first
    /// tool that needs the workspace opens it.
    ///
    /// # Errors
    /// If the workspace cannot be opened or read, or the configuration is unsafe.
    pub(crate) async fn read(
        deps: &Deps,
        identity: &Identity,
        workspace: &Workspace,
        above: &SettingsAbove,
        known: &Self,
    ) -> Result<Self, GuidanceError> {
        if !workspace.has_source() {
            // Only the beginning of a turn can decide to continue without lost files.
            if workspace.was_opened() && above.settings.lost_workspace == Some(LostWorkspace::Restart) {
                workspace.ready().await?;
            }
            let found = deps.sandbox.client().read_guidance(request(identity, known)).await;
            if let Err(status) = &found
                && is_stale(status)
            {
                return Err(status.clone().into());
            }
            let found = found.map(tonic::Response::into_inner).unwrap_or_default();
            return Self::of(&above.documents, found, known);
        }
        let ask = async |known: &Self| {
            if let Some(found) =
                workspace.read_source(CommitQuestion::Guidance(&known.settings.instructions)).await?
            {
                return Ok((found.guidance.unwrap_or_default(), GuidanceOrigin::Commit));
            }
            workspace.ready().await?;
            let read = deps.sandbox.call(|mut client| {
                let request = request(identity, known);
                async move { client.read_guidance(request).await }
            });
            read.await.map(|found| (found, GuidanceOrigin::Files))
        };
        let (found, origin) = ask(known).await?;
        let (project, source) = (workspace.project(), workspace.source());
        let proposer = Proposer { project, source, above: &above.settings };
        let chosen = ChosenEnvironment::of(deps, identity, proposer, &found.configuration).await?;
        let documents: Vec<_> = above.documents.iter().cloned().chain(chosen.document).collect();
        let guidance = Self::of(&documents, found, known)?;
        let environment_notice = match (chosen.notice, guidance.environment_notice) {
            // That of an earlier turn says already what is not installed.
            (None, Some(earlier)) => Some(earlier),
            (found, _) => EnvironmentNotice::joined(found, workspace.missing_install().cloned()),
        };
        let guidance = Self { environment_notice, origin, ..guidance };
        if guidance.settings.instructions == known.settings.instructions {
            return Ok(guidance);
        }
        // Only now does the loop know which files the configuration names.
        let (found, origin) = ask(&guidance).await?;
        Ok(Self { origin, ..Self::of(&documents, found, &guidance)? })
    }

    /// Whether files of the commit `opened` guide otherwise than this guidance says.
    pub(crate) fn is_outdated(&self, opened: &str) -> bool {
        self.origin == GuidanceOrigin::Commit && self.base_commit != opened
    }

    fn of(above: &[Document], found: v1::ReadGuidanceResponse, known: &Self) -> Result<Self, GuidanceError> {
        for sentence in &found.left_out {
            tracing::debug!("guidance is incomplete: {sentence}");
        }
        let is_known = !known.base_commit.is_empty() && found.base_commit == known.base_commit;
        let is_configuration = |file: &&v1::UnreadFile| settings::repository::is_settings(&file.path);
        let mut too_large = found.too_large;
        if is_known {
            too_large.extend(known.too_large.iter().filter(is_configuration).cloned());
        }
        let is_restriction = |file: &&v1::UnreadFile| {
            is_configuration(file) && (file.hides_others || settings::repository::may_restrict(&file.path))
        };
        if let Some(file) = too_large.iter().find(is_restriction) {
            return Err(GuidanceError::Unsafe(format!("{}: {}", file.path, file.reason)));
        }
        let (settings, problems) = if is_known {
            (Arc::clone(&known.settings), known.problems.clone())
        } else {
            let files: Vec<(&str, &str)> =
                found.configuration.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
            let configured = settings::repository::configure(above, &files);
            let RepositorySettings { merged, problems } =
                configured.map_err(|UnclearRestriction(text)| GuidanceError::Unsafe(text))?;
            (Arc::new(merged.settings), problems)
        };
        let v1::ReadGuidanceResponse { base_commit, instructions, skills, missing_content, .. } = found;
        let environment_notice = known.environment_notice.clone().filter(|_| is_known);
        Ok(Self {
            base_commit,
            instructions,
            skills,
            missing_content,
            too_large,
            settings,
            problems,
            environment_notice,
            origin: GuidanceOrigin::Files,
        })
    }

    /// The instructions as blocks of the system prompt.
    pub(crate) fn system_blocks(&self) -> Vec<String> {
        let texts: Vec<String> = self.instructions.iter().map(instruction).collect();
        if texts.is_empty() { vec![] } else { vec![texts.join("\n\n")] }
    }
}

/// The error that a session shows for an invalid configuration.
pub(crate) fn configuration_error(problems: &str) -> Error {
    Error::coded(
        ErrorCode::ConfigInvalid.as_str(),
        format!("The configuration of the repository is invalid:\n{problems}"),
    )
}

/// The error that a session shows for parts of the configuration that do not apply.
pub(crate) fn left_out_error(problems: &str) -> Error {
    let text = format!(
        "Parts of the configuration of the repository are left out, and the rest applies:\n{problems}"
    );
    Error::coded(ErrorCode::ConfigInvalid.as_str(), text)
}

/// The error that a session shows for instructions and configuration that are too large to be read.
pub(crate) fn too_large_error(files: &[v1::UnreadFile]) -> Option<Error> {
    let text = format!("These files of the repository are not read:\n{}", unread(files));
    (!files.is_empty()).then(|| Error::coded(ErrorCode::ConfigTooLarge.as_str(), text))
}

/// Names files that are not read, each with the reason.
pub(crate) fn unread(files: &[v1::UnreadFile]) -> String {
    files.iter().map(|file| format!("{}: {}", file.path, file.reason)).collect::<Vec<_>>().join("\n")
}

/// An instruction file as a model reads it.
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
