//! The numbers of `session_run.phase` for statements: `format!("… where phase = {RUNNABLE} …")`.
//!
//! They are part of the statement's text and never bound as parameters. The indexes of the queue are partial
//! (`where phase <> 0`), and the planner of a prepared statement uses such an index only if it can see the number.

use crate::error::Error;
use domain::session::Phase;

/// [`Phase::Idle`].
pub(crate) const IDLE: i16 = Phase::Idle.to_i16();
/// [`Phase::Runnable`].
pub(crate) const RUNNABLE: i16 = Phase::Runnable.to_i16();
/// [`Phase::Running`].
pub(crate) const RUNNING: i16 = Phase::Running.to_i16();
/// [`Phase::Waiting`].
pub(crate) const WAITING: i16 = Phase::Waiting.to_i16();
/// [`Phase::Quarantined`].
pub(crate) const QUARANTINED: i16 = Phase::Quarantined.to_i16();

/// Reads the column.
///
/// # Errors
/// `Unreadable`: a newer version knows more phases.
pub(crate) fn from_column(number: i16) -> Result<Phase, Error> {
    Phase::from_i16(number).ok_or_else(|| Error::unreadable("session", UnknownPhase(number)))
}

#[derive(Debug, thiserror::Error)]
#[error("unknown phase {0}")]
struct UnknownPhase(i16);
