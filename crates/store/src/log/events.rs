//! The log of a session, for readers.

use crate::{
    Store,
    column::{parse_id, signed, timestamp, unsigned},
    error::{Entity, Error},
};
use domain::{
    event::{SUPERSEDED, StoredEvent},
    ids::{SessionId, TenantId},
    limits,
};
use sqlx::Row as _;

/// Reads a row of `session_event`.
pub(crate) fn from_row(row: &sqlx::postgres::PgRow) -> Result<StoredEvent, sqlx::Error> {
    Ok(StoredEvent {
        seq: unsigned(row.try_get("seq")?),
        epoch: unsigned(row.try_get("epoch")?),
        id: row.try_get("id")?,
        kind: row.try_get("kind")?,
        properties: row.try_get("properties")?,
        at: timestamp(row.try_get("at")?),
    })
}

/// The newest position of a log, and the newest epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Position of the newest event; 0 when there is none.
    pub seq: u64,
    /// The epoch: the number of the newest takeover.
    pub epoch: u64,
}

/// The events of a session after a position, page by page.
#[derive(Debug, Clone)]
pub struct Pages {
    store: Store,
    tenant: TenantId,
    session: SessionId,
    /// The end of the previous page; `None` after the last page.
    after: Option<u64>,
}

impl Pages {
    /// Returns the next page, oldest first; `None` at the end of the log. After a cancelled call, the next call
    /// returns the same page.
    ///
    /// # Errors
    /// `Db`.
    pub async fn next(&mut self) -> Result<Option<Vec<StoredEvent>>, Error> {
        let Some(after) = self.after else { return Ok(None) };
        let page = self.store.list_events(self.tenant, &self.session, after, limits::EVENTS_PAGE).await?;
        let is_full = i64::try_from(page.len()).unwrap_or(0) == limits::EVENTS_PAGE;
        self.after = page.last().map(|event| event.seq).filter(|_| is_full);
        Ok(Some(page).filter(|page| !page.is_empty()))
    }
}

impl Store {
    /// Reads events after `after` in pages of `limits::EVENTS_PAGE`.
    pub fn event_pages(&self, tenant: TenantId, session: SessionId, after: u64) -> Pages {
        Pages { store: self.clone(), tenant, session, after: Some(after) }
    }

    /// Returns at most `limit` events after `after`, oldest first. Old versions of messages and parts, which a compaction emptied, are left
    /// out; the newest event of a log is never one of them.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_events(
        &self,
        tenant: TenantId,
        session: &SessionId,
        after: u64,
        limit: i64,
    ) -> Result<Vec<StoredEvent>, Error> {
        let mut tx = self.begin(tenant).await?;
        let rows = sqlx::query(
            "select seq, epoch, id, kind, properties, at from session_event
              where tenant_id = $1 and session_id = $2 and seq > $3 and kind <> $5 order by seq limit $4",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(signed(after))
        .bind(limit)
        .bind(SUPERSEDED)
        .fetch_all(&mut *tx)
        .await?;
        Ok(rows.iter().map(from_row).collect::<Result<_, _>>()?)
    }

    /// Returns the head of a session's log.
    ///
    /// # Errors
    /// `NotFound` or `Db`.
    pub async fn get_head(&self, tenant: TenantId, session: &SessionId) -> Result<Head, Error> {
        let mut tx = self.begin(tenant).await?;
        let row =
            sqlx::query("select event_seq, epoch from session_run where tenant_id = $1 and session_id = $2")
                .bind(tenant.0)
                .bind(session.as_str())
                .fetch_optional(&mut *tx)
                .await?
                .ok_or(Error::NotFound(Entity::Session))?;
        Ok(head(&row)?)
    }

    /// Returns the heads of these sessions, unordered. Omits sessions that do not exist.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_heads(
        &self,
        tenant: TenantId,
        sessions: &[&SessionId],
    ) -> Result<Vec<(SessionId, Head)>, Error> {
        let mut tx = self.begin(tenant).await?;
        let ids: Vec<&str> = sessions.iter().map(|session| session.as_str()).collect();
        let rows = sqlx::query(
            "select session_id, event_seq, epoch from session_run where tenant_id = $1 and session_id = any($2)",
        )
        .bind(tenant.0)
        .bind(&ids)
        .fetch_all(&mut *tx)
        .await?;
        rows.iter().map(|row| Ok((parse_id("event", row.try_get("session_id")?)?, head(row)?))).collect()
    }
}

fn head(row: &sqlx::postgres::PgRow) -> sqlx::Result<Head> {
    Ok(Head { seq: unsigned(row.try_get("event_seq")?), epoch: unsigned(row.try_get("epoch")?) })
}
