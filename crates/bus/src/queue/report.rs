//! What operators and "why does my session wait" need to know of the ready queue. Reads only; bounded.

use super::script;
use crate::{Bus, error::Error};
use domain::{
    ids::{SessionId, TenantId},
    limits,
    session::Class,
};
use serde::{Deserialize, de::DeserializeOwned};

/// What a tenant has, may have, and how fast its sessions are admitted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Outlook {
    /// Running loops.
    pub running: u64,
    /// Loops that may run.
    pub running_max: u32,
    /// Share of the slots.
    pub weight: u32,
    /// Sessions that wait, by the place of the class in [`Class::ALL`].
    pub ready: [u64; Class::ALL.len()],
    /// Smoothed time between two of its claims while it had work waiting, in milliseconds; `None` before its first one.
    #[serde(default)]
    pub interval_ms: Option<u64>,
}

/// The queue as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// Workers seen, living or not yet reaped.
    pub workers: u64,
    /// Sessions that they hold.
    pub held: u64,
    /// Tenants with ready or running sessions, listed or not.
    pub tenants_busy: u64,
    /// Those that are busy for the longest time, as many as asked for.
    pub tenants: Vec<Busy>,
}

/// A tenant with ready or running sessions.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Busy {
    /// Who.
    pub tenant: TenantId,
    /// Sessions that wait, by the place of the class in [`Class::ALL`].
    pub ready: [u64; Class::ALL.len()],
    /// Running loops.
    pub running: u64,
    /// Its virtual time: used slot time divided by its weight, in milliseconds. The least one is served next.
    pub virtual_ms: u64,
    /// How long its oldest waiting session has waited, in milliseconds; `None` when none waits.
    #[serde(default)]
    pub oldest_ms: Option<u64>,
}

#[derive(Deserialize)]
struct Whole {
    workers: u64,
    held: u64,
    tenants_busy: u64,
}

impl Bus {
    /// Says what a tenant has waiting and running. An estimate of a session's wait is its position times `interval_ms`.
    ///
    /// # Errors
    /// `Redis`; `Answer` for what is not ours.
    pub async fn outlook(&self, tenant: TenantId) -> Result<Outlook, Error> {
        let answer: String = script::OUTLOOK
            .key(self.prefix())
            .arg(tenant.to_string())
            .invoke_async(&mut self.redis.clone())
            .await?;
        read(&answer)
    }

    /// Finds how many sessions of the same tenant and class come before a waiting one; `None` when it does not wait there.
    ///
    /// # Errors
    /// `Redis`.
    pub async fn find_position(
        &self,
        tenant: TenantId,
        session: &SessionId,
        class: Class,
    ) -> Result<Option<u64>, Error> {
        let ready = format!("{}r:{tenant}:{}", self.prefix(), class.to_i16());
        let mut redis = self.redis.clone();
        Ok(redis::cmd("ZRANK").arg(ready).arg(session.as_str()).query_async(&mut redis).await?)
    }

    /// Looks over the queue: the whole, and at most `tenants_max` tenants, themselves at most
    /// [`limits::SURVEY_TENANTS_MAX`].
    ///
    /// # Errors
    /// `Redis`; `Answer` for what is not ours.
    pub async fn survey(&self, tenants_max: usize) -> Result<Survey, Error> {
        let answer: Vec<String> = script::SURVEY
            .key(self.prefix())
            .arg(tenants_max.clamp(1, limits::SURVEY_TENANTS_MAX))
            .invoke_async(&mut self.redis.clone())
            .await?;
        let (whole, tenants) = answer.split_first().ok_or_else(|| Error::Answer(String::new()))?;
        let Whole { workers, held, tenants_busy } = read(whole)?;
        let tenants = tenants.iter().map(|tenant| read(tenant)).collect::<Result<_, _>>()?;
        Ok(Survey { workers, held, tenants_busy, tenants })
    }
}

fn read<T: DeserializeOwned>(answer: &str) -> Result<T, Error> {
    serde_json::from_str(answer).map_err(|_| Error::Answer(answer.to_owned()))
}
