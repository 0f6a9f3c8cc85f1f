//! How a write of a loop advances the control row of its session.

/// The columns that such a write returns.
pub(crate) const RETURNS: &str = "event_seq, input_seq, cancel_seq";
/// The condition that only the owner's next write meets. `$3` is the epoch and `$4` the number of the write.
pub(crate) const FENCE: &str = "epoch = $3 and write_seq = $4 - 1";

/// The statement that advances the row. `$1` and `$2` are the tenant and the session, `$5` is the number of new events, `$6` the newest input that the loop
/// has taken, and `$7` whether the loop made progress. `more` is empty, or a further condition.
pub(crate) fn advance_statement(more: &str) -> String {
    format!(
        "update session_run set write_seq = $4, event_seq = event_seq + $5, input_ack = greatest(input_ack, $6),
                attempts = case when $7 then 0 else attempts end
          where tenant_id = $1 and session_id = $2 and {FENCE} {more}
         returning {RETURNS}"
    )
}
