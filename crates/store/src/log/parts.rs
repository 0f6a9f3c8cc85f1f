//! Reads messages and their parts, these in batches: a long conversation must not be in memory twice, and must not keep a thread from serving other sessions.

use crate::{column::unsigned, error::Error};
use domain::conversation::{message::Message, part::Part};
use futures::{Stream, TryStreamExt as _, stream::try_unfold};
use sqlx::{Row as _, postgres::PgRow, types::Json};
use std::{collections::HashMap, pin::pin};

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
    pub message: Message,
    /// Its parts with their positions.
    pub parts: Vec<(u64, Part)>,
}

/// Parts of a conversation, in any order.
#[derive(Default)]
pub(crate) struct Parts {
    /// The parts with their positions.
    parts: Vec<(u64, Part)>,
    /// Bytes of their JSON.
    pub(crate) bytes: usize,
}

impl Parts {
    /// Reads rows with the columns `seq` and `data`.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub(crate) async fn read(rows: impl Stream<Item = Result<PgRow, Error>>) -> Result<Self, Error> {
        let rows = pin!(rows);
        let mut batches = pin!(batches(rows).map_ok(read_batch).try_buffered(BATCHES_AT_ONCE));
        let mut all = Self::default();
        while let Some(batch) = batches.try_next().await? {
            all.bytes += batch.bytes;
            all.parts.extend(batch.parts);
        }
        Ok(all)
    }

    /// Gives the parts to their messages: rows with the columns `id`, `seq` and `data`. Returns the messages in the order of the rows; parts of others are dropped.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub(crate) fn into_messages(self, rows: &[PgRow]) -> Result<Vec<MessageWithParts>, Error> {
        let mut entries = Vec::with_capacity(rows.len());
        let mut indexes: HashMap<&str, usize> = HashMap::with_capacity(rows.len());
        for row in rows {
            let message: Message = read_json(row, "message")?;
            indexes.insert(row.try_get("id")?, entries.len());
            entries.push(MessageWithParts { seq: unsigned(row.try_get("seq")?), message, parts: vec![] });
        }
        for (seq, part) in self.parts {
            let index = indexes.get(part.message_id.as_str()).copied();
            if let Some(entry) = index.and_then(|index| entries.get_mut(index)) {
                entry.parts.push((seq, part));
            }
        }
        for entry in &mut entries {
            entry
                .parts
                .sort_by(|(seq, part), (other_seq, other)| (seq, &part.id).cmp(&(other_seq, &other.id)));
        }
        Ok(entries)
    }
}

/// Gathers rows of parts, so that each batch is bounded in rows and in bytes.
fn batches<'r>(
    rows: impl Stream<Item = Result<PgRow, Error>> + Unpin + 'r,
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

fn json_bytes(row: &PgRow) -> usize {
    row.try_get_raw("data").ok().and_then(|data| data.as_bytes().ok()).map_or(0, <[u8]>::len)
}

/// Parses parts; large batches on a blocking thread, while more rows arrive.
async fn read_batch(rows: Vec<PgRow>) -> Result<Parts, Error> {
    let bytes = rows.iter().map(json_bytes).sum();
    let read = move || {
        let part = |row: &PgRow| Ok((unsigned(row.try_get("seq")?), read_json(row, "part")?));
        let parts: Result<_, Error> = rows.iter().map(part).collect();
        Ok(Parts { parts: parts?, bytes })
    };
    if bytes <= INLINE_BYTES_MAX {
        return read();
    }
    tokio::task::spawn_blocking(read).await.unwrap_or_else(|stopped| match stopped.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Err(sqlx::Error::WorkerCrashed.into()),
    })
}

/// Reads the column `data`.
fn read_json<T: serde::de::DeserializeOwned + Unpin + Send + 'static>(
    row: &PgRow,
    what: &'static str,
) -> Result<T, Error> {
    row.try_get::<Json<T>, _>("data").map(|json| json.0).map_err(|error| Error::unreadable(what, error))
}
