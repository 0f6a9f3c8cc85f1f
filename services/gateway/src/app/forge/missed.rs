//! Deliveries that the forge could not send: a gateway looks for them, and has the forge send them again.

use crate::{app::gateway::Gateway, errors::error::Error, state::now};
use domain::{
    ids::Timestamp,
    pull_request::missed::{self, Attempt, KEPT_MS, Look},
};
use rpc::v1::{ListDeliveryAttemptsRequest, RepeatDeliveryAttemptRequest};
use std::collections::HashSet;

/// The chore of the fleet.
const CHORE: &str = "missed deliveries";
/// Pages of attempts that one look reads. Older ones are left out, and the log says so.
const PAGES_MAX: usize = 100;

/// The looks of one gateway.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// How far the next one goes back; `None`: as far as the forge remembers.
    back_to: Option<Timestamp>,
}

impl Looks {
    /// Looks once, if a look is due in the fleet. Returns the number of deliveries that the forge is to send again.
    ///
    /// # Errors
    /// `store_unavailable`; those of the broker. The next look does it again.
    pub(crate) async fn look(&mut self, gateway: &Gateway, period_ms: u64) -> Result<usize, Error> {
        let state = &gateway.state;
        if !state.store.claim_chore(CHORE, period_ms).await? {
            return Ok(0);
        }
        let began_at = now();
        let back_to = self.back_to.unwrap_or(Timestamp(began_at.0 - KEPT_MS));
        let attempts = read(gateway, back_to).await?;
        let guids: Vec<&str> = attempts.iter().map(|attempt| attempt.guid.as_str()).collect();
        let known: HashSet<String> = state.store.list_known_deliveries(&guids).await?.into_iter().collect();
        let Look { repeat, back_to } = missed::look(&attempts, &known, began_at);
        for attempt_id in &repeat {
            state.forge.repeat_attempt(RepeatDeliveryAttemptRequest { attempt_id: *attempt_id }).await?;
        }
        self.back_to = Some(back_to);
        Ok(repeat.len())
    }
}

/// Reads the attempts since `back_to`.
async fn read(gateway: &Gateway, back_to: Timestamp) -> Result<Vec<Attempt>, Error> {
    let (mut attempts, mut cursor) = (vec![], String::new());
    for _ in 0..PAGES_MAX {
        let page = gateway.state.forge.list_attempts(ListDeliveryAttemptsRequest { cursor }).await?;
        let at = |ms: u64| Timestamp(i64::try_from(ms).unwrap_or(i64::MAX));
        let all = page.attempts.into_iter();
        attempts.extend(all.map(|it| Attempt { id: it.id, guid: it.guid, at: at(it.delivered_at_ms) }));
        let is_far_enough = attempts.last().is_none_or(|last| last.at < back_to);
        cursor = page.next_cursor;
        if is_far_enough || cursor.is_empty() {
            return Ok(attempts);
        }
    }
    tracing::warn!(
        "the forge has sent more deliveries than one look for missed ones reads; it leaves out the oldest"
    );
    Ok(attempts)
}
