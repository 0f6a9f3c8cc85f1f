//! Chores that one worker of the whole fleet does from time to time.

use crate::{Store, column::signed, error::Error};

impl Store {
    /// Says whether the caller is to do a chore now: one caller in each period of `period_ms` milliseconds gets the answer yes. If it fails
    /// midway, another one does the chore in the next period.
    ///
    /// # Errors
    /// `Db`: if the answer was lost, the next period decides.
    pub async fn claim_chore(&self, name: &str, period_ms: u64) -> Result<bool, Error> {
        let row = sqlx::query(
            "insert into chore (name, next_at) values ($1, now() + $2 * interval '1 millisecond')
             on conflict (name) do update set next_at = excluded.next_at
              -- A time far in the future means that somebody has set the clock back.
              where chore.next_at <= now() or chore.next_at > excluded.next_at
             returning 1",
        )
        .bind(name)
        .bind(signed(period_ms))
        .fetch_optional(&self.system)
        .await?;
        Ok(row.is_some())
    }
}
