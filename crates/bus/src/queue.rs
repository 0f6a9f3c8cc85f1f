//! The ready queue in Redis, one script for each step. Fair by slot time (start-time fair queueing): between tenants by
//! their weight and below their cap, inside a tenant between the classes, inside a class what was interrupted first, then
//! the oldest. Its contents are hints: Postgres decides who owns a session, and an emptied Redis is filled from there.
// Continues in worker::claim, which takes what is claimed here in Postgres.

pub mod report;

mod script;

use crate::{Bus, error::Error};
use domain::{
    ids::{SessionId, TenantId},
    limits,
    session::Class,
};

/// A session, and what the queue must know to be fair.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Whose.
    pub tenant: TenantId,
    /// Which.
    pub session: &'a SessionId,
    /// How urgent. Of several calls for one session the newest counts, also for one that is held.
    pub class: Class,
    /// What the tenant may have; `None` for what the queue was told before.
    pub share: Option<Share>,
}

/// What a tenant may have of the slots. Of a tenant that it was not told of, the queue assumes
/// [`limits::TENANT_RUNNING_MAX`] and [`limits::TENANT_WEIGHT_DEFAULT`]; after an hour without work it forgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Loops that may run; further sessions wait. With 0, all of them.
    pub running_max: u32,
    /// Its part of the slots while others want them too; 0 counts as 1.
    pub weight: u32,
}

/// What became of a session that was to be queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enqueued {
    /// It waits for a claim.
    Queued,
    /// A worker holds it; it is queued again when that worker lets go.
    Held,
    /// Redis was emptied and is not filled again yet; the sweeper will queue it.
    Empty,
}

/// A session that was claimed here and is still to be taken in Postgres.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// Whose.
    pub tenant: TenantId,
    /// Which.
    pub session: SessionId,
}

/// What a claim found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claims {
    /// These, perhaps none.
    Some(Vec<Claimed>),
    /// Redis was emptied: somebody must fill it.
    Empty,
}

/// Where a released session goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Nowhere, unless an input came meanwhile.
    Rest,
    /// Before everything new of its tenant.
    Front,
}

/// Whether the worker that asks has a slot left for somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slots {
    /// At least one is free.
    Free,
    /// All are in use.
    Full,
}

/// Whether a session goes on at a step boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Yield {
    /// It goes on: nobody waits who has a better claim to the slot.
    Keep,
    /// Another tenant has used less.
    ToTenant,
    /// Another class of the same tenant has used less of what is its due.
    ToClass,
}

/// Whether an entry is made while the queue is filled again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// An ordinary one: refused while the queue is empty.
    Normal,
    /// One of the filling.
    Rebuild,
}

impl Bus {
    fn prefix(&self) -> String {
        format!("{{{}}}:", self.namespace)
    }

    /// The arguments that `enqueue` and `adopt` begin with.
    fn invoke<'a>(&self, script: &'a redis::Script, entry: Entry<'_>) -> redis::ScriptInvocation<'a> {
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
    /// `Redis`: nothing is lost, the sweeper finds the session.
    pub async fn enqueue(&self, entry: Entry<'_>, mode: Mode) -> Result<Enqueued, Error> {
        let answer: String = self
            .invoke(&script::ENQUEUE, entry)
            .arg(if mode == Mode::Rebuild { "rebuild" } else { "" })
            .invoke_async(&mut self.redis.clone())
            .await?;
        match answer.as_str() {
            "QUEUED" => Ok(Enqueued::Queued),
            "HELD" => Ok(Enqueued::Held),
            "NOGEN" => Ok(Enqueued::Empty),
            _ => Err(Error::Answer(answer)),
        }
    }

    /// Changes what a tenant may have, from its next claim on.
    ///
    /// # Errors
    /// `Redis`: the tenant's next enqueued session tells it.
    pub async fn set_share(&self, tenant: TenantId, share: Share) -> Result<(), Error> {
        let mut redis = self.redis.clone();
        let key = format!("{}t:{tenant}", self.prefix());
        let fields = [("cap", share.running_max), ("weight", share.weight.max(1))];
        Ok(redis::AsyncCommands::hset_multiple(&mut redis, key, &fields).await?)
    }

    /// Claims up to `count` sessions for `worker`, the least served tenants first.
    ///
    /// # Errors
    /// `Redis`; a claim whose answer was lost is found again when the worker is reaped or the sweeper runs.
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
        let claimed = answer.chunks_exact(2).map(|pair| {
            let (session, tenant) = (pair[0].parse().ok(), pair[1].parse().ok());
            session
                .zip(tenant)
                .map(|(session, tenant)| Claimed { tenant, session })
                .ok_or_else(|| Error::Answer(pair.join(" ")))
        });
        Ok(Claims::Some(claimed.collect::<Result<_, _>>()?))
    }

    /// Says that `worker` is alive, and charges the tenants and classes of what it holds. Gives whether the queue is complete.
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

    /// Lets a session go. Gives whether it was queued again because an input came meanwhile.
    ///
    /// # Errors
    /// `Redis`: the lease ends with the worker's.
    pub async fn release(&self, session: &SessionId, worker: &str, then: Then) -> Result<bool, Error> {
        let answer: String = script::RELEASE
            .key(self.prefix())
            .arg(session.as_str())
            .arg(worker)
            .arg(if then == Then::Front { "front" } else { "" })
            .invoke_async(&mut self.redis.clone())
            .await?;
        Ok(answer == "REQUEUED")
    }

    /// Lists what `worker` holds by Redis' account.
    ///
    /// # Errors
    /// `Redis`.
    pub async fn list_held(&self, worker: &str) -> Result<Vec<SessionId>, Error> {
        let key = format!("{}own:{worker}", self.prefix());
        let held: Vec<String> = redis::cmd("SMEMBERS").arg(key).query_async(&mut self.redis.clone()).await?;
        Ok(held.iter().filter_map(|session| session.parse().ok()).collect())
    }

    /// Queues what dead workers held, and gives how many sessions.
    ///
    /// # Errors
    /// `Redis`.
    pub async fn reap(&self) -> Result<u64, Error> {
        Ok(script::REAP.key(self.prefix()).invoke_async(&mut self.redis.clone()).await?)
    }

    /// Notes that `worker` holds a session that nobody holds here: the queue is filled again, or forgot it.
    ///
    /// # Errors
    /// `Redis`.
    pub async fn adopt(&self, entry: Entry<'_>, worker: &str) -> Result<(), Error> {
        let _: String =
            self.invoke(&script::ADOPT, entry).arg(worker).invoke_async(&mut self.redis.clone()).await?;
        Ok(())
    }

    /// Says whether a session that `worker` holds should give up its slot, now that it is at a step boundary. It should
    /// then be released to the [`Then::Front`].
    ///
    /// With a free slot only a session whose tenant is at its cap yields, to another class of the tenant. Without any
    /// state of its own: several sessions that ask before the one who waits is admitted may all be told to yield.
    ///
    /// # Errors
    /// `Redis`: go on.
    pub async fn should_yield(
        &self,
        session: &SessionId,
        worker: &str,
        slots: Slots,
    ) -> Result<Yield, Error> {
        let answer: String = script::YIELDS
            .key(self.prefix())
            .arg(session.as_str())
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

    /// Says that the queue is complete again.
    ///
    /// # Errors
    /// `Redis`.
    pub async fn complete_rebuild(&self) -> Result<(), Error> {
        let mut redis = self.redis.clone();
        redis::cmd("SET").arg(format!("{}gen", self.prefix())).arg(1).query_async::<()>(&mut redis).await?;
        Ok(())
    }
}
