//! What the double of GitHub is told to do, and what it saw.

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    Public,
    Private,
}

/// What a person may do in a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Admin,
    Maintain,
    Write,
    Triage,
    Read,
    /// As everybody else: they read a public repository, and do not see a private one.
    Stranger,
}

/// What has reactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// An issue or a pull request, by its number.
    Issue(u64),
    /// A comment on one, by its id.
    Comment(u64),
    /// A comment on a line, by its id.
    ReviewComment(u64),
}

/// What the double does instead of its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForgeFault {
    Answer {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: String,
    },
    /// Never answers.
    Hang,
    /// Breaks the connection without a whole answer.
    Close,
}

/// How much an account may write in a minute, and what comes after that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecondaryLimit {
    pub writes: usize,
    /// 403 or 429.
    pub status: u16,
    pub retry_after_seconds: u64,
}

/// With what a request proves who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    Nobody,
    /// A JSON web token of the App.
    App,
    /// A token of an installation of the App.
    Installation,
    /// A token of a person, or one that nobody knows.
    Person,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeRequest {
    /// `GET`, `POST` and so on.
    pub method: String,
    /// The path with the query: `/api/v3/repos/acme/app/issues`.
    pub target: String,
    pub credential: Credential,
    /// `None`: the double hung or broke the connection on command.
    pub status: Option<u16>,
}

/// One attempt to send a webhook.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Delivery {
    pub id: u64,
    /// The same for all attempts.
    pub guid: String,
    /// `issue_comment` and so on.
    pub event: String,
    /// `created` and so on.
    pub action: Option<String>,
    /// 0: the receiver gave no answer.
    pub status_code: u16,
    #[serde(rename = "redelivery")]
    pub is_redelivery: bool,
    pub payload: Value,
}

/// What changes for an installation of the App. Its tokens lose what it loses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstallationChange {
    /// All of its permissions from now on, as `("issues", "read")`.
    Permissions(Vec<(&'static str, &'static str)>),
    /// The only repositories that it covers from now on.
    Repositories(Vec<&'static str>),
    Suspended,
    Unsuspended,
}
