//! Messages with their parts.

pub use super::parts::MessageWithParts;
use super::parts::Parts;
use crate::{
    Page, Store,
    column::signed,
    error::{Entity, Error},
    pool::Statement,
    rows::control_row::EXISTS,
};
use domain::{
    ids::{MessageId, SessionId, TenantId},
    limits,
};
use futures::TryStreamExt as _;
use sqlx::{AssertSqlSafe, PgConnection, Row as _, postgres::PgRow};
use std::ops::Range;

/// Consecutive messages of a session, oldest first.
#[derive(Debug, Clone, PartialEq)]
pub struct MessagePage {
    pub entries: Vec<MessageWithParts>,
    /// Bytes of their parts as JSON.
    pub bytes: usize,
    /// Whether the range has more messages.
    pub has_more: bool,
}

/// The range of a conversation to read as one page.
pub(crate) struct Slice {
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
        self.list_slice(tenant, session, slice).await
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
        self.list_slice(tenant, session, slice).await
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
        let mut statements = self.statements(tenant).await?;
        let messages = load(&mut statements, tenant, session, after).await?;
        statements.end();
        Ok(messages)
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
        let query = sqlx::query(AssertSqlSafe(format!(
            "select id, seq, info as data from message where tenant_id = $1 and session_id = $2 and role = 'assistant' and {EXISTS}
              order by seq desc limit 1"
        )))
        .bind(tenant.0)
        .bind(session.as_str());
        self.find_one(tenant, session, query).await
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
        let query = sqlx::query(AssertSqlSafe(format!(
            "select id, seq, info as data from message where tenant_id = $1 and session_id = $2 and id = $3 and {EXISTS}"
        )))
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(id.as_str());
        self.find_one(tenant, session, query).await?.ok_or(Error::NotFound(Entity::Message))
    }

    /// Returns the message that a query finds, with its parts.
    async fn find_one(
        &self,
        tenant: TenantId,
        session: &SessionId,
        query: Statement<'_>,
    ) -> Result<Option<MessageWithParts>, Error> {
        let mut statements = self.statements(tenant).await?;
        let row = query.fetch_optional(&mut *statements).await?;
        let (entries, _) =
            with_parts(&mut statements, tenant, session, row.as_slice(), PartsFilter::OfMessages).await?;
        statements.end();
        Ok(entries.into_iter().next())
    }

    async fn list_slice(
        &self,
        tenant: TenantId,
        session: &SessionId,
        slice: Slice,
    ) -> Result<MessagePage, Error> {
        let mut statements = self.statements(tenant).await?;
        let page = read_page(&mut statements, tenant, session, slice).await?;
        statements.end();
        Ok(page)
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
        "select id, seq, info as data from message
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

/// Reads one page of a conversation.
///
/// # Errors
/// `Unreadable`; `Db`.
pub(crate) async fn read_page(
    connection: &mut PgConnection,
    tenant: TenantId,
    session: &SessionId,
    slice: Slice,
) -> Result<MessagePage, Error> {
    let order = match slice.side {
        Side::Newest => "desc",
        Side::Oldest => "asc",
    };
    let sql = format!(
        "select id, seq, info as data, candidates
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
        .fetch_all(&mut *connection)
        .await?;
    let candidates: i64 = rows.first().map_or(Ok(0), |row| row.try_get("candidates"))?;
    let has_more = candidates > i64::try_from(rows.len()).unwrap_or(i64::MAX);
    if slice.side == Side::Newest {
        rows.reverse();
    }
    let (entries, bytes) = with_parts(connection, tenant, session, &rows, PartsFilter::OfMessages).await?;
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
    let ids = rows.iter().map(|row| row.try_get("id")).collect::<Result<Vec<&str>, _>>()?;
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
    let parts = Parts::read(query.fetch(connection).map_err(Error::from)).await?;
    let bytes = parts.bytes;
    Ok((parts.into_messages(rows)?, bytes))
}
