//! Compacts the logs of sessions that nobody uses: an event with an old version of a message, of a part or of the changes of the session keeps its position
//! and loses its content.

use super::candidate::{SessionRef, session_ref};
use crate::{Store, column::milliseconds, error::Error, phase::IDLE};
use domain::event::{MESSAGE_UPDATED, PART_UPDATED, SESSION_DIFF, SUPERSEDED};
use sqlx::AssertSqlSafe;

/// Time for which a session must be idle; milliseconds. Its clients have long received every version.
const IDLE_MIN_MS: u64 = 24 * 60 * 60 * 1_000;
/// Events of one transaction: a busy command writes some 15 MB with so many. In each stretch the newest version stays, so a log loses nearly
/// everything that it can.
const STRETCH: i64 = 500;

impl Store {
    /// Lists at most `limit` sessions that have been idle for a day and whose log can be compacted further.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn list_compactable(&self, limit: i64) -> Result<Vec<SessionRef>, Error> {
        let rows = sqlx::query(AssertSqlSafe(format!(
            "select r.tenant_id, r.session_id from session_run r
               join session s on s.tenant_id = r.tenant_id and s.id = r.session_id
              where r.phase = {IDLE} and r.compacted_seq < r.event_seq and s.updated_at < now() - $2 * interval '1 millisecond'
              limit $1"
        )))
        .bind(limit)
        .bind(milliseconds(IDLE_MIN_MS))
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(session_ref).collect()
    }

    /// Compacts the next stretch of a session's log, and returns the number of events that lost their content. `None`: the whole log is
    /// compacted, another transaction holds the session, or it works again.
    ///
    /// # Errors
    /// `Db`.
    pub async fn compact_log(&self, session: &SessionRef) -> Result<Option<u64>, Error> {
        let mut tx = self.begin(session.tenant).await?;
        let stretch: Option<(i64, i64)> = sqlx::query_as(AssertSqlSafe(format!(
            "select compacted_seq, least(compacted_seq + $3, event_seq) from session_run
              where tenant_id = $1 and session_id = $2 and phase = {IDLE} and compacted_seq < event_seq for update skip locked"
        )))
        .bind(session.tenant.0)
        .bind(session.session.as_str())
        .bind(STRETCH)
        .fetch_optional(&mut *tx)
        .await?;
        let Some((after, last)) = stretch else { return Ok(None) };
        let compacted = sqlx::query(
            "with version as (
               select seq, kind, case kind when $5 then properties::json #>> '{part,id}' when $8 then '' else properties::json #>> '{info,id}' end as id
                 from session_event
                where tenant_id = $1 and session_id = $2 and seq > $3 and seq <= $4 and kind in ($5, $6, $8)),
             old as (
               select seq from (select seq, max(seq) over (partition by kind, id) as newest from version where id is not null) v
                where seq < newest)
             update session_event e set kind = $7, properties = '{}' from old
              where e.tenant_id = $1 and e.session_id = $2 and e.seq = old.seq",
        )
        .bind(session.tenant.0)
        .bind(session.session.as_str())
        .bind(after)
        .bind(last)
        .bind(PART_UPDATED)
        .bind(MESSAGE_UPDATED)
        .bind(SUPERSEDED)
        .bind(SESSION_DIFF)
        .execute(&mut *tx)
        .await?;
        // The log is smaller than when it was measured.
        sqlx::query(
            "update session_run set compacted_seq = $3, measured_seq = case when $4 then 0 else measured_seq end,
                    stored_bytes = case when $4 then 0 else stored_bytes end
              where tenant_id = $1 and session_id = $2",
        )
        .bind(session.tenant.0)
        .bind(session.session.as_str())
        .bind(last)
        .bind(compacted.rows_affected() > 0)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(Some(compacted.rows_affected()))
    }
}
