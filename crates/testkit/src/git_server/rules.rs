//! What a server of git is told to do, and what it saw.

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitRequest {
    /// `GET` or `POST`.
    pub method: String,
    /// The path with the query.
    pub target: String,
    /// The value of `Host`.
    pub host: String,
    /// The value of `Authorization`.
    pub authorization: Option<String>,
    /// The value of `Git-Protocol`.
    pub protocol: Option<String>,
}

/// What the server does instead of its work, at one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitFault {
    Status(u16),
    Redirect(String),
    /// Answers with a page of the web.
    Page,
    /// Sends so many bytes, and the rest after `release`. Sends a shorter answer as a whole.
    Hold(usize),
    /// Speaks the first version of the protocol, whichever the client asks for.
    FirstVersion,
    /// Announces the whole length, sends so many bytes, and breaks the connection.
    Truncate(usize),
}

/// A store from which clients read objects of Git LFS, instead of from the server of git.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LfsStore {
    /// `https://store.example.com`, a name of the same server.
    pub url: String,
    /// The value of a header without which the store gives nothing.
    pub key: String,
}
