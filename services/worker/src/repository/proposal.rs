//! The environment that the repository of a session proposes. It counts when an admin has allowed it; until then, the one that was allowed last in the
//! project does.

use super::stored::from_store;
use crate::process::{deps::Deps, sandbox::Identity};
use domain::{conversation::message::Error, ids::ProjectId};
use rpc::v1;
use settings::{
    document::Document,
    problem::Problems,
    proposal::{self, Proposal},
    standing,
};
use store::people::environments::{EnvironmentChoice, NewProposal};
use tonic::Status;

/// Digits of a digest that people read and type.
const DIGEST_SHOWN: usize = 12;

/// What the proposal of a repository adds to the settings above it.
#[derive(Debug, Default)]
pub(super) struct ChosenEnvironment {
    /// The settings that an admin has allowed.
    pub(super) document: Option<Document>,
    /// Why the environment of the repository itself is not used, for people.
    pub(super) notice: Option<Error>,
}

impl ChosenEnvironment {
    /// Finds it, and keeps a new proposal for an admin. A file with a mistake proposes nothing.
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
        let proposal = match proposal::find(&files) {
            Ok(Some(proposal)) => proposal,
            Ok(None) => return Ok(Self::default()),
            Err(problems) => return Ok(Self { document: None, notice: mistake(&problems) }),
        };
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

/// The mistakes in a file of another tool. Those in the file that is written for Flotilla are told with the rest of the configuration.
fn mistake(problems: &Problems) -> Option<Error> {
    let is_ours = problems.list.iter().any(|problem| &*problem.origin.file == proposal::FILE);
    let text = || format!("The environment of the repository cannot be used:\n{problems}");
    (!is_ours).then(|| Error::coded("environment_invalid", text()))
}

fn notice(project: &ProjectId, proposal: &Proposal, chosen: &EnvironmentChoice) -> Option<Error> {
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
    let text = format!(
        "This session does not use the environment in {}, because {why}. It uses {instead}. An admin sees it with `flotilla env show {digest} --project {project}` and allows \
         it with `flotilla env allow {digest} --project {project}`; new sessions then use it",
        proposal.file,
        digest = &chosen.digest[..DIGEST_SHOWN.min(chosen.digest.len())],
    );
    Some(Error::coded("environment_not_allowed", text))
}
