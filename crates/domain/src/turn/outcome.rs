//! The outcome of a turn whose last step has an error, and the codes of errors that decide how it goes on.

use crate::{conversation::message::Error, session::Outcome};

/// Code of the error that says that the turn needs a person.
pub const NEEDS_HUMAN: &str = "needs_human";

/// Code of the failure of an attempt whose pictures or documents the provider refused. The next attempt, and every later request, is without them.
pub const MEDIA_REFUSED: &str = "media_refused";
/// Code of an answer without text and calls. The call is repeated once.
pub const ANSWER_EMPTY: &str = "answer_empty";

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
