//! Failures of the connection to a provider.

use crate::error::{Error, ErrorKind};

/// The error for a failed connection, with its causes but without the URL, which the settings already show.
pub(super) fn transport(what: &str, error: reqwest::Error) -> Error {
    let kind = match (error.is_timeout(), error.is_builder()) {
        (true, _) => ErrorKind::Timeout,
        // The key or a header contains characters that HTTP forbids; the request was never sent.
        (false, true) => ErrorKind::Invalid,
        (false, false) => ErrorKind::Transport,
    };
    let error = error.without_url();
    let mut text = format!("{what}: {error}");
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    Error::new(kind, text)
}
