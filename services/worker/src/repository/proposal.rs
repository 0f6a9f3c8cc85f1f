//! The environment that the repository of a session proposes. It counts when an admin has allowed it; until then, the one that was allowed last in the
//! project does.

use super::stored::from_store;
use crate::process::{deps::Deps, sandbox::Identity};
use domain::ids::ProjectId;
use rpc::v1;
use settings::{
    document::Document,
    proposal::{self, Proposal},
    standing,
};
use store::people::environments::{EnvironmentChoice, NewProposal};
use tonic::Status;

/// What the proposal of a repository adds to the settings above it.
#[derive(Debug, Default)]
pub(super) struct ChosenEnvironment {
    /// The settings that an admin has allowed.
    pub(super) document: Option<Document>,
    /// Why the environment of the repository itself is not used, for people.
    pub(super) notice: Option<String>,
}

impl ChosenEnvironment {
    /// Finds it, and keeps a new proposal for an admin. A file with a mistake proposes nothing: the configuration of the repository tells the
    /// mistake.
    ///
    /// # Errors
    /// `store_unavailable`.
    pub(super) async fn of(
        deps: &Deps,
        identity: &Identity,
        project: &ProjectId,
        files: &[v1::GuidanceFile],
    ) -> Result<Self, Status> {
        let files: Vec<_> = files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
        let Ok(Some(proposal)) = proposal::find(&files) else { return Ok(Self::default()) };
        let new = NewProposal {
            project,
            session: &identity.workspace,
            file: &proposal.file,
            document: &proposal.document,
            unused: &proposal.unused,
        };
        let chosen = from_store(|| deps.store.propose_environment(identity.tenant, new)).await?;
        let notice = notice(project, &proposal, &chosen);
        let document = chosen.allowed.and_then(|allowed| {
            let read = standing::allowed(&allowed.file, &allowed.document);
            read.inspect_err(|problems| {
                tracing::warn!("an environment that was allowed is invalid now: {problems}")
            })
            .ok()
        });
        Ok(Self { document, notice })
    }
}

fn notice(project: &ProjectId, proposal: &Proposal, chosen: &EnvironmentChoice) -> Option<String> {
    let own = chosen.own.as_ref().and_then(|own| own.decision.as_ref());
    let why = match own {
        Some(decision) if decision.is_allowed => return None,
        Some(decision) => format!("{} has denied it", decision.by),
        None => "no admin has allowed it yet".to_owned(),
    };
    let instead = match &chosen.allowed {
        Some(_) => "the one that was allowed last in this project",
        None => "the environment of the settings",
    };
    Some(format!(
        "This session does not use the environment in {}, because {why}. It uses {instead}. An admin sees it with `flotilla env show {digest} --project {project}` and allows \
         it with `flotilla env allow {digest} --project {project}`; new sessions then use it",
        proposal.file,
        digest = &chosen.digest[..DIGEST_SHOWN.min(chosen.digest.len())],
    ))
}

/// Digits of a digest that people read and type.
const DIGEST_SHOWN: usize = 12;
