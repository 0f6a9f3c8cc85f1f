//! Simulated people who answer the agents' requests, one for each tenant: after a while, from another client than the
//! prompt's, and not always.

use super::{
    client::Client,
    history::{Answer, now_us},
    script::LABEL,
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use rpc::v1::PermissionAnswer;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::task::JoinSet;

/// Time between two looks at what is asked.
const LOOK_EVERY: Duration = Duration::from_millis(400);
/// Longest time before an answer; milliseconds.
const THINKS_MS: u64 = 1_500;
/// Share of the requests that get no answer. They count as refused at their deadline.
const IGNORED: f64 = 0.2;
/// How many of the answers to a permission are a refusal.
const REFUSED: f64 = 0.25;

/// Answers everything that agents of a tenant ask, until it is dropped; `answers` takes what was said.
pub async fn answer(client: Client, seed: u64, answers: Arc<Mutex<Vec<Answer>>>) {
    let mut rng = StdRng::seed_from_u64(seed ^ 0x5eed ^ client.tenant as u64);
    let (mut known, mut replies, mut gateway) = (BTreeSet::new(), JoinSet::new(), 0);
    loop {
        gateway += 1;
        for (session_id, request_id) in client.requests(gateway).await {
            if !known.insert(request_id.clone()) || rng.random_bool(IGNORED) {
                continue;
            }
            let said = match request_id.starts_with("que_") {
                true => LABEL,
                false if rng.random_bool(REFUSED) => "reject",
                false => "once",
            };
            let thinks = Duration::from_millis(rng.random_range(0..THINKS_MS));
            let answer = Answer { session_id, request_id, said, ..Answer::default() };
            replies.spawn(say(client.clone(), thinks, answer, Arc::clone(&answers)));
        }
        while replies.try_join_next().is_some() {}
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn say(client: Client, thinks: Duration, answer: Answer, answers: Arc<Mutex<Vec<Answer>>>) {
    tokio::time::sleep(thinks).await;
    let (id, said) = (answer.request_id.clone(), answer.said);
    let at = {
        let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.push(Answer { sent_us: now_us(), ..answer });
        answers.len() - 1
    };
    let was_first = match said {
        "once" => client.reply(&id, PermissionAnswer::Once).await,
        "reject" => client.reply(&id, PermissionAnswer::Reject).await,
        label => client.choose(&id, label).await,
    };
    if was_first {
        answers.lock().unwrap_or_else(PoisonError::into_inner)[at].accepted_us = Some(now_us());
    }
}
