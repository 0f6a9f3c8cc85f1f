//! Messages with their parts.

use crate::{
    Page, Store, Tx,
    column::{signed, unsigned},
    error::{Entity, Error},
    session::control_row::EXISTS,
};
use domain::{
    conversation::{message::Message, part::Part},
    ids::{MessageId, SessionId, TenantId},
    limits,
};
use futures::{Stream, TryStreamExt as _, stream::try_unfold};
use sqlx::{AssertSqlSafe, PgConnection, Row as _, postgres::PgRow, types::Json};
use std::{collections::HashMap, ops::Range, pin::pin};

/// Parts that are parsed from JSON in one batch.
const PARTS_AT_ONCE: usize = 64;
/// Bytes of JSON after which a batch ends.
const BATCH_BYTES: usize = 1024 * 1024;
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

/// Consecutive messages of a session, oldest first.
#[derive(Debug, Clone, PartialEq)]
pub struct MessagePage {
    /// The messages with their parts.
    pub entries: Vec<MessageWithParts>,
    /// Bytes of their parts as JSON.
    pub bytes: usize,
    /// Whether the range has more messages.
    pub has_more: bool,
}

/// The range of a conversation to read as one page.
pub(crate) struct Slice {
    /// Positions of messages.
    pub(crate) seqs: Range<i64>,
    /// Which messages to read if there are more than one page can hold.
    pub(crate) side: Side,
    pub(crate) limit: i64,
}

/// One side of a range of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Oldest,
    Newest,
}

/// The parts to read.
enum PartsFilter {
    /// Those of the whole session: to look up thousands of messages one by one costs more than to read the parts of all.
    All,
    /// Those of the messages whose rows were read.
    OfMessages,
}

impl Store {
    /// Returns one page: the newest messages, or those before the cursor (the smallest `seq` of the previous page). It ends at its
    /// limit or at `limits::MESSAGES_PAGE_BYTES`, but has at least one message if there is one.
    ///
    /// # Errors
    /// `Unreadable` for a message or part of a newer version; `Db`.
    pub async fn list_messages(
        &self,
        tenant: TenantId,
        session: &SessionId,
        page: &Page,
    ) -> Result<MessagePage, Error> {
        let before = page.cursor.as_deref().and_then(|cursor| cursor.parse().ok()).unwrap_or(i64::MAX);
        let slice = Slice { seqs: 0..before, side: Side::Newest, limit: page.limit() };
        read_page(&mut self.begin(tenant).await?, tenant, session, slice).await
    }

    /// Returns the page of the oldest messages after the position `after`, at most `limit`.
    ///
    /// # Errors
    /// Like [`Store::list_messages`].
    pub async fn list_messages_after(
        &self,
        tenant: TenantId,
        session: &SessionId,
        after: u64,
        limit: u32,
    ) -> Result<MessagePage, Error> {
        let seqs = signed(after).saturating_add(1)..i64::MAX;
        let slice = Slice { seqs, side: Side::Oldest, limit: i64::from(limit) };
        read_page(&mut self.begin(tenant).await?, tenant, session, slice).await
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
        let mut tx = self.begin(tenant).await?;
        load(&mut tx, tenant, session, after).await
    }

    /// Returns the newest answer of a model, whole or not; `None` if there is none.
    ///
    /// # Errors
    /// Like [`Store::list_messages`].
    pub async fn find_newest_answer(
        &self,
        tenant: TenantId,
        session: &SessionId,
    ) -> Result<Option<MessageWithParts>, Error> {
        let mut tx = self.begin(tenant).await?;
        let row = sqlx::query(AssertSqlSafe(format!(
            "select id, seq, info from message where tenant_id = $1 and session_id = $2 and role = 'assistant' and {EXISTS}
              order by seq desc limit 1"
        )))
        .bind(tenant.0)
        .bind(session.as_str())
        .fetch_optional(&mut *tx)
        .await?;
        let (entries, _) =
            with_parts(&mut tx, tenant, session, row.as_slice(), PartsFilter::OfMessages).await?;
        Ok(entries.into_iter().next())
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
        let row = sqlx::query(AssertSqlSafe(format!(
            "select id, seq, info from message where tenant_id = $1 and session_id = $2 and id = $3 and {EXISTS}"
        )))
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(id.as_str())
        .fetch_optional(&mut *tx)
        .await?;
        let (entries, _) =
            with_parts(&mut tx, tenant, session, row.as_slice(), PartsFilter::OfMessages).await?;
        entries.into_iter().next().ok_or(Error::NotFound(Entity::Message))
    }
}

/// Reads all messages after the position `after`; see [`Store::load_conversation`].
///
/// # Errors
/// `Unreadable`; `Db`.
pub(crate) async fn load(
    connection: &mut PgConnection,
    tenant: TenantId,
    session: &SessionId,
    after: u64,
) -> Result<Vec<MessageWithParts>, Error> {
    let rows = sqlx::query(AssertSqlSafe(format!(
        "select id, seq, info from message
          where tenant_id = $1 and session_id = $2 and seq > $3 and {EXISTS} order by seq"
    )))
    .bind(tenant.0)
    .bind(session.as_str())
    .bind(signed(after))
    .fetch_all(&mut *connection)
    .await?;
    let filter = if after == 0 { PartsFilter::All } else { PartsFilter::OfMessages };
    Ok(with_parts(connection, tenant, session, &rows, filter).await?.0)
}

/// What a loop reads of a conversation.
pub(crate) struct RecentConversation {
    /// The position up to which the newest summary replaces the conversation; 0: nothing is left out.
    pub(crate) left_out: u64,
    /// The messages after it, oldest first.
    pub(crate) messages: Vec<MessageWithParts>,
}

/// Reads what a loop needs of a conversation: everything, or the part that the newest summary does not replace. Its messages include the summary with
/// the message that requested it, the tail that the summary kept, and the newest accepted prompt.
///
/// A summary counts once another step has begun after it. Until then the message that requested it decides what comes next.
///
/// # Errors
/// `Unreadable`; `Db`.
pub(crate) async fn load_recent(
    connection: &mut PgConnection,
    tenant: TenantId,
    session: &SessionId,
) -> Result<RecentConversation, Error> {
    let rows = sqlx::query(AssertSqlSafe(format!(
        "with recent as materialized (
           select coalesce((
             select least(ask.seq, tail.seq, prompt.seq)
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
              order by p.seq desc limit 1), 0) as begins_at)
         select id, seq, info, (select begins_at from recent) as begins_at from message
          where tenant_id = $1 and session_id = $2 and seq >= (select begins_at from recent) and {EXISTS}
          order by seq"
    )))
    .bind(tenant.0)
    .bind(session.as_str())
    .fetch_all(&mut *connection)
    .await?;
    let begins_at = rows.first().map_or(Ok(0), |row| row.try_get("begins_at"))?;
    let left_out = unsigned(begins_at).saturating_sub(1);
    let filter = if left_out == 0 { PartsFilter::All } else { PartsFilter::OfMessages };
    let (messages, _) = with_parts(connection, tenant, session, &rows, filter).await?;
    Ok(RecentConversation { left_out, messages })
}

/// Reads one page of a conversation.
///
/// # Errors
/// `Unreadable`; `Db`.
pub(crate) async fn read_page(
    tx: &mut Tx,
    tenant: TenantId,
    session: &SessionId,
    slice: Slice,
) -> Result<MessagePage, Error> {
    let order = match slice.side {
        Side::Newest => "desc",
        Side::Oldest => "asc",
    };
    let sql = format!(
        "select id, seq, info, candidates
           from (select id, seq, info, count(*) over () as candidates, row_number() over (order by seq {order}) as number,
                        sum(bytes) over (order by seq {order}) as bytes_so_far
                   from (select m.id, m.seq, m.info,
                                (select coalesce(sum(coalesce(p.size_bytes, octet_length(p.data::text))), 0) from part p
                                  where p.tenant_id = $1 and p.session_id = $2 and p.message_id = m.id) as bytes
                           from message m
                          where m.tenant_id = $1 and m.session_id = $2 and m.seq >= $3 and m.seq < $4 and {EXISTS}
                          order by m.seq {order} limit $5 + 1) candidate) measured
          where bytes_so_far <= $6 or number = 1
          order by seq {order} limit $5"
    );
    let mut rows = sqlx::query(AssertSqlSafe(sql))
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(slice.seqs.start)
        .bind(slice.seqs.end)
        .bind(slice.limit)
        .bind(limits::MESSAGES_PAGE_BYTES)
        .fetch_all(&mut **tx)
        .await?;
    let candidates: i64 = rows.first().map_or(Ok(0), |row| row.try_get("candidates"))?;
    let has_more = candidates > i64::try_from(rows.len()).unwrap_or(i64::MAX);
    if slice.side == Side::Newest {
        rows.reverse();
    }
    let (entries, bytes) = with_parts(tx, tenant, session, &rows, PartsFilter::OfMessages).await?;
    Ok(MessagePage { entries, bytes, has_more })
}

/// Reads the parts of messages, given by their rows. Returns the messages in the same order, and the bytes of the parts.
async fn with_parts(
    connection: &mut PgConnection,
    tenant: TenantId,
    session: &SessionId,
    rows: &[PgRow],
    filter: PartsFilter,
) -> Result<(Vec<MessageWithParts>, usize), Error> {
    let mut entries = Vec::with_capacity(rows.len());
    let mut indexes = HashMap::with_capacity(rows.len());
    for row in rows {
        let message: Message = read(row, "info", "message")?;
        indexes.insert(row.try_get::<String, _>("id")?, entries.len());
        entries.push(MessageWithParts { seq: unsigned(row.try_get("seq")?), message, parts: vec![] });
    }
    let ids: Vec<&String> = indexes.keys().collect();
    // Without `order by`: sorting would delay the first row until the last one is found.
    let query = match filter {
        PartsFilter::All => {
            sqlx::query("select seq, data from part where tenant_id = $1 and session_id = $2")
        }
        PartsFilter::OfMessages => sqlx::query(
            "select seq, data from part where tenant_id = $1 and session_id = $2 and message_id = any($3)",
        ),
    };
    let query = query.bind(tenant.0).bind(session.as_str());
    let query = match filter {
        PartsFilter::All => query,
        PartsFilter::OfMessages => query.bind(&ids),
    };
    // In batches: a long conversation must not be in memory twice, and must not keep a thread from serving other sessions.
    let found = query.fetch(connection);
    let mut batches = pin!(batches(found).map_ok(read_parts).try_buffered(BATCHES_AT_ONCE));
    let mut bytes_total = 0;
    while let Some(Batch { parts, bytes }) = batches.try_next().await? {
        bytes_total += bytes;
        for (seq, part) in parts {
            let index = indexes.get(part.message_id.as_str()).copied();
            if let Some(entry) = index.and_then(|index| entries.get_mut(index)) {
                entry.parts.push((seq, part));
            }
        }
    }
    for entry in &mut entries {
        entry.parts.sort_by(|(seq, part), (other_seq, other)| (seq, &part.id).cmp(&(other_seq, &other.id)));
    }
    Ok((entries, bytes_total))
}

/// Gathers rows of parts, so that each batch is bounded in rows and in bytes.
fn batches<'r>(
    rows: impl Stream<Item = sqlx::Result<PgRow>> + Unpin + 'r,
) -> impl Stream<Item = Result<Vec<PgRow>, Error>> + 'r {
    try_unfold(rows, async |mut rows| {
        let (mut batch, mut bytes) = (vec![], 0);
        while batch.len() < PARTS_AT_ONCE && bytes < BATCH_BYTES {
            let Some(row) = rows.try_next().await? else { break };
            bytes += json_bytes(&row);
            batch.push(row);
        }
        Ok((!batch.is_empty()).then_some((batch, rows)))
    })
}

/// Bytes of the JSON of a part.
fn json_bytes(row: &PgRow) -> usize {
    row.try_get_raw("data").ok().and_then(|data| data.as_bytes().ok()).map_or(0, <[u8]>::len)
}

/// Parsed parts with their positions.
struct Batch {
    parts: Vec<(u64, Part)>,
    /// Bytes of their JSON.
    bytes: usize,
}

/// Parses parts; large batches on a blocking thread, while more rows arrive.
async fn read_parts(rows: Vec<PgRow>) -> Result<Batch, Error> {
    let bytes = rows.iter().map(json_bytes).sum();
    let read = move || {
        let part = |row: &PgRow| Ok((unsigned(row.try_get("seq")?), read(row, "data", "part")?));
        let parts: Result<_, Error> = rows.iter().map(part).collect();
        Ok(Batch { parts: parts?, bytes })
    };
    if bytes <= INLINE_BYTES_MAX {
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
