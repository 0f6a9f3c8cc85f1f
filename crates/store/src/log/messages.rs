//! Messages with their parts.

use crate::{
    Page, Store,
    error::{Entity, Error},
    signed, unsigned,
};
use domain::{
    ids::{MessageId, SessionId, TenantId},
    message::Message,
    part::Part,
};
use futures::TryStreamExt as _;
use sqlx::{AssertSqlSafe, Row as _, postgres::PgRow, types::Json};
use std::ops::Range;

/// Parts that are read from JSON in one go.
const PARTS_AT_ONCE: usize = 64;
/// Such batches of one conversation that are read at the same time. One more may be arriving.
const BATCHES_AT_ONCE: usize = 2;
/// Bytes of JSON beyond which a batch is read on another thread.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// A message with its parts, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its place in the session.
    pub seq: u64,
    /// The message.
    pub message: Message,
    /// Its parts with their places.
    pub parts: Vec<(u64, Part)>,
}

/// Which messages of a range are read, where there are more than are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    First,
    Last,
}

impl Store {
    /// Gives one page: the newest messages, or those before the cursor (the smallest `seq` of the page before),
    /// oldest first inside the page.
    ///
    /// # Errors
    /// `Unreadable` for what this version does not know; `Db`.
    pub async fn list_messages(
        &self,
        tenant: TenantId,
        session: &SessionId,
        page: &Page,
    ) -> Result<Vec<Entry>, Error> {
        let before = page.cursor.as_deref().and_then(|cursor| cursor.parse().ok()).unwrap_or(i64::MAX);
        self.read_messages(tenant, session, 0..before, (End::Last, page.limit())).await
    }

    /// Gives the oldest messages after the place `after`, at most `limit`, oldest first.
    ///
    /// # Errors
    /// As [`Store::list_messages`].
    pub async fn list_messages_after(
        &self,
        tenant: TenantId,
        session: &SessionId,
        after: u64,
        limit: u32,
    ) -> Result<Vec<Entry>, Error> {
        let seqs = signed(after).saturating_add(1)..i64::MAX;
        self.read_messages(tenant, session, seqs, (End::First, i64::from(limit))).await
    }

    /// Gives everything said after the place `after`, oldest first, for the loop.
    ///
    /// # Errors
    /// As [`Store::list_messages`].
    pub async fn load_conversation(
        &self,
        tenant: TenantId,
        session: &SessionId,
        after: u64,
    ) -> Result<Vec<Entry>, Error> {
        self.read_messages(tenant, session, signed(after) + 1..i64::MAX, (End::Last, i64::MAX)).await
    }

    /// Gives the place before which a loop needs nothing, because the newest summary stands for it; 0: it needs all. What
    /// follows it holds the summary with the wish for it, the tail that was kept, and the newest prompt that was accepted.
    ///
    /// A summary counts once another step has begun after it: until then its own wish decides what comes next.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_horizon(&self, tenant: TenantId, session: &SessionId) -> Result<u64, Error> {
        let mut tx = self.begin(tenant).await?;
        let first: Option<i64> = sqlx::query_scalar(
            "select least(wish.seq, tail.seq, prompt.seq)
               from part p
               join message wish on wish.tenant_id = $1 and wish.session_id = $2 and wish.id = p.message_id
               join lateral (
                 select s.seq from message s
                  where s.tenant_id = $1 and s.session_id = $2 and s.seq > wish.seq and s.role = 'assistant'
                    and s.info->>'parentID' = wish.id and s.info->>'summary' = 'true'
                    and s.info->>'finish' is not null and s.info->>'error' is null
                  order by s.seq limit 1) summary on true
               left join message tail
                 on tail.tenant_id = $1 and tail.session_id = $2 and tail.id = p.data->>'tail_start_id'
               left join lateral (
                 select m.seq from session_input i
                   join message m on m.tenant_id = $1 and m.session_id = $2 and m.id = i.message_id
                  where i.tenant_id = $1 and i.session_id = $2 and i.kind = 'prompt'
                  order by i.seq desc limit 1) prompt on true
              where p.tenant_id = $1 and p.session_id = $2 and p.kind = 'compaction'
                and exists (
                  select 1 from message later
                   where later.tenant_id = $1 and later.session_id = $2 and later.seq > summary.seq
                     and later.role = 'assistant')
              order by p.seq desc limit 1",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .fetch_optional(&mut *tx)
        .await?;
        Ok(first.map_or(0, |first| unsigned(first) - 1))
    }

    async fn read_messages(
        &self,
        tenant: TenantId,
        session: &SessionId,
        seqs: Range<i64>,
        (end, limit): (End, i64),
    ) -> Result<Vec<Entry>, Error> {
        let mut tx = self.begin(tenant).await?;
        let mut rows = sqlx::query(match end {
            End::Last => {
                "select id, seq, info from message where tenant_id = $1 and session_id = $2 and seq >= $3 and seq < $4
                  order by seq desc limit $5"
            }
            End::First => {
                "select id, seq, info from message where tenant_id = $1 and session_id = $2 and seq >= $3 and seq < $4
                  order by seq limit $5"
            }
        })
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(seqs.start)
        .bind(seqs.end)
        .bind(limit)
        .fetch_all(&mut *tx)
        .await?;
        if end == End::Last {
            rows.reverse();
        }
        let mut entries = Vec::with_capacity(rows.len());
        let mut places = std::collections::HashMap::with_capacity(rows.len());
        for row in &rows {
            let message: Message = read(row, "info", "message")?;
            places.insert(row.try_get::<String, _>("id")?, entries.len());
            entries.push(Entry { seq: unsigned(row.try_get("seq")?), message, parts: vec![] });
        }
        let ids: Vec<&String> = places.keys().collect();
        // Looking for each message of thousands costs more than reading the parts of all.
        let is_whole = seqs.start <= 1 && seqs.end == i64::MAX && limit == i64::MAX;
        let of_these = if is_whole { "" } else { " and message_id = any($3)" };
        // Without an order, which would hold the first row back until the last is found.
        let question =
            format!("select seq, data from part where tenant_id = $1 and session_id = $2{of_these}");
        let mut query = sqlx::query(AssertSqlSafe(question)).bind(tenant.0).bind(session.as_str());
        if !is_whole {
            query = query.bind(&ids);
        }
        // Some at a time: a long past must neither stand in memory twice nor keep a thread from its other sessions.
        let rows = query.fetch(&mut *tx).try_chunks(PARTS_AT_ONCE).map_err(|failed| Error::from(failed.1));
        let mut parts = rows.map_ok(read_parts).try_buffered(BATCHES_AT_ONCE);
        while let Some(parts) = parts.try_next().await? {
            for (seq, part) in parts {
                let place = places.get(part.message_id.as_str()).copied();
                if let Some(entry) = place.and_then(|place| entries.get_mut(place)) {
                    entry.parts.push((seq, part));
                }
            }
        }
        for entry in &mut entries {
            entry
                .parts
                .sort_by(|(seq, part), (other_seq, other)| (seq, &part.id).cmp(&(other_seq, &other.id)));
        }
        Ok(entries)
    }

    /// Gives one message with its parts.
    ///
    /// # Errors
    /// `NotFound`; otherwise as [`Store::list_messages`].
    pub async fn get_message(
        &self,
        tenant: TenantId,
        session: &SessionId,
        id: &MessageId,
    ) -> Result<Entry, Error> {
        let mut tx = self.begin(tenant).await?;
        let row = sqlx::query("select seq from message where tenant_id = $1 and session_id = $2 and id = $3")
            .bind(tenant.0)
            .bind(session.as_str())
            .bind(id.as_str())
            .fetch_optional(&mut *tx)
            .await?
            .ok_or(Error::NotFound(Entity::Message))?;
        let seq = unsigned(row.try_get("seq")?);
        drop(tx);
        let found = self.read_messages(tenant, session, signed(seq)..signed(seq) + 1, (End::Last, 1)).await?;
        found.into_iter().next().ok_or(Error::NotFound(Entity::Message))
    }
}

/// Reads parts; much of it on another thread, while more arrives.
async fn read_parts(rows: Vec<PgRow>) -> Result<Vec<(u64, Part)>, Error> {
    let bytes = |row: &PgRow| Some(row.try_get_raw("data").ok()?.as_bytes().ok()?.len());
    let is_small = rows.iter().filter_map(bytes).sum::<usize>() <= INLINE_BYTES_MAX;
    let read = move || {
        let part = |row: &PgRow| Ok((unsigned(row.try_get("seq")?), read(row, "data", "part")?));
        rows.iter().map(part).collect()
    };
    if is_small {
        return read();
    }
    tokio::task::spawn_blocking(read).await.unwrap_or_else(|stopped| match stopped.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Err(sqlx::Error::WorkerCrashed.into()),
    })
}

fn read<T: serde::de::DeserializeOwned + Unpin + Send + 'static>(
    row: &PgRow,
    column: &str,
    what: &'static str,
) -> Result<T, Error> {
    row.try_get::<Json<T>, _>(column).map(|json| json.0).map_err(|error| Error::unreadable(what, error))
}
