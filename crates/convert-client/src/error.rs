//! Why a conversion has no result.

use crate::bounds::{CPU_SECONDS_MAX, TURN_WAIT_MAX};

/// A conversion that did not finish. Nothing was changed; it can be repeated, with a smaller input where its bounds ended it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It needed too much time: its content is made so, or the machine is overloaded.
    #[error(
        "the conversion needs more than {CPU_SECONDS_MAX} s of processor time; give it less or simpler content"
    )]
    TooSlow,
    /// The content, the memory for it or the result is too large, or the content nests too deeply.
    #[error("the conversion is too large or nests too deeply; give it less content")]
    TooLarge,
    /// Other conversions ran all the time.
    #[error("no conversion could start within {} s; try again", TURN_WAIT_MAX.as_secs())]
    Busy,
    /// The program crashed on the content.
    #[error("the converter ended with {0}")]
    Crashed(String),
    /// The program cannot be started, or its pipe broke.
    #[error("the converter cannot run")]
    Io(#[source] std::io::Error),
    /// The program is of another version than this one.
    #[error("the converter speaks another version; install both programs from one build")]
    Protocol(#[source] postcard::Error),
}

impl Error {
    /// The stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooSlow => "conversion_too_slow",
            Self::TooLarge => "conversion_too_large",
            Self::Busy => "conversion_busy",
            Self::Crashed(_) | Self::Io(_) | Self::Protocol(_) => "conversion_failed",
        }
    }
}
