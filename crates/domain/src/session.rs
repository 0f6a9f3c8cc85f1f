//! Sessions: their phase, how a turn ended, and OpenCode's Session object.

pub mod environment;
pub mod files;
pub mod image;

use crate::{
    conversation::message::{FileDiff, ModelRef, dollars},
    ids::{MessageId, PartId, ProjectId, SessionId, Timestamp},
    money::{Tokens, UsdPicos},
    policy::permission::Rule,
    text::is_object_id,
};
use serde::{Deserialize, Serialize};

/// The agent of sessions and prompts that name none.
pub const DEFAULT_AGENT: &str = "build";
/// The directory of a session's files, as its tools see it.
pub const WORKSPACE: &str = "/workspace";
/// The branch of files that start empty.
pub const FIRST_BRANCH: &str = "main";
/// The directory of the whole outputs of a session's tools, as the tools see it. The sandbox cannot write to it.
pub const OUTPUTS: &str = "/run/sbx/out";

/// The phase of a session, in its control row. Only `Running` holds a worker slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The session has no work.
    Idle,
    /// The session has work and waits for a worker.
    Runnable,
    /// A worker owns the loop.
    Running,
    /// The session is parked until `wake_at` or an input.
    Waiting,
    /// The session failed too often; an operator must release it.
    Quarantined,
}

impl Phase {
    /// The number in `session_run.phase`.
    pub const fn to_i16(self) -> i16 {
        match self {
            Self::Idle => 0,
            Self::Runnable => 1,
            Self::Running => 2,
            Self::Waiting => 3,
            Self::Quarantined => 4,
        }
    }

    /// Reads [`Phase::to_i16`]; `None` for a number that this version does not know.
    pub fn from_i16(number: i16) -> Option<Self> {
        [Self::Idle, Self::Runnable, Self::Running, Self::Waiting, Self::Quarantined]
            .into_iter()
            .find(|phase| phase.to_i16() == number)
    }
}

/// How urgent a session is, most urgent first. Inside a tenant the classes share its slots by [`Class::weight`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Class {
    /// A person waits for the answer.
    #[default]
    Interactive,
    /// Work on a pull request: a person looks at it within minutes.
    Pr,
    /// One session of a batch: no person waits for it.
    Batch,
}

impl Class {
    /// Every class, most urgent first.
    pub const ALL: [Self; 3] = [Self::Interactive, Self::Pr, Self::Batch];

    /// The number in `session_run.class`, and the index in [`Class::ALL`].
    pub const fn to_i16(self) -> i16 {
        match self {
            Self::Interactive => 0,
            Self::Pr => 1,
            Self::Batch => 2,
        }
    }

    /// Reads [`Class::to_i16`]; `None` for a number that this version does not know.
    pub fn from_i16(number: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.to_i16() == number)
    }

    /// The word in metrics, logs and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Pr => "pr",
            Self::Batch => "batch",
        }
    }

    /// Its share of a tenant's slots while all classes of the tenant have work. The order is not strict: the least
    /// urgent class still gets slots.
    pub fn weight(self) -> u32 {
        match self {
            Self::Interactive => 16,
            Self::Pr => 4,
            Self::Batch => 1,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The model finished its answer.
    Done,
    Failed,
    /// A person or an operator stopped it.
    Aborted,
    /// It needs a person to continue, for example after a loop of identical calls.
    NeedsHuman,
}

impl Outcome {
    /// The value in JSON and in `session.last_outcome`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
            Self::NeedsHuman => "needs_human",
        }
    }

    /// Reads [`Outcome::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Done, Self::Failed, Self::Aborted, Self::NeedsHuman].into_iter().find(|o| o.as_str() == text)
    }
}

/// Where the files of a session come from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Source {
    /// The origin to clone.
    #[serde(flatten)]
    pub origin: Origin,
    /// Branch, tag or commit; absent: the default branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The branch on which the files begin: that of the repository if it has one of this name, else a new one at the revision. Absent: the
    /// branch of the revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Whether its last commit contains changes that were never committed, as in a fork.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncommitted: bool,
    /// Where the objects of Git LFS of the files are, if the files are a copy of those of another session. Absent: they are none, or an earlier version
    /// copied them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lfs: Option<LfsOrigin>,
    /// The repository that an uploaded bundle was made of, as the client who uploaded it says: a URL without a user or a password. Only pushes of people lead
    /// there, as far as settings allow them. Absent: the client named none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// What is installed where the files were copied from: its key on the sandbox machine. Absent: nothing, the files are no copy, or an earlier version
    /// copied them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<String>,
}

/// A copy of the files of a workspace, as a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesCopy {
    pub bundle: String,
    /// Its last commit, which has the files that were never committed.
    pub commit: String,
    /// The key of what is installed in the workspace; `None`: nothing.
    pub install: Option<String>,
}

/// Where the objects of Git LFS of copied files are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LfsOrigin {
    /// The session whose workspace the files were copied from.
    pub workspace: SessionId,
    /// The URL of the repository that the first of these workspaces started from; absent: it started from none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
}

impl Source {
    /// The source of a workspace that begins with `copy`, the files of `workspace`, which started from this source.
    pub fn copied(&self, workspace: &SessionId, copy: FilesCopy) -> Self {
        let repository = self.repository().map(ToOwned::to_owned);
        let FilesCopy { bundle, commit, install } = copy;
        Self {
            origin: Origin::Bundle(bundle),
            revision: Some(commit),
            // The bundle has the branch that the files are on now.
            branch: None,
            uncommitted: true,
            lfs: Some(LfsOrigin { workspace: workspace.clone(), repository }),
            remote: self.remote.clone(),
            install,
        }
    }

    /// Whether it names the same commit forever: an upload does, and a commit by its whole name.
    pub fn is_fixed(&self) -> bool {
        match self.origin {
            Origin::Bundle(_) => true,
            Origin::Empty => false,
            Origin::GitUrl(_) => self.branch.is_none() && self.revision.as_deref().is_some_and(is_object_id),
        }
    }

    /// The URL of the repository that people push the files to: the one that they are from, or that of which a client made them.
    pub fn push_url(&self) -> Option<&str> {
        self.repository().or(self.remote.as_deref())
    }

    /// The URL of the repository that the files are from, also if they are a copy.
    pub fn repository(&self) -> Option<&str> {
        match &self.origin {
            Origin::GitUrl(url) => Some(url),
            Origin::Empty | Origin::Bundle(_) => self.lfs.as_ref()?.repository.as_deref(),
        }
    }
}

/// The host and path of a remote: the same for all its protocols and users. `None` for a repository without a host.
pub fn repository_name(url: &str) -> Option<String> {
    let (authority, path) = match url.split_once("://") {
        Some((_, rest)) => rest.split_once('/')?,
        // git@host:path is ssh in git's short form.
        None => url.split_once(':').filter(|(host, _)| !host.contains('/'))?,
    };
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = host.split(':').next().unwrap_or_default().to_lowercase();
    let path = path.trim_matches('/').trim_end_matches(".git");
    (!host.is_empty() && !path.is_empty()).then(|| format!("{host}/{path}"))
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "from", content = "id", rename_all = "snake_case")]
pub enum Origin {
    /// Nothing: the workspace starts empty.
    #[default]
    Empty,
    /// A repository by its URL.
    GitUrl(String),
    /// An uploaded bundle by its id.
    Bundle(String),
}

/// OpenCode's Session object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Info {
    pub id: SessionId,
    #[serde(rename = "projectID")]
    pub project_id: ProjectId,
    /// The directory of its files, as its tools see it.
    pub directory: String,
    /// Its parent, for a child session.
    #[serde(default, rename = "parentID", skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<SessionId>,
    pub title: String,
    pub version: String,
    /// The agent of its next prompt.
    pub agent: String,
    /// The model of its next prompt.
    pub model: InfoModel,
    /// Exact cost so far; dollars in JSON.
    #[serde(with = "dollars")]
    pub cost: UsdPicos,
    pub tokens: Tokens,
    /// The sum of its file changes, once there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Changes>,
    /// The revert that the next prompt completes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revert: Option<Revert>,
    /// The rules that it was created with, without later answers "always".
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permission: Vec<Rule>,
    /// When it was created, changed and archived.
    pub time: InfoTime,
}

/// The sum of the changes in a session's files since its first step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Changes {
    pub additions: u64,
    pub deletions: u64,
    pub files: u64,
}

impl Changes {
    /// Adds up the changes of files.
    pub fn of(diffs: &[FileDiff]) -> Self {
        let sum = |lines: fn(&FileDiff) -> u64| diffs.iter().map(lines).sum();
        Self {
            additions: sum(|diff| diff.additions),
            deletions: sum(|diff| diff.deletions),
            files: diffs.len() as u64,
        }
    }
}

/// A revert to an earlier point: the files are restored, and the next prompt removes the messages.
///
/// ```json
/// {"messageID":"msg_…","snapshot":"4b825dc6…","diff":"diff --git …"}
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revert {
    /// The first removed message; with `part_id`, the message whose later parts are removed.
    #[serde(rename = "messageID")]
    pub message_id: MessageId,
    /// The first removed part.
    #[serde(default, rename = "partID", skip_serializing_if = "Option::is_none")]
    pub part_id: Option<PartId>,
    /// The snapshot of the files before the revert.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// The changes of the revert, as a unified diff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// Whether a person chose the agent and the model of a session. Otherwise the settings decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExplicitChoices {
    /// Whether a person chose the agent.
    pub agent: bool,
    /// Whether a person chose the model.
    pub model: bool,
}

/// What the model is told when a session continues with the files of its source, because a machine lost those that it had. `decision` says who
/// decided so: "A person decided to continue".
pub fn restart_note(decision: &str) -> String {
    format!(
        "<system-reminder>The machine that held the files of this session lost them. {decision}: {WORKSPACE} now holds the files that the \
         session began with. Changes of earlier turns are gone, and so are the results of commands. Do not rely on them; look at the files \
         again.</system-reminder>"
    )
}

/// A model under the names that OpenCode uses in sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InfoModel {
    /// The provider's name of the model.
    pub id: String,
    /// Name of the provider in the configuration.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// The variant (reasoning effort) of prompts that choose none; absent: the provider's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl From<ModelRef> for InfoModel {
    fn from(model: ModelRef) -> Self {
        Self { id: model.model_id, provider_id: model.provider_id, variant: None }
    }
}

/// Milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InfoTime {
    pub created: Timestamp,
    /// When it last changed.
    pub updated: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use serde_json::json;

    #[test]
    fn all_urls_of_a_repository_have_one_name() {
        for url in [
            "https://example.com/me/app.git",
            "https://user:secret@Example.com/me/app/",
            "ssh://git@example.com:22/me/app.git",
            "git@example.com:me/app.git",
        ] {
            assert_eq!(repository_name(url).as_deref(), Some("example.com/me/app"), "{url}");
        }
        for url in ["", "file:///srv/app", "/srv/app", "../app", "https://example.com", "https:///x"] {
            assert_eq!(repository_name(url), None, "{url}");
        }
    }

    #[test]
    fn only_a_branch_or_a_tag_may_name_another_commit_later() {
        let url = || Origin::GitUrl("https://h.org/a.git".to_owned());
        let commit = Some("a".repeat(40));
        for (origin, revision, branch, want) in [
            (Origin::Bundle("b".to_owned()), None, None, true),
            (url(), commit.clone(), None, true),
            (url(), commit, Some("fix".to_owned()), false),
            (url(), Some("abcdef0".to_owned()), None, false),
            (url(), Some("main".to_owned()), None, false),
            (url(), None, None, false),
            (Origin::Empty, None, None, false),
        ] {
            let source = Source { origin, revision, branch, ..Source::default() };
            assert_eq!(source.is_fixed(), want, "{source:?}");
        }
    }

    #[test]
    fn a_copy_of_a_copy_knows_its_origin_and_the_first_repository() {
        let [first, second]: [SessionId; 2] = ["ses_1", "ses_2"].map(|id| id.parse().unwrap());
        let url = "https://h.org/a.git";
        let source = Source { origin: Origin::GitUrl(url.to_owned()), ..Source::default() };
        let copy = |number: u32| FilesCopy {
            bundle: format!("b{number}"),
            commit: format!("c{number}"),
            install: None,
        };
        let copied = source.copied(&first, copy(1));
        let again = copied.copied(&second, copy(2));
        assert_eq!(again.lfs, Some(LfsOrigin { workspace: second, repository: Some(url.to_owned()) }));
        assert_eq!((source.repository(), again.repository()), (Some(url), Some(url)));
        let empty = Source::default().copied(&first, copy(3));
        assert_eq!(empty.repository(), None);
        for source in [source, copied, again, empty] {
            let stored = serde_json::to_value(&source).unwrap();
            assert_eq!(serde_json::from_value::<Source>(stored).unwrap(), source);
        }
        // A copy that an earlier version made.
        let stored = json!({"from": "bundle", "id": "b1", "revision": "c1", "uncommitted": true});
        assert_eq!(serde_json::from_value::<Source>(stored).unwrap().lfs, None);
    }
}
