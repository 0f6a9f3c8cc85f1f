//! Why a page is not read. The text is for the model that asked for it.

use crate::egress::{proxy::QUOTA_BYTES, refusal::Refusal};
use reqwest::StatusCode;
use std::time::Duration;

/// Characters of an address that an error shows.
const SHOWN_CHARS_MAX: usize = 300;

/// The reason.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// No address of the web.
    #[error(
        "{0:?} is not a web address; it must begin with http:// or https:// and must not contain a user name"
    )]
    Address(String),
    /// The proxy lets no connection to the host pass.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Too many redirects.
    #[error("there are too many redirects")]
    Redirects,
    /// The server answered with an error.
    #[error("the server answered {0}")]
    Status(StatusCode),
    /// The page is too long.
    #[error("the page is longer than {0} bytes")]
    TooLarge(u64),
    /// The page took too long.
    #[error("the page did not arrive within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The connection failed.
    #[error("the page cannot be loaded: {0}")]
    Transport(String),
    /// The session has transferred all that it may.
    #[error("{}", Refusal::Quota(QUOTA_BYTES))]
    Quota,
    /// Too many pages are read.
    #[error("too many pages are being read; try again later")]
    Busy,
}

impl PageError {
    /// The error of a text that is no address.
    pub(super) fn address(text: &str) -> Self {
        Self::Address(text.chars().take(SHOWN_CHARS_MAX).collect())
    }

    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Address(_) => "page_address_invalid",
            Self::Refused(refusal) => refusal.code(),
            Self::Redirects => "page_redirects",
            Self::Status(_) => "page_status",
            Self::TooLarge(_) => "page_too_large",
            Self::Timeout(_) => "page_timeout",
            Self::Transport(_) => "page_unreachable",
            Self::Quota => "egress_quota_used_up",
            Self::Busy => "page_busy",
        }
    }
}
