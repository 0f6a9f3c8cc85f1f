//! Why a page is not read. The text is for the model that asked for it, and is in no log: a model chose what it says.

use crate::egress::refusal::Refusal;
use domain::limits::WEB_PAGE_BYTES_MAX;
use reqwest::StatusCode;
use rpc::v1::ErrorCode;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The text is not a web address.
    #[error("this is not a web address; one begins with http:// or https:// and has no user name")]
    Address,
    /// The proxy lets no connection to the host pass.
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the page has too many redirects")]
    Redirects,
    /// The server answered with an error.
    #[error("the server answered {0}")]
    Status(StatusCode),
    /// The page is too long.
    #[error("the page is longer than {WEB_PAGE_BYTES_MAX} bytes")]
    TooLarge,
    /// The page took too long.
    #[error("the page did not arrive within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    #[error("the page cannot be loaded: {0}")]
    Transport(String),
    /// Too many pages are read.
    #[error("too many pages are being read; try again later")]
    Busy,
}

impl PageError {
    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Address => ErrorCode::PageAddressInvalid,
            Self::Refused(refusal) => refusal.code(),
            Self::Redirects => ErrorCode::PageRedirects,
            Self::Status(_) => ErrorCode::PageStatus,
            Self::TooLarge => ErrorCode::PageTooLarge,
            Self::Timeout(_) => ErrorCode::PageTimeout,
            Self::Transport(_) => ErrorCode::PageUnreachable,
            Self::Busy => ErrorCode::PageBusy,
        }
    }
}
