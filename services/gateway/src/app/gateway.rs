//! The handle with which a protocol calls the use cases.

use crate::{
    auth::{
        keys::{Credentials, Keys},
        live_keys::LiveKeys,
        origin::Origins,
        principal::Principal,
    },
    errors::error::Error,
    memory::{
        room::{Room, StreamRoom},
        taken_room::TakenRoom,
    },
    scope::Scope,
    state::State,
    streams::{feed::Feeds, hub::Hub},
};
use chassis::tasks::Tasks;
use domain::ids::{EventId, TenantId};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// A handle to the gateway; clones are cheap. Its state is private to the use cases.
#[derive(Clone)]
pub(crate) struct Gateway {
    pub(in crate::app) state: State,
    pub(in crate::app) hub: Hub,
    pub(in crate::app) feeds: Feeds,
    keys: Keys,
}

impl Gateway {
    /// Creates a gateway from these connections.
    pub(crate) fn new(state: State, feeds: Feeds, keys: Keys) -> Self {
        let hub = Hub::new(&state);
        Self { state, hub, feeds, keys }
    }

    /// Finds the principal that acts for a tenant, and notes that the tenant is active.
    ///
    /// # Errors
    /// Those of [`Keys::authenticate`].
    pub(crate) async fn authenticate(&self, credentials: Credentials<'_>) -> Result<Principal, Error> {
        let principal = self.keys.authenticate(credentials).await?;
        if let Ok(tenant) = principal.tenant(Scope::Read) {
            self.state.room.note_request(tenant);
        }
        Ok(principal)
    }

    /// Finds the operator.
    ///
    /// # Errors
    /// Those of [`Keys::authenticate_operator`].
    pub(crate) fn authenticate_operator(&self, credentials: Credentials<'_>) -> Result<Principal, Error> {
        self.keys.authenticate_operator(credentials)
    }

    /// Takes room for a page of messages until the answer is sent.
    ///
    /// # Errors
    /// `requests_too_many`, `scope_missing`.
    pub(crate) async fn take_page_room(&self, principal: &Principal, taken: &TakenRoom) -> Result<(), Error> {
        taken.keep(self.state.room.for_page(principal.tenant(Scope::Read)?).await?);
        Ok(())
    }

    /// The room of this process.
    pub(crate) fn room(&self) -> Arc<Room> {
        Arc::clone(&self.state.room)
    }

    /// Begins a stream to a caller, and gives its room.
    ///
    /// # Errors
    /// `scope_missing`, `streams_too_many`.
    pub(crate) async fn begin_stream(
        &self,
        principal: &Principal,
        taken: &TakenRoom,
    ) -> Result<StreamRoom, Error> {
        StreamRoom::begin(self.room(), principal.tenant(Scope::Read)?, taken.clone()).await
    }

    /// Takes room for a large body until the request is answered. `None`: the caller acts for no tenant.
    ///
    /// # Errors
    /// `requests_too_many`.
    pub(crate) async fn take_body_room(
        &self,
        tenant: Option<TenantId>,
        bytes: usize,
        taken: &TakenRoom,
    ) -> Result<(), Error> {
        taken.keep(self.state.room.for_body(tenant, bytes).await?);
        Ok(())
    }

    /// Waits for the turn of a large body that is here, and keeps it until the request is answered. `None`: the caller acts for no tenant.
    ///
    /// # Errors
    /// `requests_too_many`.
    pub(crate) async fn take_turn(&self, tenant: Option<TenantId>, taken: &TakenRoom) -> Result<(), Error> {
        taken.keep(self.state.room.turn(tenant).await?);
        Ok(())
    }

    /// Whether a key is the operator's.
    ///
    /// # Errors
    /// `too_many_attempts`.
    pub(crate) fn is_operators(&self, credentials: Credentials<'_>) -> Result<bool, Error> {
        self.keys.is_operators(credentials)
    }

    /// Looks all keys up again, after a change of a key or of a tenant's limits.
    pub(in crate::app) fn forget_keys(&self) {
        self.keys.forget();
    }

    /// The keys that have open streams.
    pub(crate) fn live_keys(&self) -> &Arc<LiveKeys> {
        self.keys.live()
    }

    /// The web pages that may call.
    pub(crate) fn origins(&self) -> &Origins {
        &self.state.origins
    }

    /// Cancelled when the gateway stops. Long responses end then.
    pub(crate) fn shutdown(&self) -> &CancellationToken {
        &self.state.shutdown
    }

    /// The tasks that outlive the call that started them.
    pub(crate) fn tasks(&self) -> &Tasks {
        &self.state.tasks
    }

    /// An id for an event that a protocol makes for its own clients, such as a heartbeat.
    pub(crate) fn event_id(&self) -> EventId {
        self.state.id(EventId::make)
    }
}
