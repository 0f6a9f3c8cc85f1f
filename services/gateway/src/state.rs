//! What every call shares: connections, settings and ids.

use crate::{
    auth::{Principal, attempts::Attempts},
    config::Config,
    feed::Feeds,
    hub::Hub,
};
use anyhow::Context as _;
use bus::queue::{Mode, QueueEntry};
use domain::{
    ids::{Ids, SessionId, Timestamp},
    message::ModelRef,
    session::Class,
};
use rpc::{
    client::Bearer,
    v1::{sandbox_service_client::SandboxServiceClient, terminal_service_client::TerminalServiceClient},
};
use settings::{document::Document, problem::Problems, standing};
use sha2::{Digest as _, Sha256};
use std::sync::{Arc, Mutex, PoisonError};
use store::people::settings::StoredSettings;
use tokio_util::sync::CancellationToken;
use tonic::{service::interceptor::InterceptedService, transport::Channel};

pub(crate) type Sandbox = SandboxServiceClient<InterceptedService<Channel, Bearer>>;
pub(crate) type Terminals = TerminalServiceClient<InterceptedService<Channel, Bearer>>;

/// A handle to everything shared; clones are cheap.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) store: store::Store,
    pub(crate) bus: bus::Bus,
    pub(crate) publisher: bus::feed::Publisher,
    pub(crate) sandbox: Sandbox,
    pub(crate) terminals: Terminals,
    /// Never empty; the first is the default.
    pub(crate) models: Arc<[ModelRef]>,
    pub(crate) operator_sha256: Option<[u8; 32]>,
    pub(crate) attempts: Arc<Attempts>,
    /// Settings that bind every session.
    platform: Arc<[Document]>,
    pub(crate) hub: Hub,
    pub(crate) feeds: Feeds,
    pub(crate) shutdown: CancellationToken,
    ids: Arc<Mutex<Ids>>,
}

impl State {
    pub(crate) async fn connect(config: &Config, shutdown: CancellationToken) -> anyhow::Result<Self> {
        let backends = &config.backends;
        let platform = match backends.read_settings()? {
            Some((file, text)) => vec![standing::platform(&file, &text, &|name| std::env::var(name).ok())?],
            None => vec![],
        };
        let (app_url, system_url) = (backends.database_url.expose(), backends.system_database_url.expose());
        let store = store::Store::connect(app_url, system_url, backends.connections)?;
        let (nats_url, redis_url) = (backends.nats_url.expose(), backends.redis_url.expose());
        let bus = bus::Bus::connect(nats_url, redis_url, &backends.namespace).await?;
        let token = Bearer::new(backends.sandbox_token.expose()).context("use the sandbox token")?;
        let channel = chassis::grpc::channel(&backends.sandbox_url)?;
        let terminals = TerminalServiceClient::with_interceptor(channel.clone(), token.clone());
        let sandbox = SandboxServiceClient::with_interceptor(channel, token);
        Ok(Self {
            hub: Hub::new(store.clone(), bus.clone()),
            store,
            publisher: bus.publisher(),
            bus,
            terminals,
            sandbox: sandbox.max_decoding_message_size(rpc::MESSAGE_BYTES_MAX),
            models: config.models.iter().map(|name| model(name)).collect::<Result<_, _>>()?,
            operator_sha256: config.operator_key.as_ref().map(|key| Sha256::digest(key.expose()).into()),
            attempts: Arc::default(),
            platform: platform.into(),
            feeds: Feeds::default(),
            shutdown,
            ids: Arc::new(Mutex::new(Ids::new(rand::random()))),
        })
    }

    /// The settings above a repository: the platform's, then those that were stored.
    pub(crate) fn above(&self, stored: &[StoredSettings]) -> Result<Vec<Document>, Problems> {
        let stored = stored.iter().map(|stored| standing::stored(stored.level, &stored.document));
        self.platform.iter().cloned().map(Ok).chain(stored).collect()
    }

    /// Tells workers of a session that has an input. Hints only: the sweeper finds the session without them.
    pub(crate) async fn wake(&self, principal: &Principal, session: &SessionId, class: Class) {
        let (tenant, share) = (principal.tenant, Some(principal.share));
        self.announce(QueueEntry { tenant, session, class, share }).await;
    }

    /// As [`State::wake`], for an input that a running loop must see at once: an abort, an answer.
    pub(crate) async fn interrupt(&self, principal: &Principal, session: &SessionId, class: Class) {
        self.bus.nudge(principal.tenant, session);
        self.wake(principal, session, class).await;
    }

    /// As [`State::wake`], for somebody whose tenant's share is not at hand.
    pub(crate) async fn announce(&self, entry: QueueEntry<'_>) {
        if let Err(error) = self.bus.enqueue(entry, Mode::Normal).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "Redis was not told of an input; the sweeper will find it"
            );
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
