//! The handle with which a protocol calls the use cases.

use crate::{
    auth::{
        keys::{Credentials, Keys},
        principal::Principal,
    },
    ground::{error::Error, origin::Origins, state::State},
    streams::{feed::Feeds, hub::Hub},
};
use domain::ids::EventId;
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
        let hub = Hub::new(state.store.clone(), state.bus.clone());
        Self { state, hub, feeds, keys }
    }

    /// Finds the principal that acts for a tenant.
    ///
    /// # Errors
    /// Those of [`Keys::authenticate`].
    pub(crate) async fn authenticate(&self, credentials: Credentials<'_>) -> Result<Principal, Error> {
        self.keys.authenticate(credentials).await
    }

    /// Finds the operator.
    ///
    /// # Errors
    /// Those of [`Keys::authenticate_operator`].
    pub(crate) fn authenticate_operator(&self, credentials: Credentials<'_>) -> Result<Principal, Error> {
        self.keys.authenticate_operator(credentials)
    }

    /// Looks all keys up again, after a change of a key or of a tenant's limits.
    pub(in crate::app) fn forget_keys(&self) {
        self.keys.forget();
    }

    /// The web pages that may call.
    pub(crate) fn origins(&self) -> &Origins {
        &self.state.origins
    }

    /// Cancelled when the gateway stops. Long responses end then.
    pub(crate) fn shutdown(&self) -> &CancellationToken {
        &self.state.shutdown
    }

    /// An id for an event that a protocol makes for its own clients, such as a heartbeat.
    pub(crate) fn event_id(&self) -> EventId {
        self.state.id(EventId::make)
    }
}
