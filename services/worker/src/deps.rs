//! What every loop of a worker shares: connections, model providers, ids and the clock.

use crate::{config::Config, sandbox::Sandbox};
use domain::ids::{Ids, Timestamp};
use std::sync::{Mutex, PoisonError};
use uuid::Uuid;

/// Connections and settings of one worker process.
pub(crate) struct Deps {
    pub(crate) store: store::Store,
    pub(crate) bus: bus::Bus,
    pub(crate) publisher: bus::feed::Publisher,
    pub(crate) models: llm::client::Client,
    pub(crate) providers: llm::config::Config,
    pub(crate) sandbox: Sandbox,
    /// Names this life of the process: a restarted worker is another one.
    pub(crate) incarnation: Uuid,
    pub(crate) name: String,
    ids: Mutex<Ids>,
}

impl Deps {
    pub(crate) async fn connect(config: &Config, providers: llm::config::Config) -> anyhow::Result<Self> {
        let store = store::Store::connect(
            config.database_url.expose(),
            config.system_database_url.expose(),
            config.connections,
        )?;
        let bus =
            bus::Bus::connect(config.nats_url.expose(), config.redis_url.expose(), &config.namespace).await?;
        Ok(Self {
            publisher: bus.publisher(),
            store,
            bus,
            models: llm::client::Client::new()?,
            providers,
            sandbox: Sandbox::new(&config.sandbox_url, config.sandbox_token.expose())?,
            incarnation: Uuid::now_v7(),
            name: config.name.clone(),
            ids: Mutex::new(Ids::new(rand::random())),
        })
    }

    /// Makes an id with `make`, for example `MessageId::make`.
    pub(crate) fn id<T>(&self, make: impl FnOnce(&mut Ids, Timestamp) -> T) -> T {
        make(&mut self.ids.lock().unwrap_or_else(PoisonError::into_inner), now())
    }
}

/// The wall clock: for display and for waits, never for safety.
pub(crate) fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
