//! Messages with their parts.

use crate::{
    Page, Store,
    column::{signed, unsigned},
    error::{Entity, Error},
};
use domain::{
    conversation::{message::Message, part::Part},
    ids::{MessageId, SessionId, TenantId},
};
use futures::TryStreamExt as _;
use sqlx::{AssertSqlSafe, Row as _, postgres::PgRow, types::Json};
use std::ops::Range;

/// Parts that are parsed from JSON in one batch.
const PARTS_AT_ONCE: usize = 64;
/// Batches of one conversation that are parsed at the same time, besides one that may be arriving.
const BATCHES_AT_ONCE: usize = 2;
/// Bytes of JSON above which a batch is parsed on a blocking thread.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// A message with its parts, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageWithParts {
    /// Its position in the session.
    pub seq: u64,
    /// The message.
    pub message: Message,
    /// Its parts with their positions.
    pub parts: Vec<(u64, Part)>,
}

/// The range of a conversation to read.
struct Slice {
    /// Positions of messages.
    seqs: Range<i64>,
    /// Which messages to read if there are more than `limit`.
    side: Side,
    limit: i64,
}

/// One side of a range of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Oldest,
    Newest,
}

impl Slice {
    /// Whether it is the whole conversation.
    fn is_whole(&self) -> bool {
        self.seqs.start <= 1 && self.seqs.end == i64::MAX && self.limit == i64::MAX
    }
}

impl Store {
    /// Returns one page, oldest first: the newest messages, or those before the cursor (the smallest `seq` of the previous
    /// page).
    ///
    /// # Errors
    /// `Unreadable` for a message or part of a newer version; `Db`.
    pub async fn list_messages(
        &self,
        tenant: TenantId,
        session: &SessionId,
        page: &Page,
    ) -> Result<Vec<MessageWithParts>, Error> {
        let before = page.cursor.as_deref().and_then(|cursor| cursor.parse().ok()).unwrap_or(i64::MAX);
        let slice = Slice { seqs: 0..before, side: Side::Newest, limit: page.limit() };
        self.read_messages(tenant, session, slice).await
    }

    /// Returns the oldest messages after the position `after`, at most `limit`, oldest first.
    ///
    /// # Errors
    /// Like [`Store::list_messages`].
    pub async fn list_messages_after(
        &self,
        tenant: TenantId,
        session: &SessionId,
        after: u64,
        limit: u32,
    ) -> Result<Vec<MessageWithParts>, Error> {
        let seqs = signed(after).saturating_add(1)..i64::MAX;
        let slice = Slice { seqs, side: Side::Oldest, limit: i64::from(limit) };
        self.read_messages(tenant, session, slice).await
    }

    /// Returns all messages after the position `after`, oldest first, for the loop.
    ///
    /// # Errors
    /// Like [`Store::list_messages`].
    pub async fn load_conversation(
        &self,
        tenant: TenantId,
        session: &SessionId,
        after: u64,
    ) -> Result<Vec<MessageWithParts>, Error> {
        let seqs = signed(after) + 1..i64::MAX;
        self.read_messages(tenant, session, Slice { seqs, side: Side::Newest, limit: i64::MAX }).await
    }

    /// Returns the position up to which the newest summary replaces the conversation, so that a loop need not read it; 0: the
    /// loop needs everything. The messages after it include the summary with the message that requested it, the tail that the
    /// summary kept, and the newest accepted prompt.
    ///
    /// A summary counts once another step has begun after it. Until then the message that requested it decides what comes next.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_horizon(&self, tenant: TenantId, session: &SessionId) -> Result<u64, Error> {
        let mut tx = self.begin(tenant).await?;
        let first: Option<i64> = sqlx::query_scalar(
            "select least(ask.seq, tail.seq, prompt.seq)
               from part p
               join message ask on ask.tenant_id = $1 and ask.session_id = $2 and ask.id = p.message_id
               join lateral (
                 select s.seq from message s
                  where s.tenant_id = $1 and s.session_id = $2 and s.seq > ask.seq and s.role = 'assistant'
                    and s.info->>'parentID' = ask.id and s.info->>'summary' = 'true'
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
        slice: Slice,
    ) -> Result<Vec<MessageWithParts>, Error> {
        let mut tx = self.begin(tenant).await?;
        let mut rows = sqlx::query(match slice.side {
            Side::Newest => {
                "select id, seq, info from message where tenant_id = $1 and session_id = $2 and seq >= $3 and seq < $4
                  order by seq desc limit $5"
            }
            Side::Oldest => {
                "select id, seq, info from message where tenant_id = $1 and session_id = $2 and seq >= $3 and seq < $4
                  order by seq limit $5"
            }
        })
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(slice.seqs.start)
        .bind(slice.seqs.end)
        .bind(slice.limit)
        .fetch_all(&mut *tx)
        .await?;
        if slice.side == Side::Newest {
            rows.reverse();
        }
        let mut entries = Vec::with_capacity(rows.len());
        let mut indexes = std::collections::HashMap::with_capacity(rows.len());
        for row in &rows {
            let message: Message = read(row, "info", "message")?;
            indexes.insert(row.try_get::<String, _>("id")?, entries.len());
            entries.push(MessageWithParts { seq: unsigned(row.try_get("seq")?), message, parts: vec![] });
        }
        let ids: Vec<&String> = indexes.keys().collect();
        // Looking up thousands of messages one by one costs more than reading the parts of all.
        let of_these = if slice.is_whole() { "" } else { " and message_id = any($3)" };
        // Without `order by`: sorting would delay the first row until the last one is found.
        let sql = format!("select seq, data from part where tenant_id = $1 and session_id = $2{of_these}");
        let mut query = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0).bind(session.as_str());
        if !slice.is_whole() {
            query = query.bind(&ids);
        }
        // In batches: a long conversation must not be in memory twice, and must not keep a thread from serving other
        // sessions.
        let rows = query.fetch(&mut *tx).try_chunks(PARTS_AT_ONCE).map_err(|failed| Error::from(failed.1));
        let mut parts = rows.map_ok(read_parts).try_buffered(BATCHES_AT_ONCE);
        while let Some(parts) = parts.try_next().await? {
            for (seq, part) in parts {
                let index = indexes.get(part.message_id.as_str()).copied();
                if let Some(entry) = index.and_then(|index| entries.get_mut(index)) {
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

    /// Returns one message with its parts.
    ///
    /// # Errors
    /// `NotFound`; otherwise like [`Store::list_messages`].
    pub async fn get_message(
        &self,
        tenant: TenantId,
        session: &SessionId,
        id: &MessageId,
    ) -> Result<MessageWithParts, Error> {
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
        let slice = Slice { seqs: signed(seq)..signed(seq) + 1, side: Side::Newest, limit: 1 };
        let messages = self.read_messages(tenant, session, slice).await?;
        messages.into_iter().next().ok_or(Error::NotFound(Entity::Message))
    }
}

/// Parses parts; large batches on a blocking thread, while more rows arrive.
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
