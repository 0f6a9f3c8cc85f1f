//! Simulated people who answer the requests of agents, one for each tenant. They answer after a delay, from a different
//! client than the prompt's, and not always.

use super::{client::Client, script::LABEL};
use crate::faults::history::{Answer, now_us};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use rpc::v1::PermissionAnswer;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::task::JoinSet;

/// Time between two polls of the open requests.
const POLL_INTERVAL: Duration = Duration::from_millis(400);
/// Longest delay before an answer; milliseconds.
const DELAY_MAX_MS: u64 = 1_500;
/// Share of the requests that get no answer. They count as refused at their deadline.
const IGNORED: f64 = 0.2;
/// Share of the permissions that are refused.
const REFUSED: f64 = 0.25;

/// Answers the requests of the agents of a tenant until it is dropped. Records the answers in `answers`.
pub async fn answer(client: Client, seed: u64, answers: Arc<Mutex<Vec<Answer>>>) {
    let mut rng = StdRng::seed_from_u64(seed ^ 0x5eed ^ client.tenant as u64);
    let (mut known, mut replies, mut gateway) = (BTreeSet::new(), JoinSet::new(), 0);
    loop {
        gateway += 1;
        for (session_id, request_id) in client.requests(gateway).await {
            if !known.insert(request_id.clone()) || rng.random_bool(IGNORED) {
                continue;
            }
            let reply = match request_id.starts_with("que_") {
                true => LABEL,
                false if rng.random_bool(REFUSED) => "reject",
                false => "once",
            };
            let delay = Duration::from_millis(rng.random_range(0..DELAY_MAX_MS));
            let answer = Answer { session_id, request_id, reply, ..Answer::default() };
            replies.spawn(send(client.clone(), delay, answer, Arc::clone(&answers)));
        }
        while replies.try_join_next().is_some() {}
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn send(client: Client, delay: Duration, answer: Answer, answers: Arc<Mutex<Vec<Answer>>>) {
    tokio::time::sleep(delay).await;
    let (id, reply) = (answer.request_id.clone(), answer.reply);
    let at = {
        let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.push(Answer { sent_us: now_us(), ..answer });
        answers.len() - 1
    };
    let was_first = match reply {
        "once" => client.reply(&id, PermissionAnswer::Once).await,
        "reject" => client.reply(&id, PermissionAnswer::Reject).await,
        label => client.choose(&id, label).await,
    };
    if was_first {
        answers.lock().unwrap_or_else(PoisonError::into_inner)[at].accepted_us = Some(now_us());
    }
}
