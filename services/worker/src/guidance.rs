//! What the repository tells the agent of a session: instructions, skills, and the configuration of the commit that the
//! workspace was opened at. Read at the start of each turn, because people and agents edit it in between.

use crate::{deps::Deps, sandbox::Identity, workspace::Workspace};
use rpc::v1;
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
    /// The files of the configuration.
    pub(crate) configuration: Vec<v1::GuidanceFile>,
}

impl Guidance {
    /// Reads it, opening the workspace if it starts from a repository. `known` is that of an earlier turn.
    ///
    /// An empty workspace has no configuration, so for it nothing here is worth a failed turn: it is opened by the first
    /// tool that needs it.
    pub(crate) async fn read(
        deps: &Deps,
        identity: &Identity,
        workspace: &Workspace,
        known: &Self,
    ) -> Result<Self, Status> {
        if !workspace.has_source() {
            let request = request(identity, known);
            let found = deps.sandbox.client().read_guidance(request).await;
            return Ok(found.map_or_else(|_| Self::default(), |found| Self::of(found.into_inner(), known)));
        }
        workspace.ready().await?;
        let found = deps.sandbox.call(|mut client| {
            let request = request(identity, known);
            async move { client.read_guidance(request).await }
        });
        Ok(Self::of(found.await?, known))
    }

    fn of(found: v1::ReadGuidanceResponse, known: &Self) -> Self {
        for sentence in &found.left_out {
            tracing::debug!("guidance is left out: {sentence}");
        }
        let is_known = !known.base_commit.is_empty() && found.base_commit == known.base_commit;
        Self {
            configuration: if is_known { known.configuration.clone() } else { found.configuration },
            base_commit: found.base_commit,
            instructions: found.instructions,
            skills: found.skills,
        }
    }

    /// The instructions as blocks of the system prompt.
    pub(crate) fn system(&self) -> Vec<String> {
        let texts: Vec<String> = self.instructions.iter().map(instruction).collect();
        if texts.is_empty() { vec![] } else { vec![texts.join("\n\n")] }
    }
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
        ..Default::default()
    }
}
