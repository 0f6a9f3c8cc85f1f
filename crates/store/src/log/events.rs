//! The log of a session, for readers.

use crate::{
    Store,
    column::{parse_id, signed, timestamp, unsigned},
    error::{Entity, Error},
    phase,
    rows::control_row::EXISTS,
};
use domain::{
    event::{SUPERSEDED, StoredEvent},
    ids::{SessionId, TenantId},
    limits,
};
use sqlx::{AssertSqlSafe, Row as _, postgres::PgRow};

/// Reads a row of `session_event`.
pub(crate) fn from_row(row: &PgRow) -> Result<StoredEvent, sqlx::Error> {
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
    /// Whether no turn runs or waits: then no part of the session is open.
    pub is_idle: bool,
}

/// Consecutive events of a log, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPage {
    pub events: Vec<StoredEvent>,
    /// The event after them, if it alone is larger than a page: [`Store::find_event`] reads it.
    pub large: Option<LargeEvent>,
    /// Whether the log had more events when it was read.
    pub has_more: bool,
}

/// An event that is not part of a page, because it is larger than one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LargeEvent {
    pub seq: u64,
    /// Bytes of its properties.
    pub bytes: usize,
}

/// What follows in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogPage {
    /// Events, oldest first; never empty.
    Events(Vec<StoredEvent>),
    /// One large event, which is not read yet.
    Large(LargeEvent),
}

/// The events of a session after a position, page by page.
#[derive(Debug, Clone)]
pub struct Pages {
    store: Store,
    tenant: TenantId,
    session: SessionId,
    /// The next page, if it was read with the head.
    first: Option<EventPage>,
    /// The end of the previous page; `None` after the last page.
    after: Option<u64>,
    /// The event after the previous page.
    large: Option<LargeEvent>,
}

impl Pages {
    /// Returns the next page, oldest first; `None` at the end of the log. After a cancelled call, the next call
    /// returns the same page.
    ///
    /// # Errors
    /// `Db`.
    pub async fn next(&mut self) -> Result<Option<LogPage>, Error> {
        if let Some(large) = self.large.take() {
            return Ok(Some(LogPage::Large(large)));
        }
        let Some(after) = self.after else { return Ok(None) };
        let EventPage { events, large, has_more } = match self.first.take() {
            Some(first) => first,
            None => self.store.list_events(self.tenant, &self.session, after, limits::EVENTS_PAGE).await?,
        };
        let last = large.map(|large| large.seq).or_else(|| events.last().map(|event| event.seq));
        self.after = last.filter(|_| has_more);
        if events.is_empty() {
            return Ok(large.map(LogPage::Large));
        }
        self.large = large;
        Ok(Some(LogPage::Events(events)))
    }

    /// Returns the events of the next page, and a large event as a page of its own: for callers that have room for any event. After a
    /// cancelled call, the next call returns the same events.
    ///
    /// # Errors
    /// `Db`.
    pub async fn next_whole(&mut self) -> Result<Option<Vec<StoredEvent>>, Error> {
        loop {
            let large = match self.next().await? {
                None => return Ok(None),
                Some(LogPage::Events(events)) => return Ok(Some(events)),
                Some(LogPage::Large(large)) => large,
            };
            self.large = Some(large);
            let event = self.read(large).await?;
            self.large = None;
            if let Some(event) = event {
                return Ok(Some(vec![event]));
            }
        }
    }

    /// Reads a large event that a page named; `None`: a compaction has emptied it meanwhile.
    ///
    /// # Errors
    /// `Db`.
    pub async fn read(&self, large: LargeEvent) -> Result<Option<StoredEvent>, Error> {
        self.store.find_event(self.tenant, &self.session, large.seq).await
    }
}

impl Store {
    /// Reads events after `after` in pages of at most `limits::EVENTS_PAGE` events.
    pub fn event_pages(&self, tenant: TenantId, session: SessionId, after: u64) -> Pages {
        Pages { store: self.clone(), tenant, session, first: None, after: Some(after), large: None }
    }

    /// Returns the head of a session's log and the events after `after`, as [`Store::event_pages`] does. The first page comes with the head, in one round trip.
    ///
    /// # Errors
    /// `NotFound` or `Db`.
    pub async fn open_event_pages(
        &self,
        tenant: TenantId,
        session: SessionId,
        after: u64,
    ) -> Result<(Head, Pages), Error> {
        let query = sqlx::query(AssertSqlSafe(format!(
            "select r.event_seq, r.epoch as newest_epoch, r.phase, page.* from session_run r left join lateral ({}) page on true
              where r.tenant_id = $1 and r.session_id = $2 order by page.seq",
            select_events()
        )))
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(signed(after))
        .bind(limits::EVENTS_PAGE)
        .bind(limits::EVENTS_PAGE_BYTES)
        .bind(SUPERSEDED);
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        let first = rows.first().ok_or(Error::NotFound(Entity::Session))?;
        let head = head(first, "newest_epoch")?;
        // Without events there is one row for the head alone.
        let is_empty = first.try_get::<Option<i64>, _>("seq")?.is_none();
        let page = page_of(if is_empty { &[] } else { &rows })?;
        Ok((head, Pages { first: Some(page), ..self.event_pages(tenant, session, after) }))
    }

    /// Returns at most `limit` events after `after`, oldest first: fewer if they exceed `limits::EVENTS_PAGE_BYTES`, and those before one
    /// that alone exceeds it. Old versions of messages and parts, which a compaction emptied, are left out; the newest event of a log is
    /// never one of them.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_events(
        &self,
        tenant: TenantId,
        session: &SessionId,
        after: u64,
        limit: i64,
    ) -> Result<EventPage, Error> {
        let query = sqlx::query(AssertSqlSafe(select_events()))
            .bind(tenant.0)
            .bind(session.as_str())
            .bind(signed(after))
            .bind(limit)
            .bind(limits::EVENTS_PAGE_BYTES)
            .bind(SUPERSEDED);
        page_of(&self.statements(tenant).await?.fetch_all(query).await?)
    }

    /// Returns the event at a position, of any size; `None` if there is none, or if a compaction emptied it.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_event(
        &self,
        tenant: TenantId,
        session: &SessionId,
        seq: u64,
    ) -> Result<Option<StoredEvent>, Error> {
        let query = sqlx::query(AssertSqlSafe(format!(
            "select seq, epoch, id, kind, properties, at from session_event
              where tenant_id = $1 and session_id = $2 and seq = $3 and kind <> $4 and {EXISTS}"
        )))
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(signed(seq))
        .bind(SUPERSEDED);
        let row = self.statements(tenant).await?.fetch_optional(query).await?;
        Ok(row.as_ref().map(from_row).transpose()?)
    }

    /// Returns the head of a session's log.
    ///
    /// # Errors
    /// `NotFound` or `Db`.
    pub async fn get_head(&self, tenant: TenantId, session: &SessionId) -> Result<Head, Error> {
        let query = sqlx::query(
            "select event_seq, epoch, phase from session_run where tenant_id = $1 and session_id = $2",
        )
        .bind(tenant.0)
        .bind(session.as_str());
        let row = self.statements(tenant).await?.fetch_optional(query).await?;
        let row = row.ok_or(Error::NotFound(Entity::Session))?;
        head(&row, "epoch")
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
        let ids: Vec<&str> = sessions.iter().map(|session| session.as_str()).collect();
        let query = sqlx::query(
            "select session_id, event_seq, epoch, phase from session_run where tenant_id = $1 and session_id = any($2)",
        )
        .bind(tenant.0)
        .bind(&ids);
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        rows.iter()
            .map(|row| Ok((parse_id("event", row.try_get("session_id")?)?, head(row, "epoch")?)))
            .collect()
    }
}

/// Selects a page of events. The length of a text is known without reading it, so Postgres reads no text beyond the page.
fn select_events() -> String {
    format!(
        "select seq, epoch, id, kind, case when bytes <= $5 then properties end as properties, bytes, at, candidates
           from (select *, count(*) over () as candidates, sum(bytes) over (order by seq) - bytes as bytes_before
                   from (select *, octet_length(properties) as bytes from session_event
                          where tenant_id = $1 and session_id = $2 and seq > $3 and kind <> $6 and {EXISTS}
                          order by seq limit $4 + 1) candidate) measured
          where bytes_before < $5 order by seq limit $4"
    )
}

/// Reads the rows of [`select_events`].
fn page_of(rows: &[PgRow]) -> Result<EventPage, Error> {
    let candidates: i64 = rows.first().map_or(Ok(0), |row| row.try_get("candidates"))?;
    let has_more = candidates > i64::try_from(rows.len()).unwrap_or(i64::MAX);
    let (mut events, mut large) = (vec![], None);
    for row in rows {
        let bytes: i32 = row.try_get("bytes")?;
        if i64::from(bytes) <= limits::EVENTS_PAGE_BYTES {
            events.push(from_row(row)?);
        } else {
            // The last row: the page is full behind it.
            let bytes = usize::try_from(bytes).unwrap_or_default();
            large = Some(LargeEvent { seq: unsigned(row.try_get("seq")?), bytes });
        }
    }
    Ok(EventPage { events, large, has_more })
}

/// Reads a head, whose epoch is in this column.
fn head(row: &PgRow, epoch: &str) -> Result<Head, Error> {
    let (seq, epoch) = (unsigned(row.try_get("event_seq")?), unsigned(row.try_get(epoch)?));
    // A phase of a newer version is not the idle one.
    Ok(Head { seq, epoch, is_idle: row.try_get::<i16, _>("phase")? == phase::IDLE })
}
