//! The numbers of `session_run.phase` for statements: `format!("… where phase = {RUNNABLE} …")`.
//!
//! They are part of the statement's text and never bound as parameters. The indexes of the queue are partial
//! (`where phase <> 0`), and the planner of a prepared statement uses such an index only if it can see the number.

use crate::error::Error;
use domain::session::Phase;

pub(crate) const IDLE: i16 = Phase::Idle.to_i16();
pub(crate) const RUNNABLE: i16 = Phase::Runnable.to_i16();
pub(crate) const RUNNING: i16 = Phase::Running.to_i16();
pub(crate) const WAITING: i16 = Phase::Waiting.to_i16();
pub(crate) const QUARANTINED: i16 = Phase::Quarantined.to_i16();

/// The position of the session `r` in the queue of its tenant, from 1, as `bigint`; 0 if it does not wait for a worker. In a statement that makes
/// `r` runnable, the queue that it reads is the one before: with the earlier row of `r`, or without `r`.
pub(crate) fn queue_position() -> String {
    format!(
        "case when r.phase = {RUNNABLE} then 1 + (select count(*) from session_run q
           where q.tenant_id = r.tenant_id and q.phase = {RUNNABLE} and q.session_id <> r.session_id
             and (q.class, q.queued_at, q.session_id) < (r.class, r.queued_at, r.session_id)) else 0 end"
    )
}

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
