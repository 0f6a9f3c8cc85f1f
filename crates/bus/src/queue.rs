//! The ready queue in Redis: fair between tenants (start-time fair queueing by slot time, with a cap), one script for
//! each step. Its contents are hints: Postgres decides who owns a session, and an emptied Redis is filled from there.
// Continues in worker::claim, which takes what is claimed here in Postgres.

use crate::{Bus, error::Error};
use domain::{
    ids::{SessionId, TenantId},
    limits,
};
use redis::Script;
use std::sync::LazyLock;

macro_rules! script {
    ($name:ident, $file:literal) => {
        static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!(include_str!("queue/common.lua"), include_str!($file))));
    };
}

script!(ENQUEUE, "queue/enqueue.lua");
script!(CLAIM, "queue/claim.lua");
script!(RENEW, "queue/renew.lua");
script!(RELEASE, "queue/release.lua");
script!(REAP, "queue/reap.lua");
script!(ADOPT, "queue/adopt.lua");

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

    /// Queues a session. `running_max` is the tenant's cap, 0 for the one known before.
    ///
    /// # Errors
    /// `Redis`: nothing is lost, the sweeper finds the session.
    pub async fn enqueue(
        &self,
        tenant: TenantId,
        session: &SessionId,
        running_max: u32,
        mode: Mode,
    ) -> Result<Enqueued, Error> {
        let answer: String = ENQUEUE
            .key(self.prefix())
            .arg(session.as_str())
            .arg(tenant.to_string())
            .arg(running_max)
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

    /// Claims up to `count` sessions for `worker`, the least served tenants first.
    ///
    /// # Errors
    /// `Redis`; a claim whose answer was lost is found again when the worker is reaped or the sweeper runs.
    pub async fn claim(&self, worker: &str, count: usize) -> Result<Claims, Error> {
        let answer: Vec<String> =
            CLAIM.key(self.prefix()).arg(worker).arg(count).invoke_async(&mut self.redis.clone()).await?;
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

    /// Says that `worker` is alive, and charges its tenants. Gives whether the queue is complete.
    ///
    /// # Errors
    /// `Redis`.
    pub async fn renew(&self, worker: &str) -> Result<bool, Error> {
        let answer: String = RENEW
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
        let answer: String = RELEASE
            .key(self.prefix())
            .arg(session.as_str())
            .arg(worker)
            .arg(if then == Then::Front { "front" } else { "" })
            .invoke_async(&mut self.redis.clone())
            .await?;
        Ok(answer == "REQUEUED")
    }

    /// Queues what dead workers held, and gives how many sessions.
    ///
    /// # Errors
    /// `Redis`.
    pub async fn reap(&self) -> Result<u64, Error> {
        Ok(REAP.key(self.prefix()).invoke_async(&mut self.redis.clone()).await?)
    }

    /// Notes that `worker` holds a session, while the queue is filled again.
    ///
    /// # Errors
    /// `Redis`.
    pub async fn adopt(&self, tenant: TenantId, session: &SessionId, worker: &str) -> Result<(), Error> {
        let _: String = ADOPT
            .key(self.prefix())
            .arg(session.as_str())
            .arg(tenant.to_string())
            .arg(worker)
            .invoke_async(&mut self.redis.clone())
            .await?;
        Ok(())
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
