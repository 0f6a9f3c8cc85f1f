//! Every query that crosses tenants, and no other. They log in as `flotilla_system`, and give ids, never contents.

pub mod operator;
pub mod queue;

use crate::{Page, Store, error::Error, signed, tenants, timestamp, unsigned};
use domain::{
    ids::{SessionId, TenantId, Timestamp},
    limits,
    model::Facts,
    session::Class,
    tool,
};
use sqlx::{Row as _, postgres::PgRow, types::Json};
use std::sync::Arc;
use tenants::Tenant;
use uuid::Uuid;

/// A session by its full name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Whose.
    pub tenant: TenantId,
    /// Which.
    pub session: SessionId,
}

/// Workers that live, and what they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capacity {
    /// Workers whose lease runs and that take sessions.
    pub workers: u64,
    /// Their slots.
    pub slots: u64,
    /// Loops that run, of all tenants.
    pub running: u64,
}

/// A session that a worker may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimable {
    /// Which.
    pub place: Place,
    /// How urgent it is.
    pub class: Class,
    /// Take-overs since the last progress.
    pub attempts: i16,
    /// Loops of its tenant that may run at once.
    pub running_max: u32,
    /// Its tenant's share of the slots.
    pub weight: u32,
}

/// What a worker says of itself with each heartbeat.
#[derive(Debug, Clone)]
pub struct Beat {
    /// Its incarnation.
    pub incarnation: Uuid,
    /// Its name.
    pub name: String,
    /// Loops that it may run.
    pub slots: u32,
    /// Whether it takes no more sessions.
    pub draining: bool,
    /// What it can do; `None`: as it told before.
    pub offer: Option<Arc<Offer>>,
}

/// What a worker can do.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Offer {
    /// The models that it can ask.
    pub models: Vec<Facts>,
    /// The tools that it has.
    pub tools: Vec<tool::Spec>,
}

/// A session that a worker owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Where it is.
    pub place: Place,
    /// The number of the take-over.
    pub epoch: u64,
    /// How urgent.
    pub class: Class,
}

/// Whose aborted sessions are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// Nobody's.
    None,
    /// Nobody's, and those of dead workers.
    NoneOrDead,
}

/// What a worker is told with each heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewed {
    /// The database's clock.
    pub now: Timestamp,
    /// Sessions that it owns and whose abort no loop has taken.
    pub aborts: Vec<Place>,
    /// Whether an operator asks it to hand its sessions over.
    pub drain_asked: bool,
}

fn claimable(row: &PgRow) -> Result<Claimable, Error> {
    Ok(Claimable {
        place: place(row)?,
        class: Class::from_i16(row.try_get("class")?).unwrap_or_default(),
        attempts: row.try_get("attempts")?,
        running_max: u32::try_from(row.try_get::<i32, _>("running_max")?).unwrap_or(0),
        weight: u32::try_from(row.try_get::<i32, _>("weight")?).unwrap_or(1),
    })
}

fn place(row: &PgRow) -> Result<Place, Error> {
    let session: String = row.try_get("session_id")?;
    Ok(Place {
        tenant: TenantId(row.try_get("tenant_id")?),
        session: session.parse().map_err(|error| Error::unreadable("session", error))?,
    })
}

impl Store {
    /// Finds whose key has this SHA-256, and what the key is called; `None` for an unknown or revoked one.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_key(&self, secret_sha256: &[u8]) -> Result<Option<(Tenant, String)>, Error> {
        let row = sqlx::query(
            "select t.id, t.name, t.running_max, t.weight, t.created_at, k.name as key_name from api_key k join tenant t on t.id = k.tenant_id
              where k.secret_sha256 = $1 and k.revoked_at is null",
        )
        .bind(secret_sha256)
        .fetch_optional(&self.system)
        .await?;
        Ok(row
            .map(|row| Ok::<_, sqlx::Error>((tenants::from_row(&row)?, row.try_get("key_name")?)))
            .transpose()?)
    }

    /// Makes a tenant, or gives the one of that name.
    ///
    /// # Errors
    /// `Db`.
    pub async fn create_tenant(&self, id: TenantId, name: &str) -> Result<Tenant, Error> {
        let row = sqlx::query(
            "insert into tenant (id, name, running_max) values ($1, $2, $3)
             on conflict (name) do update set name = excluded.name returning id, name, running_max, weight, created_at",
        )
        .bind(id.0)
        .bind(name)
        .bind(i32::try_from(limits::TENANT_RUNNING_MAX).unwrap_or(i32::MAX))
        .fetch_one(&self.system)
        .await?;
        Ok(tenants::from_row(&row)?)
    }

    /// Lists tenants by name; the cursor is the last name.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_tenants(&self, page: &Page) -> Result<Vec<Tenant>, Error> {
        let rows = sqlx::query(
            "select id, name, running_max, weight, created_at from tenant where name > $1 order by name limit $2",
        )
        .bind(page.cursor.as_deref().unwrap_or_default())
        .bind(page.limit())
        .fetch_all(&self.system)
        .await?;
        Ok(rows.iter().map(tenants::from_row).collect::<Result<_, _>>()?)
    }

    /// Changes how many loops of a tenant may run at once, and its share of the slots; what is `None` stays.
    ///
    /// # Errors
    /// `NotFound`; `Db`.
    pub async fn update_tenant(
        &self,
        tenant: TenantId,
        running_max: Option<u32>,
        weight: Option<u32>,
    ) -> Result<Tenant, Error> {
        let number = |value: Option<u32>| value.map(|value| i32::try_from(value).unwrap_or(i32::MAX));
        let row = sqlx::query(
            "update tenant set running_max = coalesce($2, running_max), weight = coalesce($3, weight)
              where id = $1 returning id, name, running_max, weight, created_at",
        )
        .bind(tenant.0)
        .bind(number(running_max))
        .bind(number(weight))
        .fetch_optional(&self.system)
        .await?
        .ok_or(Error::NotFound("tenant"))?;
        Ok(tenants::from_row(&row)?)
    }

    /// Renews the lease of a worker, making it known at the first call.
    ///
    /// # Errors
    /// `Db`: the lease may be about to end.
    pub async fn renew_worker(&self, beat: &Beat) -> Result<Renewed, Error> {
        let row = sqlx::query(
            "insert into worker (incarnation, name, lease_until, draining, slots, version, models, tools)
             values ($1, $2, now() + $3 * interval '1 millisecond', $4, $5, $6, coalesce($7, '[]'::jsonb),
                     coalesce($8, '[]'::jsonb))
             on conflict (incarnation) do update set lease_until = excluded.lease_until,
               draining = excluded.draining, models = coalesce($7, worker.models), tools = coalesce($8, worker.tools)
             returning drain_asked, clock_timestamp() as now",
        )
        .bind(beat.incarnation)
        .bind(&beat.name)
        .bind(i32::try_from(limits::LEASE_TTL_MS).unwrap_or(i32::MAX))
        .bind(beat.draining)
        .bind(i32::try_from(beat.slots).unwrap_or(i32::MAX))
        .bind(env!("CARGO_PKG_VERSION"))
        .bind(beat.offer.as_ref().map(|offer| Json(&offer.models)))
        .bind(beat.offer.as_ref().map(|offer| Json(&offer.tools)))
        .fetch_one(&self.system)
        .await?;
        let aborted = sqlx::query(
            "select tenant_id, session_id from session_run where phase = 2 and owner = $1 and cancel_seq > input_ack",
        )
        .bind(beat.incarnation)
        .fetch_all(&self.system)
        .await?;
        Ok(Renewed {
            now: timestamp(row.try_get("now")?),
            aborts: aborted.iter().map(place).collect::<Result<_, _>>()?,
            drain_asked: row.try_get("drain_asked")?,
        })
    }

    /// Lists the models that living workers can ask, each once, in the order of the worker that lives longest.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn list_models(&self) -> Result<Vec<Facts>, Error> {
        let rows = sqlx::query(
            "select models from worker where lease_runs(lease_until) order by lease_until - started_at desc",
        )
        .fetch_all(&self.system)
        .await?;
        let mut all: Vec<Facts> = vec![];
        for row in rows {
            let told =
                row.try_get::<Json<Vec<Facts>>, _>("models").map_err(|e| Error::unreadable("models", e))?.0;
            let is_new = |facts: &Facts| !all.iter().any(|known| known.model == facts.model);
            let new: Vec<Facts> = told.into_iter().filter(is_new).collect();
            all.extend(new);
        }
        Ok(all)
    }

    /// Lists the tools of the living worker that was started last, of those that tell any: older ones do not. Empty: none does.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn list_tools(&self) -> Result<Vec<tool::Spec>, Error> {
        let row = sqlx::query(
            "select tools from worker where lease_runs(lease_until) and tools <> '[]' order by started_at desc limit 1",
        )
        .fetch_optional(&self.system)
        .await?;
        let Some(row) = row else { return Ok(vec![]) };
        Ok(row.try_get::<Json<Vec<tool::Spec>>, _>("tools").map_err(|e| Error::unreadable("tools", e))?.0)
    }

    /// Lists the sessions that a worker owns: at most its slots, and those that it took for an abort only.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_held(&self, incarnation: Uuid) -> Result<Vec<Held>, Error> {
        let rows = sqlx::query(
            "select tenant_id, session_id, epoch, class from session_run where phase = 2 and owner = $1",
        )
        .bind(incarnation)
        .fetch_all(&self.system)
        .await?;
        let held = |row| {
            let epoch = unsigned(PgRow::try_get(row, "epoch")?);
            Ok(Held {
                place: place(row)?,
                epoch,
                class: Class::from_i16(row.try_get("class")?).unwrap_or_default(),
            })
        };
        rows.iter().map(held).collect()
    }

    /// Ends the lease of a worker that has no session left.
    ///
    /// # Errors
    /// `Db`.
    pub async fn forget_worker(&self, incarnation: Uuid) -> Result<(), Error> {
        sqlx::query("delete from worker where incarnation = $1")
            .bind(incarnation)
            .execute(&self.system)
            .await?;
        Ok(())
    }

    /// Deletes the workers whose lease ended long ago (`limits::WORKER_KEPT_MS`) and that no session names as its owner.
    /// Gives how many.
    ///
    /// # Errors
    /// `Db`.
    pub async fn forget_dead_workers(&self) -> Result<u64, Error> {
        let done = sqlx::query(
            "delete from worker w where w.lease_until < now() - $1 * interval '1 millisecond'
                and not exists (select 1 from session_run r where r.phase = 2 and r.owner = w.incarnation)",
        )
        .bind(signed(limits::WORKER_KEPT_MS))
        .execute(&self.system)
        .await?;
        Ok(done.rows_affected())
    }

    /// Lists runnable sessions whose abort no loop has taken: closing them must not wait for a slot. In any order, another
    /// one each time: some that nobody takes must not hide the others.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_aborted(&self, owners: Owners, limit: i64) -> Result<Vec<Place>, Error> {
        let rows = sqlx::query(
            "select tenant_id, session_id from session_run
              where cancel_seq > input_ack and (phase = 1 or (phase = 2 and $2 and not coalesce(worker_alive(owner), false)))
              order by random() limit $1",
        )
        .bind(limit)
        .bind(owners == Owners::NoneOrDead)
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(place).collect()
    }

    /// Gives how many loops all workers together may run, and how many they run. Crosses tenants: numbers only.
    ///
    /// # Errors
    /// `Db`.
    pub async fn get_capacity(&self) -> Result<Capacity, Error> {
        let row = sqlx::query(
            "select count(*) as workers, coalesce(sum(slots), 0)::bigint as slots,
                    (select count(*) from session_run where phase = 2) as running
               from worker where lease_runs(lease_until) and not draining",
        )
        .fetch_one(&self.system)
        .await?;
        let number = |column| row.try_get::<i64, _>(column).map(unsigned);
        Ok(Capacity { workers: number("workers")?, slots: number("slots")?, running: number("running")? })
    }

    /// Says whether a session without a loop has an abort that no loop has taken.
    ///
    /// # Errors
    /// `Db`.
    pub async fn is_aborted(&self, tenant: TenantId, session: &SessionId) -> Result<bool, Error> {
        let row = sqlx::query(
            "select 1 from session_run
              where tenant_id = $1 and session_id = $2 and phase = 1 and cancel_seq > input_ack",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .fetch_optional(&self.system)
        .await?;
        Ok(row.is_some())
    }

    /// Says whether Postgres did not start within the last `ms` milliseconds: right after a start every lease looks ended.
    ///
    /// # Errors
    /// `Db`.
    pub async fn is_settled(&self, ms: u64) -> Result<bool, Error> {
        // A start in the future was before the clock was set back.
        let row = sqlx::query(
            "select now() not between pg_postmaster_start_time()
                              and pg_postmaster_start_time() + $1 * interval '1 millisecond' as settled",
        )
        .bind(i32::try_from(ms).unwrap_or(i32::MAX))
        .fetch_one(&self.system)
        .await?;
        Ok(row.try_get("settled")?)
    }
}
