//! What calls about a forge name.

use domain::ids::TenantId;

/// A repository, and the installation through which the App reaches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repository {
    pub(crate) tenant: TenantId,
    pub(crate) installation: u64,
    pub(crate) id: u64,
    /// "acme/app".
    pub(crate) name: String,
}

/// What an issue, a pull request or a line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommentPlace {
    /// The first text: its number.
    Body(u64),
    Comment(u64),
    /// On a line of a pull request.
    Line(u64),
}

/// A comment of the App that is to have a text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WantedComment<'a> {
    /// Of the issue or the pull request.
    pub(crate) number: u64,
    /// `None`: that with the mark, or a new one.
    pub(crate) id: Option<u64>,
    pub(crate) mark: &'a str,
    pub(crate) text: &'a str,
}

/// What a check shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckState {
    InProgress,
    Success,
    Failure,
    Neutral,
    ActionRequired,
}

/// A check that a commit is to have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WantedCheck<'a> {
    /// `None`: that of this name at this commit, or a new one.
    pub(crate) id: Option<u64>,
    pub(crate) name: &'a str,
    pub(crate) commit: &'a str,
    pub(crate) state: CheckState,
    pub(crate) title: &'a str,
    pub(crate) external_id: &'a str,
}

/// A pull request that is to be open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WantedPullRequest<'a> {
    pub(crate) head: &'a str,
    pub(crate) base: &'a str,
    pub(crate) title: &'a str,
    pub(crate) body: &'a str,
    pub(crate) is_draft: bool,
}
