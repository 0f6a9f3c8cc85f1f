//! The shared dependencies of a worker's loops: connections, model providers and a generator of ids.

use super::{
    broker::{Broker, ForgeClient},
    clock::now,
    sandbox::Sandbox,
    source_reads::SourceReads,
};
use crate::{config::Config, conversation::kept::KeptConversations};
use anyhow::Context as _;
use bus::queue::{Mode, QueueEntry};
use chassis::{backends::Backends, grpc::Windows, tasks::Tasks};
use convert_client::converter::{self, Converter};
use domain::{
    ids::{Ids, SessionId, TenantId, Timestamp},
    policy::quota::PlatformQuota,
    session::Class,
};
use rpc::v1::ErrorCode;
use settings::document::Document;
use std::sync::{Mutex, PoisonError};
use store::tenant::retention::Retention;
use tonic::Status;
use uuid::Uuid;

/// Connections and settings of one worker process.
pub(crate) struct Deps {
    pub(crate) store: store::Store,
    pub(crate) bus: bus::Bus,
    pub(crate) publisher: bus::feed::Publisher,
    pub(crate) models: llm::client::Client,
    pub(crate) providers: llm::config::providers::Config,
    pub(crate) sandbox: Sandbox,
    /// `None`: sessions have no network.
    pub(crate) broker: Option<Broker>,
    /// Converts foreign content outside this process, which holds keys.
    pub(crate) converter: Converter,
    /// The platform's settings, which bind every session.
    pub(crate) platform: Vec<Document>,
    /// Whether the operator disabled web access.
    pub(crate) web_off: bool,
    /// The id of this run of the process. A restarted worker has another one.
    pub(crate) incarnation: Uuid,
    pub(crate) name: String,
    /// Time that people have to answer a request; milliseconds.
    pub(crate) request_wait_ms: i64,
    /// Time between two comparisons of the sandbox with Postgres; milliseconds.
    pub(crate) reconcile_ms: u64,
    /// Pause between two rounds of work for which nobody waits; milliseconds.
    pub(crate) upkeep_ms: u64,
    /// Time between two measurements of the logs of sessions; milliseconds.
    pub(crate) measure_ms: u64,
    /// For how long sessions are kept whose tenant does not say.
    pub(crate) retention: Retention,
    /// What tenants without a quota of their own may store.
    pub(crate) quota: PlatformQuota,
    /// The tasks that outlive their caller.
    pub(crate) tasks: Tasks,
    /// The conversations of sessions that were parked here.
    pub(crate) kept: KeptConversations,
    /// The sources that loops of this worker read now.
    pub(crate) source_reads: SourceReads,
    ids: Mutex<Ids>,
}

impl Deps {
    pub(crate) async fn connect(
        config: &Config,
        providers: llm::config::providers::Config,
        tasks: Tasks,
    ) -> anyhow::Result<Self> {
        let backends = &config.backends;
        let (store, bus) = connect(backends, backends.connections).await?;
        let platform = config.platform().context("use the platform's settings")?;
        Ok(Self {
            publisher: bus.publisher(),
            store,
            bus,
            models: llm::client::Client::new()?,
            providers,
            platform,
            web_off: config.web_off,
            converter: Converter::new(chassis::programs::find(converter::PROGRAM)?),
            broker: Broker::connect(&config.broker)?,
            sandbox: Sandbox::new(
                backends.sandbox_channel(Windows::CALLS)?,
                backends.sandbox_token.expose(),
            )?,
            incarnation: Uuid::now_v7(),
            name: config.name.clone(),
            request_wait_ms: i64::try_from(config.request_wait_ms).unwrap_or(i64::MAX),
            reconcile_ms: config.reconcile_ms,
            upkeep_ms: config.upkeep_ms,
            measure_ms: config.measure_ms,
            retention: Retention {
                idle_days: config.keep_idle_days,
                archived_days: config.keep_archived_days,
            },
            quota: config.quota.platform_quota(),
            tasks,
            kept: KeptConversations::default(),
            source_reads: SourceReads::default(),
            ids: Mutex::new(Ids::new(rand::random())),
        })
    }

    /// Like [`Deps::wake`], for an input that a running loop must see at once: an abort, or the answer of a child.
    pub(crate) async fn interrupt(&self, tenant: TenantId, session: &SessionId, class: Class) {
        self.bus.nudge(tenant, session);
        self.wake(tenant, session, class).await;
    }

    /// Tells the workers about a session that has work. These are hints: the sweep also finds the session without
    /// them.
    pub(crate) async fn wake(&self, tenant: TenantId, session: &SessionId, class: Class) {
        let entry = QueueEntry { tenant, session, class, share: None };
        if let Err(error) = self.bus.enqueue(entry, Mode::Normal).await {
            tracing::debug!(error = &error as &dyn std::error::Error, "cannot queue a session in Redis");
        }
        self.bus.ring();
    }

    /// The client of the App at the forge.
    ///
    /// # Errors
    /// `broker_unavailable`: this deployment has no broker.
    pub(crate) fn forge(&self) -> Result<ForgeClient, Status> {
        let missing = || rpc::status::error(ErrorCode::BrokerUnavailable, "this deployment has no broker");
        self.broker.as_ref().map(Broker::forge).ok_or_else(missing)
    }

    /// Makes an id with `make`, for example `MessageId::make`.
    pub(crate) fn id<T>(&self, make: impl FnOnce(&mut Ids, Timestamp) -> T) -> T {
        make(&mut self.ids.lock().unwrap_or_else(PoisonError::into_inner), now())
    }
}

/// Opens a new set of connections to Postgres, NATS and Redis.
pub(crate) async fn connect(
    backends: &Backends,
    connections: u32,
) -> anyhow::Result<(store::Store, bus::Bus)> {
    backends.check_transport()?;
    let (app_url, system_url) = (backends.database_url.expose(), backends.system_database_url.expose());
    let store = store::Store::connect(app_url, system_url, connections)?;
    let (nats_url, redis_url) = (backends.nats_url.expose(), backends.redis_url.expose());
    let bus = bus::Bus::connect(nats_url, redis_url, &backends.namespace).await?;
    Ok((store, bus))
}
