//! What a registry wants of its clients, what it does wrong, and what it saw.

/// Who gets what from a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// Everybody, without a word.
    Nobody,
    /// Clients that send this `user:password` to the registry itself.
    Basic(String),
    /// Everybody who gets a token first.
    AnyToken,
    /// Clients that get a token for this `user:password`.
    Password(String),
    /// Clients that get a token for this identity token.
    Identity(String),
    /// Clients that send this token to the registry itself.
    Bearer(String),
}

/// What a registry does instead of its work, at one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Answers with a status so many times, and then as always.
    Status {
        code: u16,
        times: usize,
        /// The seconds of `Retry-After`.
        retry_after: Option<u64>,
    },
    /// Announces the whole length, sends so many bytes, and breaks the connection.
    Truncate(usize),
    /// Sends other bytes.
    Replace(Vec<u8>),
    /// Sends other bytes and no length before them.
    ReplaceUnannounced(Vec<u8>),
    /// Sends so many bytes, and the rest after [`Registry::release`].
    Hold(usize),
    Redirect(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryRequest {
    /// Its path, without the query.
    pub path: String,
    /// The value of its `Authorization`.
    pub authorization: Option<String>,
}
