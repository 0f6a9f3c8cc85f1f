//! The inbox of a forge: what it has told us, from its arrival until it is processed. A delivery belongs to no tenant before that.

use crate::{
    Page, Store,
    column::{milliseconds, timestamp, unsigned},
    error::Error,
};
use domain::ids::{TenantId, Timestamp};
use sqlx::{Row as _, postgres::PgRow};

/// Days for which a processed delivery is kept.
const DELIVERY_KEPT_DAYS: f64 = 14.0;
/// Deliveries that one round of upkeep removes.
const FORGOTTEN_MAX: i64 = 1_000;

/// What became of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryState {
    New,
    Done,
    /// It asks for nothing.
    Ignored,
    /// It cannot be processed; an operator can have it tried again.
    Dead,
}

impl DeliveryState {
    const ALL: [Self; 4] = [Self::New, Self::Done, Self::Ignored, Self::Dead];

    /// The number in the column.
    const fn to_i16(self) -> i16 {
        match self {
            Self::New => 0,
            Self::Done => 1,
            Self::Ignored => 2,
            Self::Dead => 3,
        }
    }

    /// The word for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Done => "done",
            Self::Ignored => "ignored",
            Self::Dead => "dead",
        }
    }
}

/// A delivery that has arrived.
#[derive(Debug, Clone, Copy)]
pub struct NewDelivery<'a> {
    pub guid: &'a str,
    pub event: &'a str,
    pub installation: Option<i64>,
    /// Empty: it is about no thread.
    pub thread: &'a str,
    pub body: &'a [u8],
}

/// A delivery that the caller is to process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedDelivery {
    pub guid: String,
    pub event: String,
    pub installation: Option<i64>,
    pub body: Vec<u8>,
    /// Attempts before this one.
    pub attempts: i16,
}

/// A delivery as operators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryRecord {
    pub guid: String,
    pub seq: u64,
    pub event: String,
    pub installation: Option<i64>,
    pub received_at: Timestamp,
    pub state: DeliveryState,
    pub note: String,
    pub attempts: i16,
}

impl Store {
    /// Stores a delivery. Returns false if it is stored already.
    ///
    /// # Errors
    /// `Db`: stored or not.
    pub async fn add_delivery(&self, new: NewDelivery<'_>) -> Result<bool, Error> {
        let inserted = sqlx::query(
            "insert into forge_delivery (guid, event, installation_id, thread, body) values ($1, $2, $3, $4, $5)
             on conflict (guid) do nothing",
        )
        .bind(new.guid)
        .bind(new.event)
        .bind(new.installation)
        .bind(new.thread)
        .bind(new.body)
        .execute(&self.system)
        .await?;
        Ok(inserted.rows_affected() > 0)
    }

    /// Returns those of these deliveries that have arrived.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_known_deliveries(&self, guids: &[&str]) -> Result<Vec<String>, Error> {
        let known = sqlx::query_scalar("select guid from forge_delivery where guid = any($1)");
        Ok(known.bind(guids).fetch_all(&self.system).await?)
    }

    /// Claims the oldest delivery that is due, for `lease_ms`. Those of one thread come in order: as long as an earlier one is new, a later one waits.
    ///
    /// # Errors
    /// `Db`: claimed or not; the claim ends by itself.
    pub async fn claim_delivery(&self, lease_ms: u64) -> Result<Option<ClaimedDelivery>, Error> {
        let row = sqlx::query(
            "update forge_delivery d set due_at = now() + $1 * interval '1 millisecond', attempts = attempts + 1
              where guid = (
                select n.guid from forge_delivery n
                 where n.state = 0 and n.due_at <= now()
                   and (n.thread = '' or not exists (
                     select 1 from forge_delivery e where e.state = 0 and e.thread = n.thread and e.seq < n.seq))
                 order by n.seq limit 1 for update skip locked)
             returning guid, event, installation_id, body, attempts - 1::smallint as attempts",
        )
        .bind(milliseconds(lease_ms))
        .fetch_optional(&self.system)
        .await?;
        let claimed = |row: PgRow| {
            Ok(ClaimedDelivery {
                guid: row.try_get("guid")?,
                event: row.try_get("event")?,
                installation: row.try_get("installation_id")?,
                body: row.try_get("body")?,
                attempts: row.try_get("attempts")?,
            })
        };
        row.map(claimed).transpose()
    }

    /// Notes what became of a delivery. A dead one can be tried again.
    ///
    /// # Errors
    /// `Db`: noted or not.
    pub async fn finish_delivery(&self, guid: &str, state: DeliveryState, note: &str) -> Result<(), Error> {
        sqlx::query("update forge_delivery set state = $2, note = $3 where guid = $1 and state = 0")
            .bind(guid)
            .bind(state.to_i16())
            .bind(note)
            .execute(&self.system)
            .await?;
        Ok(())
    }

    /// Has a delivery tried again after `pause_ms`.
    ///
    /// # Errors
    /// `Db`.
    pub async fn postpone_delivery(&self, guid: &str, pause_ms: u64, note: &str) -> Result<(), Error> {
        sqlx::query(
            "update forge_delivery set due_at = now() + $2 * interval '1 millisecond', note = $3 where guid = $1 and state = 0",
        )
        .bind(guid)
        .bind(milliseconds(pause_ms))
        .bind(note)
        .execute(&self.system)
        .await?;
        Ok(())
    }

    /// Has a processed delivery processed again. Returns false if there is none.
    ///
    /// # Errors
    /// `Db`.
    pub async fn renew_delivery(&self, guid: &str) -> Result<bool, Error> {
        let updated = sqlx::query(
            "update forge_delivery set state = 0, due_at = now(), attempts = 0, note = '' where guid = $1 and state <> 0",
        )
        .bind(guid)
        .execute(&self.system)
        .await?;
        Ok(updated.rows_affected() > 0)
    }

    /// Has the dead deliveries of an installation processed again: it has a tenant now.
    ///
    /// # Errors
    /// `Db`.
    pub async fn renew_dead_deliveries(&self, installation: i64) -> Result<u64, Error> {
        let updated = sqlx::query(
            "update forge_delivery set state = 0, due_at = now(), attempts = 0, note = '' where installation_id = $1 and state = 3",
        )
        .bind(installation)
        .execute(&self.system)
        .await?;
        Ok(updated.rows_affected())
    }

    /// Lists deliveries, the newest first. The cursor is the number of the last one.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_deliveries(&self, page: &Page) -> Result<Vec<DeliveryRecord>, Error> {
        let before = page.cursor.as_deref().and_then(|cursor| cursor.parse::<i64>().ok());
        let rows = sqlx::query(
            "select guid, seq, event, installation_id, received_at, state, note, attempts from forge_delivery
              where seq < coalesce($1, 9223372036854775807) order by seq desc limit $2",
        )
        .bind(before)
        .bind(page.limit())
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(record).collect()
    }

    /// Finds the tenant that has an installation.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_installation_owner(&self, installation: i64) -> Result<Option<TenantId>, Error> {
        let owner = sqlx::query_scalar("select tenant_id from forge_installation where id = $1");
        let owner: Option<uuid::Uuid> = owner.bind(installation).fetch_optional(&self.system).await?;
        Ok(owner.map(TenantId))
    }

    /// Removes old deliveries that are processed, up to a bound. Returns their number.
    ///
    /// # Errors
    /// `Db`.
    pub async fn forget_old_deliveries(&self) -> Result<u64, Error> {
        let deleted = sqlx::query(
            "delete from forge_delivery where guid = any(array(
               select guid from forge_delivery where received_at < now() - $1 * interval '1 day' and state <> 0
                order by received_at limit $2))",
        )
        .bind(DELIVERY_KEPT_DAYS)
        .bind(FORGOTTEN_MAX)
        .execute(&self.system)
        .await?;
        Ok(deleted.rows_affected())
    }
}

fn record(row: &PgRow) -> Result<DeliveryRecord, Error> {
    let number: i16 = row.try_get("state")?;
    let state = DeliveryState::ALL.into_iter().find(|state| state.to_i16() == number);
    Ok(DeliveryRecord {
        guid: row.try_get("guid")?,
        seq: unsigned(row.try_get("seq")?),
        event: row.try_get("event")?,
        installation: row.try_get("installation_id")?,
        received_at: timestamp(row.try_get("received_at")?),
        state: state.ok_or_else(|| Error::unreadable("delivery", UnknownState(number)))?,
        note: row.try_get("note")?,
        attempts: row.try_get("attempts")?,
    })
}

#[derive(Debug, thiserror::Error)]
#[error("unknown state {0} of a delivery")]
struct UnknownState(i16);
