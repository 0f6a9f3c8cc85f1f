//! The connections and settings that every call shares, and the source of the gateway's ids.

use crate::{
    auth::origin::Origins,
    backends::{broker::Broker, files::FileReads, forge::Forge, sandbox::Sandbox},
    config::{Config, UnknownDirectories},
    errors::error::Error,
    memory::room::Room,
    quotas::Quotas,
};
use anyhow::Context as _;
use bus::queue::{Mode, QueueEntry};
use chassis::tasks::Tasks;
use convert_client::converter::{self, Converter};
use domain::{
    conversation::message::ModelRef,
    ids::{Ids, TenantId, Timestamp},
};
use settings::{document::Document, problem::Problems, standing};
use shares::{Permit, Shares};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use store::tenant::settings::StoredSettings;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Heavy requests (diffs, exports, forks, reverts, searches) at once: each may take seconds of a sandbox machine or of Postgres. Further
/// ones wait up to ten seconds. Beyond it: `requests_too_many`.
const HEAVY_REQUESTS_MAX: u32 = 16;
/// Those of one tenant. Beyond it: `requests_too_many`.
const HEAVY_REQUESTS_TENANT_MAX: usize = 4;
/// Longest wait of such a request for its turn.
const HEAVY_REQUEST_WAIT: Duration = Duration::from_secs(10);

/// A handle to the shared state; clones are cheap.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) store: store::Store,
    pub(crate) bus: bus::Bus,
    pub(crate) publisher: bus::feed::Publisher,
    pub(crate) sandbox: Sandbox,
    pub(crate) file_reads: FileReads,
    pub(crate) broker: Broker,
    pub(crate) forge: Forge,
    /// Rings when a delivery of the forge was stored here.
    pub(crate) deliveries: Arc<Notify>,
    /// Converts foreign content outside this process.
    pub(crate) converter: Arc<Converter>,
    /// Never empty; the first is the default.
    pub(crate) models: Arc<[ModelRef]>,
    /// The web pages that may call.
    pub(crate) origins: Origins,
    pub(crate) unknown_directories: UnknownDirectories,
    /// Settings that bind every session.
    platform: Arc<[Document]>,
    pub(crate) shutdown: CancellationToken,
    /// The tasks that outlive the call that started them.
    pub(crate) tasks: Tasks,
    ids: Arc<Mutex<Ids>>,
    heavy_requests: Arc<Shares<TenantId>>,
    pub(crate) quotas: Arc<Quotas>,
    /// The room for large requests and answers.
    pub(crate) room: Arc<Room>,
}

impl State {
    /// Prepares the connections. No server has to be up.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub(crate) async fn connect(config: &Config, service: &chassis::Service) -> anyhow::Result<Self> {
        let backends = &config.backends;
        backends.check_transport()?;
        let platform = match backends.read_settings()? {
            Some((file, text)) => vec![standing::platform(&file, &text, &|name| std::env::var(name).ok())?],
            None => vec![],
        };
        let (app_url, system_url) = (backends.database_url.expose(), backends.system_database_url.expose());
        let store = store::Store::connect(app_url, system_url, backends.connections)?;
        let (nats_url, redis_url) = (backends.nats_url.expose(), backends.redis_url.expose());
        let bus = bus::Bus::connect(nats_url, redis_url, &backends.namespace).await?;
        let (sandbox, room) = (Sandbox::connect(backends)?, Arc::new(Room::new()));
        Ok(Self {
            store,
            publisher: bus.publisher(),
            bus,
            file_reads: sandbox.files().reads(Arc::clone(&room)),
            sandbox,
            broker: Broker::connect(&config.broker)?,
            forge: Forge::connect(&config.broker)?,
            deliveries: Arc::default(),
            converter: Arc::new(Converter::new(chassis::programs::find(converter::PROGRAM)?)),
            models: config.models.iter().map(|name| model(name)).collect::<Result<_, _>>()?,
            origins: Origins::new(&config.origins, config.listen.ip()),
            unknown_directories: config.unknown_directories,
            platform: platform.into(),
            shutdown: service.shutdown.clone(),
            tasks: service.tasks.clone(),
            ids: Arc::new(Mutex::new(Ids::new(rand::random()))),
            heavy_requests: Arc::new(Shares::new(HEAVY_REQUESTS_MAX, HEAVY_REQUESTS_TENANT_MAX)),
            room,
            quotas: Arc::new(Quotas::new(config.quota.platform_quota())),
        })
    }

    /// The settings above a repository's: the platform's, then the stored ones.
    ///
    /// # Errors
    /// If a stored document cannot be read.
    pub(crate) fn settings_above(&self, stored: &[StoredSettings]) -> Result<Vec<Document>, Problems> {
        let stored = stored.iter().map(|stored| standing::stored(stored.level, &stored.document));
        self.platform.iter().cloned().map(Ok).chain(stored).collect()
    }

    /// Waits until a tenant may make a heavy request. The request holds the permit until it ends.
    ///
    /// # Errors
    /// `requests_too_many`.
    pub(crate) async fn heavy_request(&self, tenant: TenantId) -> Result<Permit, Error> {
        Ok(self.heavy_requests.acquire(tenant, HEAVY_REQUEST_WAIT).await?)
    }

    /// Tells workers that a session has an input. This is a hint: the sweeper finds the session without it.
    pub(crate) async fn announce(&self, entry: QueueEntry<'_>) {
        if let Err(error) = self.bus.enqueue(entry, Mode::Normal).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "cannot announce an input in Redis; the sweeper will find it");
        }
        self.bus.ring();
    }

    /// Makes an id with `make`, for example `SessionId::make`.
    pub(crate) fn id<T>(&self, make: impl FnOnce(&mut Ids, Timestamp) -> T) -> T {
        make(&mut self.ids.lock().unwrap_or_else(PoisonError::into_inner), now())
    }
}

fn model(name: &str) -> anyhow::Result<ModelRef> {
    let (provider_id, model_id) =
        name.split_once('/').with_context(|| format!("{name:?} is not provider/model"))?;
    Ok(ModelRef { provider_id: provider_id.to_owned(), model_id: model_id.to_owned() })
}

/// The wall clock, for display.
pub(crate) fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
