//! The outcome of a turn whose last step has an error.

use crate::{conversation::message::Error, session::Outcome};

/// Code of the error that says that the turn needs a person.
pub const NEEDS_HUMAN: &str = "needs_human";

/// The outcome of a turn whose last step has this error.
pub fn outcome_of(error: &Error) -> Outcome {
    if error.is_abort() {
        Outcome::Aborted
    } else if error.data.code.as_deref() == Some(NEEDS_HUMAN) {
        Outcome::NeedsHuman
    } else {
        Outcome::Failed
    }
}
