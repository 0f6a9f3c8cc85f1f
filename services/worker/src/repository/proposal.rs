//! The environment that the repository of a session proposes. It counts when an admin has allowed it, or tries it with this session; until then, the one
//! that was allowed last in the project does.

use super::stored::from_store;
use crate::process::{deps::Deps, sandbox::Identity};
use domain::{conversation::message::Error, ids::ProjectId, session::Source};
use rpc::v1::{self, ErrorCode};
use settings::{
    Settings,
    document::Document,
    problem::Problems,
    proposal::{self, Proposal},
    standing,
};
use store::people::environments::{EnvironmentChoice, NewProposal, ProposedEnvironment};
use tonic::Status;

/// Digits of a digest that people read and type.
const DIGEST_SHOWN: usize = 12;

/// What the proposal of a repository adds to the settings above it.
#[derive(Debug, Default)]
pub(super) struct ChosenEnvironment {
    /// The settings that an admin has allowed.
    pub(super) document: Option<Document>,
    /// Why the environment of the repository itself is not used.
    pub(super) notice: Option<EnvironmentNotice>,
}

/// The files whose repository proposes an environment.
#[derive(Clone, Copy)]
pub(super) struct Proposer<'a> {
    pub(super) project: &'a ProjectId,
    pub(super) source: &'a Source,
    pub(super) above: &'a Settings,
}

/// Why a session does not use the environment of its repository, and what it uses instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EnvironmentNotice {
    code: ErrorCode,
    /// For people.
    pub(crate) text: String,
    /// For the model; `None`: only people can do something about it.
    pub(crate) sentence: Option<String>,
}

impl EnvironmentNotice {
    /// A notice for people and for the model.
    pub(super) fn new(code: ErrorCode, text: String, sentence: String) -> Self {
        Self { code, text, sentence: Some(sentence) }
    }

    /// Both notices as one, with the code of the first.
    pub(super) fn joined(first: Option<Self>, second: Option<Self>) -> Option<Self> {
        let (first, second) = match (first, second) {
            (Some(first), Some(second)) => (first, second),
            (first, second) => return first.or(second),
        };
        let sentences: Vec<String> = first.sentence.into_iter().chain(second.sentence).collect();
        Some(Self {
            code: first.code,
            text: format!("{}\n{}", first.text, second.text),
            sentence: Some(sentences.join(" ")).filter(|text| !text.is_empty()),
        })
    }

    /// The error that the session shows.
    pub(crate) fn error(&self) -> Error {
        Error::coded(self.code.as_str(), self.text.clone())
    }
}

impl ChosenEnvironment {
    /// Finds it, and keeps a new proposal for an admin. A file with a mistake proposes nothing.
    ///
    /// # Errors
    /// `store_unavailable`.
    pub(super) async fn of(
        deps: &Deps,
        identity: &Identity,
        proposer: Proposer<'_>,
        files: &[v1::GuidanceFile],
    ) -> Result<Self, Status> {
        let Proposer { project, source, above } = proposer;
        let files: Vec<_> = files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
        let proposal = match proposal::find(&files) {
            Ok(Some(proposal)) => proposal,
            Ok(None) => return Ok(Self::default()),
            Err(problems) => return Ok(Self { document: None, notice: mistake(&problems) }),
        };
        let repository = proposal.shared_repository(source, above);
        let new = NewProposal {
            project,
            session: &identity.workspace,
            file: &proposal.file,
            document: &proposal.document,
            unused: &proposal.unused,
            repository: repository.as_deref(),
        };
        let chosen = from_store(|| deps.store.propose_environment(identity.tenant, new)).await?;
        let notice = notice(project, &proposal, &chosen);
        Ok(Self { document: chosen.allowed.as_ref().and_then(read), notice })
    }
}

/// Reads an environment that an admin has allowed.
pub(super) fn read(allowed: &ProposedEnvironment) -> Option<Document> {
    let read = standing::allowed(&allowed.file, &allowed.document);
    read.inspect_err(|problems| tracing::warn!("an environment that was allowed is invalid now: {problems}"))
        .ok()
}

/// The mistakes in a file of another tool. Those in the file that is written for Flotilla are told with the rest of the configuration.
fn mistake(problems: &Problems) -> Option<EnvironmentNotice> {
    let is_ours = problems.list.iter().any(|problem| &*problem.origin.file == proposal::FILE);
    let text = || format!("The environment of the repository cannot be used:\n{problems}");
    (!is_ours).then(|| EnvironmentNotice {
        code: ErrorCode::EnvironmentInvalid,
        text: text(),
        sentence: None,
    })
}

fn notice(project: &ProjectId, proposal: &Proposal, chosen: &EnvironmentChoice) -> Option<EnvironmentNotice> {
    // It is allowed, or this session tries it.
    if chosen.allowed.as_ref().is_some_and(|allowed| allowed.digest == chosen.digest) {
        return None;
    }
    let own = chosen.own.as_ref().and_then(|own| own.decision.as_ref());
    let why = match own {
        Some(decision) => format!("{} has denied it", decision.by),
        None => "no admin has allowed it yet".to_owned(),
    };
    let instead = match &chosen.allowed {
        Some(allowed) => format!(
            "the one that was allowed last in this project: that of {} ({})",
            allowed.file,
            shown(&allowed.digest)
        ),
        None => "the environment of the settings".to_owned(),
    };
    let (file, digest) = (&proposal.file, shown(&chosen.digest));
    let text = format!(
        "This session does not use the environment in {file} ({digest}), because {why}. It uses {instead}. An admin sees it with `flotilla env show {digest} --project \
         {project}` and allows it with `flotilla env allow {digest} --project {project}`; new sessions then use it"
    );
    let sentence = format!(
        "The repository describes an environment in {file} ({digest}), but {why}. Your sandbox has {instead}. Programs, packages, services and hosts that the \
         repository expects may be missing or old. If that keeps you from the task, say so, and that `flotilla env show {digest} --project {project}` shows an admin what \
         to allow."
    );
    Some(EnvironmentNotice { code: ErrorCode::EnvironmentNotAllowed, text, sentence: Some(sentence) })
}

/// The digits of a digest that name it.
fn shown(digest: &str) -> &str {
    &digest[..DIGEST_SHOWN.min(digest.len())]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use domain::ids::Timestamp;
    use store::people::environments::EnvironmentDecision;

    #[test]
    fn people_and_the_model_learn_which_environment_is_used_and_which_one_waits() {
        let text = "environment:\n  install: npm ci\n";
        let proposal = proposal::find(&[(proposal::FILE, text)]).unwrap().unwrap();
        let project: ProjectId = "prj_1".parse().unwrap();
        let allowed = ProposedEnvironment {
            digest: "b".repeat(64),
            file: ".devcontainer.json".to_owned(),
            document: "{}".to_owned(),
            unused: vec![],
            session: "ses_1".parse().unwrap(),
            proposed_at: Timestamp(0),
            decision: Some(EnvironmentDecision { is_allowed: true, by: "ann".to_owned(), at: Timestamp(0) }),
        };
        let waits = |allowed| EnvironmentChoice { digest: "a".repeat(64), own: None, allowed };
        let told = notice(&project, &proposal, &waits(Some(allowed.clone()))).unwrap();
        for text in [&told.text, told.sentence.as_ref().unwrap()] {
            for part in [
                ".flotilla/config.yaml (aaaaaaaaaaaa)",
                "that of .devcontainer.json (bbbbbbbbbbbb)",
                "no admin has allowed it yet",
                "`flotilla env show aaaaaaaaaaaa --project prj_1`",
            ] {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
        let told = notice(&project, &proposal, &waits(None)).unwrap();
        assert!(told.text.contains("It uses the environment of the settings."), "{}", told.text);
        let own =
            EnvironmentChoice { digest: "b".repeat(64), own: Some(allowed.clone()), allowed: Some(allowed) };
        assert_eq!(notice(&project, &proposal, &own), None);
    }
}
