//! The ready queue in Redis, one script for each operation. It is fair by slot time (start-time fair queueing): between tenants by
//! their weight and below their cap, and inside a tenant between the classes. Inside a class, interrupted sessions come first,
//! then the oldest. Its contents are hints: Postgres decides which worker owns a session, and refills a Redis that lost its data.
// Continues in worker::claim, which takes the claimed session in Postgres.

pub mod report;

mod script;

use crate::{Bus, error::Error};
use domain::{
    ids::{SessionId, TenantId},
    limits,
    session::Class,
};

/// A session with the properties that the queue needs to be fair.
#[derive(Debug, Clone, Copy)]
pub struct QueueEntry<'a> {
    pub tenant: TenantId,
    pub session: &'a SessionId,
    /// How urgent it is. The newest call for a session counts, even while a worker holds the session.
    pub class: Class,
    /// The share of the tenant; `None`: unchanged since an earlier call.
    pub share: Option<TenantShare>,
}

/// A tenant's share of the slots. The default is [`limits::TENANT_RUNNING_MAX`] and [`limits::TENANT_WEIGHT_DEFAULT`]. The
/// queue forgets the share of a tenant that has had no work for an hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantShare {
    /// Loops that may run; further sessions wait. With 0, all sessions wait.
    pub running_max: u32,
    /// Its weight while other tenants have work too; 0 counts as 1.
    pub weight: u32,
}

/// The result of queueing a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnqueueResult {
    /// It waits for a claim.
    Queued,
    /// A worker holds it. Its release queues the session again.
    Held,
    /// Redis lost its data and has not been refilled yet. The sweep will queue the session.
    Empty,
}

/// A session that a worker claimed here and must still take in Postgres.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    pub tenant: TenantId,
    pub session: SessionId,
}

/// The result of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claims {
    /// These sessions; may be empty.
    Some(Vec<Claim>),
    /// Redis lost its data: a worker must refill it.
    Empty,
}

/// Where a session goes when its worker releases it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseTo {
    /// To no queue, unless an input arrived meanwhile.
    Rest,
    /// The front of its queue, before all new sessions of its tenant.
    Front,
}

/// Whether the worker has a free slot for another session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slots {
    /// At least one is free.
    Free,
    Full,
}

/// Whether a session keeps its slot at a step boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Yield {
    /// It keeps the slot: no waiting session has a better claim to it.
    Keep,
    /// Another tenant has used less slot time.
    ToTenant,
    /// Another class of the same tenant has used less of its share.
    ToClass,
}

/// Whether a call belongs to a refill of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// An ordinary call: refused until the queue is refilled.
    Normal,
    /// A call of the refill.
    Rebuild,
}

/// The version of the keys. Workers of a version with other keys have a queue of their own in the same Redis: each finds through
/// Postgres what was queued in the other.
const KEYS: u32 = 2;

impl Bus {
    fn prefix(&self) -> String {
        format!("{{{}}}:{KEYS}:", self.namespace)
    }

    /// Returns a call with the first arguments of `enqueue` and `adopt`.
    fn invoke<'a>(&self, script: &'a redis::Script, entry: QueueEntry<'_>) -> redis::ScriptInvocation<'a> {
        let share = entry.share.map(|share| (share.running_max.to_string(), share.weight.to_string()));
        let (running_max, weight) = share.unwrap_or_default();
        let mut call = script.key(self.prefix());
        call.arg(entry.session.as_str())
            .arg(entry.tenant.to_string())
            .arg(entry.class.to_i16())
            .arg(running_max)
            .arg(weight);
        call
    }

    /// Queues a session.
    ///
    /// # Errors
    /// `Redis`: the sweep will find the session.
    pub async fn enqueue(&self, entry: QueueEntry<'_>, mode: Mode) -> Result<EnqueueResult, Error> {
        let answer: String = self
            .invoke(&script::ENQUEUE, entry)
            .arg(if mode == Mode::Rebuild { "rebuild" } else { "" })
            .invoke_async(&mut self.redis.clone())
            .await?;
        match answer.as_str() {
            "QUEUED" => Ok(EnqueueResult::Queued),
            "HELD" => Ok(EnqueueResult::Held),
            "NOGEN" => Ok(EnqueueResult::Empty),
            _ => Err(Error::Answer(answer)),
        }
    }

    /// Changes the share of a tenant, from its next claim on.
    ///
    /// # Errors
    /// `Redis`: the tenant's next enqueued session updates the share.
    pub async fn set_share(&self, tenant: TenantId, share: TenantShare) -> Result<(), Error> {
        let mut redis = self.redis.clone();
        let key = format!("{}t:{tenant}", self.prefix());
        let fields = [("cap", share.running_max), ("weight", share.weight.max(1))];
        Ok(redis::AsyncCommands::hset_multiple(&mut redis, key, &fields).await?)
    }

    /// Claims up to `count` sessions for `worker`, the least served tenants first.
    ///
    /// # Errors
    /// `Redis`: if only the answer was lost, the sweep finds the sessions again.
    pub async fn claim(&self, worker: &str, count: usize) -> Result<Claims, Error> {
        let answer: Vec<String> = script::CLAIM
            .key(self.prefix())
            .arg(worker)
            .arg(count)
            .invoke_async(&mut self.redis.clone())
            .await?;
        if answer.first().is_some_and(|word| word == "NOGEN") {
            return Ok(Claims::Empty);
        }
        let claims = answer.chunks_exact(2).map(|pair| {
            let (session, tenant) = (pair[0].parse().ok(), pair[1].parse().ok());
            session
                .zip(tenant)
                .map(|(session, tenant)| Claim { tenant, session })
                .ok_or_else(|| Error::Answer(pair.join(" ")))
        });
        Ok(Claims::Some(claims.collect::<Result<_, _>>()?))
    }

    /// Records that `worker` is alive, and charges the tenants and classes of its sessions for their slot time. Returns whether the
    /// queue is complete.
    ///
    /// # Errors
    /// `Redis`.
    pub async fn renew(&self, worker: &str) -> Result<bool, Error> {
        let answer: String = script::RENEW
            .key(self.prefix())
            .arg(worker)
            .arg(limits::LEASE_TTL_MS)
            .invoke_async(&mut self.redis.clone())
            .await?;
        Ok(answer == "OK")
    }

    /// Releases a session. Returns whether the session is queued again, because an input arrived meanwhile.
    ///
    /// # Errors
    /// `Redis`: the session stays held until Redis considers the worker dead.
    pub async fn release(
        &self,
        tenant: TenantId,
        session: &SessionId,
        worker: &str,
        to: ReleaseTo,
    ) -> Result<bool, Error> {
        let answer: String = script::RELEASE
            .key(self.prefix())
            .arg(session.as_str())
            .arg(tenant.to_string())
            .arg(worker)
            .arg(if to == ReleaseTo::Front { "front" } else { "" })
            .invoke_async(&mut self.redis.clone())
            .await?;
        Ok(answer == "REQUEUED")
    }

    /// Lists the sessions that `worker` holds according to Redis.
    ///
    /// # Errors
    /// `Redis`.
    pub async fn list_held(&self, worker: &str) -> Result<Vec<Claim>, Error> {
        let key = format!("{}own:{worker}", self.prefix());
        let held: Vec<String> = redis::cmd("SMEMBERS").arg(key).query_async(&mut self.redis.clone()).await?;
        let claim = |id: &String| {
            let (tenant, session) = id.split_once(':')?;
            Some(Claim { tenant: tenant.parse().ok()?, session: session.parse().ok()? })
        };
        Ok(held.iter().filter_map(claim).collect())
    }

    /// Queues the sessions of dead workers and returns their number.
    ///
    /// # Errors
    /// `Redis`.
    pub async fn reap(&self) -> Result<u64, Error> {
        Ok(script::REAP.key(self.prefix()).invoke_async(&mut self.redis.clone()).await?)
    }

    /// Records that `worker` holds a session that is not held here, because Redis lost its data.
    ///
    /// # Errors
    /// `Redis`.
    pub async fn adopt(&self, entry: QueueEntry<'_>, worker: &str) -> Result<(), Error> {
        let _: String =
            self.invoke(&script::ADOPT, entry).arg(worker).invoke_async(&mut self.redis.clone()).await?;
        Ok(())
    }

    /// Decides whether a session that `worker` holds should give up its slot at this step boundary. The worker then releases
    /// it to the [`ReleaseTo::Front`].
    ///
    /// While the worker has a free slot, only a session whose tenant is at its cap yields, to another class of the tenant. The
    /// decision keeps no state: if several sessions ask before the waiting one is admitted, all of them may yield.
    ///
    /// # Errors
    /// `Redis`: the session should continue.
    pub async fn should_yield(
        &self,
        tenant: TenantId,
        session: &SessionId,
        worker: &str,
        slots: Slots,
    ) -> Result<Yield, Error> {
        let answer: String = script::YIELDS
            .key(self.prefix())
            .arg(session.as_str())
            .arg(tenant.to_string())
            .arg(worker)
            .arg(if slots == Slots::Full { "full" } else { "" })
            .invoke_async(&mut self.redis.clone())
            .await?;
        match answer.as_str() {
            "KEEP" => Ok(Yield::Keep),
            "TENANT" => Ok(Yield::ToTenant),
            "CLASS" => Ok(Yield::ToClass),
            _ => Err(Error::Answer(answer)),
        }
    }

    /// Removes everything of a deleted tenant.
    ///
    /// # Errors
    /// `Redis`: repeat the call.
    pub async fn forget_tenant(&self, tenant: TenantId) -> Result<(), Error> {
        let _: String = script::FORGET
            .key(self.prefix())
            .arg(tenant.to_string())
            .invoke_async(&mut self.redis.clone())
            .await?;
        Ok(())
    }

    /// Marks the queue as complete again.
    ///
    /// # Errors
    /// `Redis`.
    pub async fn complete_rebuild(&self) -> Result<(), Error> {
        let mut redis = self.redis.clone();
        redis::cmd("SET").arg(format!("{}gen", self.prefix())).arg(1).query_async::<()>(&mut redis).await?;
        Ok(())
    }
}
