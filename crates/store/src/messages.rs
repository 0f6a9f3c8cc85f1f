//! Messages with their parts.

use crate::{Page, Store, error::Error, signed, unsigned};
use domain::{
    ids::{MessageId, SessionId, TenantId},
    message::Message,
    part::Part,
};
use sqlx::{Row as _, types::Json};
use std::ops::Range;

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
        self.read_messages(tenant, session, 0..before, page.limit()).await
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
        self.read_messages(tenant, session, signed(after) + 1..i64::MAX, i64::MAX).await
    }

    async fn read_messages(
        &self,
        tenant: TenantId,
        session: &SessionId,
        seqs: Range<i64>,
        limit: i64,
    ) -> Result<Vec<Entry>, Error> {
        let mut tx = self.begin(tenant).await?;
        let rows = sqlx::query(
            "select id, seq, info from message where tenant_id = $1 and session_id = $2 and seq >= $3 and seq < $4
              order by seq desc limit $5",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(seqs.start)
        .bind(seqs.end)
        .bind(limit)
        .fetch_all(&mut *tx)
        .await?;
        let mut entries = Vec::with_capacity(rows.len());
        let mut places = std::collections::HashMap::with_capacity(rows.len());
        for row in rows.iter().rev() {
            let message: Message = read(row, "info", "message")?;
            places.insert(row.try_get::<String, _>("id")?, entries.len());
            entries.push(Entry { seq: unsigned(row.try_get("seq")?), message, parts: vec![] });
        }
        let ids: Vec<&String> = places.keys().collect();
        let parts = sqlx::query(
            "select message_id, seq, data from part where tenant_id = $1 and session_id = $2 and message_id = any($3)
              order by seq, id",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(&ids)
        .fetch_all(&mut *tx)
        .await?;
        for row in &parts {
            let place = places.get(&row.try_get::<String, _>("message_id")?).copied();
            if let Some(entry) = place.and_then(|place| entries.get_mut(place)) {
                entry.parts.push((unsigned(row.try_get("seq")?), read(row, "data", "part")?));
            }
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
            .ok_or(Error::NotFound("message"))?;
        let seq = unsigned(row.try_get("seq")?);
        drop(tx);
        let found = self.read_messages(tenant, session, signed(seq)..signed(seq) + 1, 1).await?;
        found.into_iter().next().ok_or(Error::NotFound("message"))
    }
}

fn read<T: serde::de::DeserializeOwned + Unpin + Send + 'static>(
    row: &sqlx::postgres::PgRow,
    column: &str,
    what: &'static str,
) -> Result<T, Error> {
    row.try_get::<Json<T>, _>(column).map(|json| json.0).map_err(|error| Error::unreadable(what, error))
}
