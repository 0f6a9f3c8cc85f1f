//! A subscriber to all sessions of a tenant or of a project, over gRPC: from the feed, and from Postgres what it missed.

use super::{
    Horizon,
    past::Past,
    told::{Told, What},
};
use crate::{events, grpc::from_store, state::State};
use domain::{
    ids::{ProjectId, SessionId, TenantId},
    limits,
};
use rpc::{
    status::{error, invalid, unavailable},
    v1::{self, subscribe_all_response::Item},
};
use std::{collections::HashMap, pin::pin, sync::Arc, time::Duration};
use tokio::{
    sync::{
        broadcast::{self, error::RecvError},
        mpsc,
    },
    time::{Instant, sleep},
};
use tonic::{Code, Status};

/// Begins a cursor of these streams, over gRPC and as the id of an OpenCode event.
pub(crate) const CURSOR: &str = "t1.";
/// Sessions that a resumed stream catches up on; beyond, reading them anew is cheaper than all that happened in them.
const RESUMED_SESSIONS_MAX: usize = 10_000;

type Answers = mpsc::Sender<Result<v1::SubscribeAllResponse, Status>>;

/// What a subscriber wants.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    pub(crate) tenant: TenantId,
    /// The name of the key with which the subscriber came.
    pub(crate) reader: String,
    /// `None`: all.
    pub(crate) project: Option<ProjectId>,
    /// `None`: what happens from now on.
    pub(crate) since: Option<Horizon>,
}

/// Reads a cursor; empty: there is none.
///
/// # Errors
/// `cursor_invalid`.
pub(crate) fn parse_cursor(text: &str) -> Result<Option<Horizon>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    let moment = text.strip_prefix(CURSOR).and_then(|moment| moment.parse().ok());
    moment.map(Some).ok_or_else(|| {
        invalid("cursor_invalid", "the cursor was not given by this service, or by another stream")
    })
}

/// Begins a stream. It ends when the subscriber leaves, or with UNAVAILABLE when the gateway ends: resume with the last cursor.
///
/// # Errors
/// `cursor_invalid`, `cursor_too_old`, `store_unavailable`.
pub(crate) async fn subscribe(
    state: &State,
    wish: Wish,
) -> Result<mpsc::Receiver<Result<v1::SubscribeAllResponse, Status>>, Status> {
    let (feed, told) = state.feeds.join(state, wish.tenant).await;
    let now = feed.horizon();
    let horizon = wish.since.unwrap_or(now);
    if horizon > now {
        return Err(invalid("cursor_invalid", "the cursor is ahead of everything that happened"));
    }
    let (answers, receiver) = mpsc::channel(limits::SUBSCRIBER_QUEUE_MAX);
    let mut subscriber = Subscriber { state: state.clone(), wish, answers, seen: HashMap::new(), horizon };
    let past = match subscriber.wish.since {
        Some(_) => Some(subscriber.past().await?),
        None => None,
    };
    tokio::spawn(async move {
        let ended = subscriber.run((past, now), told).await;
        // Kept as long as its subscriber is.
        drop(feed);
        if let Err(status) = ended
            && subscriber.answers.send(Err(status)).await.is_err()
        {
            tracing::debug!("the subscriber left before it was told why its stream ends");
        }
    });
    Ok(receiver)
}

struct Subscriber {
    state: State,
    wish: Wish,
    answers: Answers,
    /// Positions up to which sessions were told from Postgres.
    seen: HashMap<SessionId, u64>,
    horizon: Horizon,
}

impl Subscriber {
    async fn run(
        &mut self,
        (past, now): (Option<Past>, Horizon),
        mut told: broadcast::Receiver<Arc<Told>>,
    ) -> Result<(), Status> {
        if let Some(past) = past {
            Box::pin(self.resume(past)).await?;
            self.horizon = now;
        }
        let period = Duration::from_millis(limits::STREAM_HEARTBEAT_MS);
        let (shutdown, answers) = (self.state.shutdown.clone(), self.answers.clone());
        // Over all rounds, as in `events`.
        let (mut stopping, mut left) = (pin!(shutdown.cancelled()), pin!(answers.closed()));
        let mut beat = pin!(sleep(period));
        loop {
            tokio::select! {
                biased;
                () = &mut stopping => {
                    return Err(unavailable("gateway_stopping", "this gateway ends; resume with the last cursor"));
                }
                () = &mut left => return Ok(()),
                () = &mut beat => {
                    self.send(v1::SubscribeAllResponse {
                        item: Some(Item::Heartbeat(v1::Heartbeat { event_seq: 0 })),
                        ..Default::default()
                    })
                    .await;
                    beat.as_mut().reset(Instant::now() + period);
                }
                next = told.recv() => match next {
                    Ok(told) => self.forward(&told).await,
                    // Too slow for what was told meanwhile: it is read instead.
                    Err(RecvError::Lagged(_)) => {
                        told = told.resubscribe();
                        let past = Box::pin(self.past()).await?;
                        Box::pin(self.resume(past)).await?;
                    }
                    Err(RecvError::Closed) => {
                        return Err(unavailable("bus_unavailable", "events cannot be followed just now"));
                    }
                },
            }
        }
    }

    /// What was written since the last answer.
    async fn past(&self) -> Result<Past, Status> {
        let Wish { tenant, project, .. } = &self.wish;
        let past =
            Past::since(&self.state, *tenant, project.as_ref(), self.horizon).await.map_err(from_store)?;
        if past.len() > RESUMED_SESSIONS_MAX {
            return Err(error(
                Code::OutOfRange,
                "cursor_too_old",
                format!(
                    "{} sessions changed since the cursor; at most {RESUMED_SESSIONS_MAX} are caught up on: read what you need \
                     anew, and subscribe without a cursor",
                    past.len()
                ),
            ));
        }
        Ok(past)
    }

    async fn resume(&mut self, mut past: Past) -> Result<(), Status> {
        while let Some(page) = past.next(&self.state).await.map_err(from_store)? {
            for event in page.events {
                self.seen.insert(page.session.clone(), event.seq);
                let item = Item::Event(events::to_wire(event));
                self.say(Some(&page.session), Some(&page.project.project), item).await;
            }
            if self.answers.is_closed() {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn forward(&mut self, told: &Told) {
        if !told.is_for(&self.wish.reader, self.wish.project.as_ref()) {
            return;
        }
        self.horizon = told.horizon;
        let session = told.place.session();
        let seen = session.and_then(|session| self.seen.get(session));
        let item = match &told.what {
            What::Event(event) if seen.is_some_and(|seen| event.seq <= *seen) => {
                return;
            }
            What::Event(event) => Item::Event(events::to_wire(event.clone())),
            What::Delta(delta) => Item::Delta(delta.clone()),
            What::Notice(notice) => Item::Notice(v1::Notice {
                id: notice.id.clone(),
                kind: notice.kind.clone(),
                properties_json: notice.properties.get().as_bytes().to_vec(),
            }),
        };
        self.say(session, told.place.directory().map(|directory| &directory.project), item).await;
    }

    async fn say(&self, session: Option<&SessionId>, project: Option<&ProjectId>, item: Item) {
        self.send(v1::SubscribeAllResponse {
            session_id: session.map(ToString::to_string).unwrap_or_default(),
            project_id: project.map(ToString::to_string).unwrap_or_default(),
            item: Some(item),
            ..Default::default()
        })
        .await;
    }

    /// A subscriber that left is noticed by the loop.
    async fn send(&self, answer: v1::SubscribeAllResponse) {
        let cursor = format!("{CURSOR}{}", self.horizon);
        drop(self.answers.send(Ok(v1::SubscribeAllResponse { cursor, ..answer })).await);
    }
}
