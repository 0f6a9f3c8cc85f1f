//! The inbox: deliveries are stored before the forge gets its answer, and processed from the table by any gateway, which may die at any line.

use crate::{
    app::{
        gateway::Gateway,
        page::{List, PageRequest},
    },
    auth::principal::Principal,
    errors::{entity::Entity, error::Error},
    scope::Scope,
};
use std::time::Duration;
use store::control::deliveries::{ClaimedDelivery, DeliveryRecord, DeliveryState, NewDelivery};

/// Time for which a gateway processes a delivery before another one may; milliseconds. Longer than the broker takes for all calls.
const CLAIM_MS: u64 = 240_000;
/// Pauses before the next attempt, by the number of those before; milliseconds.
const PAUSES_MS: [u64; 6] = [1_000, 4_000, 15_000, 60_000, 300_000, 900_000];
/// Attempts of a delivery. Then it is dead, until an operator has it tried again.
const ATTEMPTS_MAX: i16 = 12;
/// Longest wait for a ring before the table is read: another gateway may have stored something.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// A delivery as it arrived.
#[derive(Debug)]
pub(crate) struct ReceivedDelivery {
    /// The id that the forge gave it.
    pub(crate) guid: String,
    pub(crate) event: String,
    pub(crate) signature: String,
    pub(crate) installation: Option<u64>,
    /// The repository and the number of what it is about; empty: of no thread.
    pub(crate) thread: String,
    pub(crate) body: Vec<u8>,
}

/// What became of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Processed {
    Done(String),
    /// It asks for nothing.
    Ignored(String),
    /// Nobody can process it as things are.
    Dead(String),
}

/// Checks that the forge has signed a delivery, and stores it. The same one again changes nothing.
///
/// # Errors
/// `signature_invalid`, `forge_app_missing`; `broker_unavailable`, `broker_failed`, `store_unavailable`: the forge must send it again.
pub(crate) async fn receive(gateway: &Gateway, delivery: ReceivedDelivery) -> Result<(), Error> {
    let state = &gateway.state;
    let ReceivedDelivery { guid, event, signature, installation, thread, body } = delivery;
    state.forge.check_delivery(body.clone(), signature).await?;
    let installation = installation.and_then(|id| i64::try_from(id).ok());
    let new = NewDelivery { guid: &guid, event: &event, installation, thread: &thread, body: &body };
    let is_new = state.store.add_delivery(new).await?;
    metrics::counter!("flotilla_deliveries_total", "event" => event, "repeated" => (!is_new).to_string())
        .increment(1);
    state.deliveries.notify_one();
    Ok(())
}

/// Claims the next delivery that is due. `None`: there is none.
///
/// # Errors
/// `store_unavailable`.
pub(crate) async fn claim(gateway: &Gateway) -> Result<Option<ClaimedDelivery>, Error> {
    Ok(gateway.state.store.claim_delivery(CLAIM_MS).await?)
}

/// Waits until a delivery may be due.
pub(crate) async fn wait(gateway: &Gateway) {
    drop(tokio::time::timeout(LOOK, gateway.state.deliveries.notified()).await);
}

/// Notes what became of a delivery. One that failed comes again later, unless it has failed too often.
///
/// # Errors
/// `store_unavailable`: it comes again.
pub(crate) async fn finish(
    gateway: &Gateway,
    delivery: &ClaimedDelivery,
    processed: Result<Processed, Error>,
) -> Result<(), Error> {
    let store = &gateway.state.store;
    let (state, note) = match processed {
        Ok(Processed::Done(note)) => (DeliveryState::Done, note),
        Ok(Processed::Ignored(note)) => (DeliveryState::Ignored, note),
        Ok(Processed::Dead(note)) => (DeliveryState::Dead, note),
        Err(error) if delivery.attempts + 1 >= ATTEMPTS_MAX => (DeliveryState::Dead, failure(&error)),
        Err(error) => {
            let usual = usize::try_from(delivery.attempts).unwrap_or(0).min(PAUSES_MS.len() - 1);
            let wanted = match &error {
                Error::Forge(refusal) => refusal.retry_after,
                _ => None,
            };
            let wanted_ms = wanted.map_or(0, |pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX));
            let pause_ms = PAUSES_MS[usual].max(wanted_ms);
            tracing::info!(
                delivery.guid = delivery.guid,
                code = error.code(),
                "a delivery comes again: {error}"
            );
            return Ok(store.postpone_delivery(&delivery.guid, pause_ms, &failure(&error)).await?);
        }
    };
    if state == DeliveryState::Dead {
        tracing::warn!(delivery.guid = delivery.guid, "a delivery is dead: {note}");
    }
    metrics::counter!("flotilla_deliveries_processed_total", "state" => state.as_str()).increment(1);
    Ok(store.finish_delivery(&delivery.guid, state, &note).await?)
}

fn failure(error: &Error) -> String {
    format!("{}: {error}", error.code())
}

/// Lists deliveries, the newest first.
///
/// # Errors
/// `operator_only`, `page_too_large`, `cursor_invalid`, `store_unavailable`.
pub(crate) async fn list(
    gateway: &Gateway,
    principal: &Principal,
    page: PageRequest,
) -> Result<List<DeliveryRecord>, Error> {
    principal.require(Scope::Operate)?;
    let page = page.check(|cursor| cursor.parse::<i64>().is_ok())?;
    let deliveries = gateway.state.store.list_deliveries(&page).await?;
    Ok(List::of(&page, deliveries, |delivery| delivery.seq.to_string()))
}

/// Has a delivery processed again.
///
/// # Errors
/// `operator_only`, `delivery_not_found`, `store_unavailable`.
pub(crate) async fn replay(gateway: &Gateway, principal: &Principal, guid: &str) -> Result<(), Error> {
    principal.require(Scope::Operate)?;
    if !gateway.state.store.renew_delivery(guid).await? {
        return Err(Error::NotFound(Entity::Delivery));
    }
    gateway.state.deliveries.notify_one();
    Ok(())
}
