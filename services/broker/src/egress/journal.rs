//! Notes what sessions reached: a line of audit for each connection, and rows that people read later. Connections of some seconds to one host with
//! one result share a row.

use super::{access::Access, clock::now, key::DoorKey, refusal::Refusal, relay::Relay};
use chassis::telemetry::AUDIT;
use domain::{
    egress::EgressAccess,
    ids::{TenantId, Timestamp},
    secret::SecretName,
};
use rpc::v1::ErrorCode;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use store::{broker::BrokerStore, error::Error};
use tokio::{
    sync::{Mutex as AsyncMutex, OwnedMutexGuard},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// Time for which connections gather in a row.
const GATHERING: Duration = Duration::from_secs(2);
/// Hosts that one session reached in this time, and as many refusals, that have rows of their own. Further ones share a row.
const HOSTS_MAX: usize = 100;
/// What stands in place of the host in this row.
const OTHERS: &str = "(others)";
/// Sessions whose rows wait for Postgres. Beyond it rows are lost, and only the lines of audit tell of them.
const SESSIONS_MAX: usize = 20_000;

/// The host and the result of connections.
type Destination = (String, String);

/// What a session did, for its row and its line of audit.
#[derive(Debug)]
struct JournalEntry<'a> {
    /// Empty: the request named none.
    host: &'a str,
    /// Bytes to the host and from it.
    bytes: u64,
    duration: Duration,
    /// The code of the refusal; `None`: it went through and ended.
    code: Option<ErrorCode>,
    /// What opened the host, if it was a server of git.
    credential: Option<&'a CredentialUse>,
}

/// A secret that was shown to a server of git.
#[derive(Debug)]
pub(super) struct CredentialUse {
    /// The prefix that the settings name.
    pub(super) prefix: String,
    pub(super) secret: SecretName,
    pub(super) version: u64,
}

/// One access of a session. The journal notes it when the record is dropped.
pub(super) struct JournalRecord {
    key: DoorKey,
    journal: Arc<Journal>,
    pub(super) relay: Arc<Relay>,
    begun_at: Instant,
    /// Bytes of the relay before.
    bytes_before: u64,
    pub(super) host: String,
    pub(super) credential: Option<CredentialUse>,
    pub(super) code: Option<ErrorCode>,
}

impl JournalRecord {
    /// Begins a record. Dropped now, it has this code.
    pub(super) fn begin(key: &DoorKey, journal: &Arc<Journal>, relay: &Arc<Relay>, code: ErrorCode) -> Self {
        Self {
            key: key.clone(),
            journal: Arc::clone(journal),
            relay: Arc::clone(relay),
            begun_at: Instant::now(),
            bytes_before: relay.bytes(),
            host: String::new(),
            credential: None,
            code: Some(code),
        }
    }

    pub(super) fn tenant(&self) -> TenantId {
        self.key.tenant
    }
}

impl Drop for JournalRecord {
    fn drop(&mut self) {
        let entry = JournalEntry {
            host: &self.host,
            bytes: self.relay.bytes().saturating_sub(self.bytes_before),
            duration: self.begun_at.elapsed(),
            code: self.code,
            credential: self.credential.as_ref(),
        };
        self.journal.add(&self.key, &entry);
    }
}

/// The rows of each session that wait to be stored.
type WaitingRows = HashMap<DoorKey, BTreeMap<Destination, EgressAccess>>;

/// What waits to be stored.
#[derive(Debug, Default)]
pub(super) struct Journal {
    waiting: Mutex<WaitingRows>,
    storing: Arc<AsyncMutex<()>>,
}

/// The right to store rows. Only one task has it, so rows that an earlier task took are stored when the next one begins.
#[derive(Debug)]
pub(super) struct StoringTurn(#[expect(dead_code, reason = "held until it is dropped")] OwnedMutexGuard<()>);

impl Journal {
    /// Notes a connection that has ended.
    pub(super) fn note(&self, key: &DoorKey, access: &Access) {
        let code = access.refusal.as_ref().map(Refusal::code);
        let host = access.host.as_ref().map_or("", |host| host.as_str());
        let Access { bytes, duration, .. } = *access;
        self.add(key, &JournalEntry { host, bytes, duration, code, credential: None });
    }

    /// Notes what a session did.
    fn add(&self, key: &DoorKey, entry: &JournalEntry<'_>) {
        let JournalEntry { host, bytes, duration, credential, .. } = *entry;
        let code = entry.code.map(ErrorCode::as_str);
        let duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        tracing::info!(
            target: AUDIT,
            {
                tenant.id = %key.tenant,
                session.id = %key.session,
                host,
                bytes,
                duration_ms,
                git.prefix = credential.map(|used| used.prefix.as_str()),
                secret.name = credential.map(|used| used.secret.as_str()),
                secret.version = credential.map(|used| used.version),
                error.code = code,
            },
            "a session used the network"
        );
        metrics::counter!("flotilla_broker_egress_total", "code" => code.unwrap_or("ok")).increment(1);
        metrics::counter!("flotilla_broker_egress_bytes_total").increment(bytes);
        let mut waiting = self.lock();
        if waiting.len() >= SESSIONS_MAX && !waiting.contains_key(key) {
            metrics::counter!("flotilla_broker_egress_rows_lost_total").increment(1);
            return;
        }
        let rows = waiting.entry(key.clone()).or_default();
        let mut destination = (host.to_owned(), code.unwrap_or_default().to_owned());
        // Refusals do not push out what was reached.
        let alike = rows.keys().filter(|(_, other)| other.is_empty() == code.is_none()).count();
        if alike >= HOSTS_MAX && !rows.contains_key(&destination) {
            OTHERS.clone_into(&mut destination.0);
        }
        let fresh = || EgressAccess {
            began_at: Timestamp(now().0.saturating_sub_unsigned(duration_ms)),
            host: destination.0.clone(),
            code: destination.1.clone(),
            connections: 0,
            bytes: 0,
        };
        let row = rows.entry(destination.clone()).or_insert_with(fresh);
        row.connections += 1;
        row.bytes += bytes;
    }

    /// The codes of what was noted.
    #[cfg(test)]
    pub(super) fn codes(&self) -> Vec<String> {
        let waiting = self.lock();
        waiting.values().flat_map(|rows| rows.keys().map(|(_, code)| code.clone())).collect()
    }

    /// Stores what was noted, until the service stops.
    pub(super) async fn store(&self, store: &BrokerStore, shutdown: &CancellationToken) {
        while shutdown.run_until_cancelled(tokio::time::sleep(GATHERING)).await.is_some() {
            self.flush(store).await;
        }
    }

    pub(super) async fn flush(&self, store: &BrokerStore) {
        let keys: Vec<DoorKey> = self.lock().keys().cloned().collect();
        for key in keys {
            // Somebody who reads the log of one session waits for one transaction, and not for those of all sessions.
            let turn = self.storing_turn().await;
            // The rows that are lost are counted.
            drop(self.store_session(store, &key, turn).await);
        }
    }

    /// Waits for the right to store rows. Cancel-safe.
    pub(super) async fn storing_turn(&self) -> StoringTurn {
        StoringTurn(Arc::clone(&self.storing).lock_owned().await)
    }

    /// Stores what was noted of one session.
    ///
    /// # Errors
    /// Those of the store. The rows are lost.
    ///
    /// Dropped midway: the rows may be lost, so call it from a task.
    pub(super) async fn store_session(
        &self,
        store: &BrokerStore,
        key: &DoorKey,
        _turn: StoringTurn,
    ) -> Result<(), Error> {
        let Some(rows) = self.lock().remove(key) else { return Ok(()) };
        let mut rows: Vec<EgressAccess> = rows.into_values().collect();
        rows.sort_by_key(|row| row.began_at);
        match store.add_egress(key.tenant, &key.session, &rows).await {
            // The session was deleted meanwhile.
            Ok(()) | Err(Error::NotFound(_)) => Ok(()),
            Err(error) => {
                let lost = rows.len() as u64;
                metrics::counter!("flotilla_broker_egress_rows_lost_total").increment(lost);
                let cause = &error as &dyn std::error::Error;
                tracing::warn!(error = cause, lost, "rows about the network use of a session are lost");
                Err(error)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, WaitingRows> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
