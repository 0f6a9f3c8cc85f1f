//! The event stream of one subscriber: follow first, then read what is stored, then go live; every gap is repaired from
//! Postgres, so nothing is missed and nothing comes twice.

pub(crate) mod open_parts;

use crate::{
    grpc::from_store,
    hub::{Heard, Line},
    state::State,
};
use domain::{
    event::{self, StoredEvent},
    ids::{SessionId, TenantId},
    limits,
    mutant::{self, Mutant},
};
use open_parts::OpenParts;
use rpc::{
    status::{invalid, unavailable},
    v1::{self, subscribe_response::Item},
};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::{
    sync::{
        broadcast::{self, error::RecvError},
        mpsc,
    },
    time::Instant,
};
use tonic::Status;

/// Time between two looks for the stored text that fills a hole.
pub(crate) const MEND: Duration = Duration::from_millis(500);

/// What a subscriber wants.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    pub(crate) tenant: TenantId,
    pub(crate) session: SessionId,
    pub(crate) from: From,
    /// End after an idle event at this position or later.
    pub(crate) until_idle_after: Option<u64>,
}

/// Where a stream begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    /// After this position.
    After(u64),
    /// With what happens from now on.
    Now,
}

type Answers = mpsc::Sender<Result<v1::SubscribeResponse, Status>>;

/// Reads a cursor that [`cursor`] made.
///
/// # Errors
/// `cursor_invalid`.
pub(crate) fn parse_cursor(text: &str) -> Result<From, Status> {
    if text.is_empty() {
        return Ok(From::After(0));
    }
    let seq = text.strip_prefix("v1.").and_then(|seq| seq.parse().ok());
    seq.map(From::After).ok_or_else(|| invalid("cursor_invalid", "the cursor was not given by this service"))
}

fn cursor(seq: u64) -> String {
    format!("v1.{seq}")
}

/// Begins a stream. It ends when the subscriber leaves, at the wished idle event, or with UNAVAILABLE when the gateway
/// ends: resume with the last cursor.
///
/// # Errors
/// `session_not_found`, `cursor_invalid`, `store_unavailable`.
pub(crate) async fn subscribe(
    state: &State,
    wish: Wish,
) -> Result<mpsc::Receiver<Result<v1::SubscribeResponse, Status>>, Status> {
    // Before anything is read: what is committed later is told. Without NATS it is found by looking.
    let (line, heard) = state.hub.join(wish.tenant, &wish.session).await;
    let head = state.store.get_head(wish.tenant, &wish.session).await.map_err(from_store)?;
    let seen = match wish.from {
        From::Now => head.seq,
        From::After(seq) if seq > head.seq => {
            return Err(invalid(
                "cursor_invalid",
                format!("the cursor is ahead of the session, which has {} events", head.seq),
            ));
        }
        From::After(seq) => seq,
    };
    let (answers, receiver) = mpsc::channel(limits::SUBSCRIBER_QUEUE_MAX);
    let stream = Stream {
        state: state.clone(),
        wish,
        answers,
        seen,
        head: head.seq,
        epoch: head.epoch,
        open: OpenParts::default(),
        _line: line,
    };
    tokio::spawn(stream.run(heard));
    Ok(receiver)
}

struct Stream {
    state: State,
    wish: Wish,
    answers: Answers,
    /// Position of the last event that was sent.
    seen: u64,
    /// Position of the newest event that is known.
    head: u64,
    /// The newest take-over that an event told of: what older loops say is refused.
    epoch: u64,
    open: OpenParts,
    /// Kept, so that it is heard.
    _line: Arc<Line>,
}

/// Why a stream ends.
enum End {
    /// As wished, or the subscriber left.
    Over,
    /// With an error for the subscriber.
    Failed(Status),
}

impl Stream {
    async fn run(mut self, heard: broadcast::Receiver<Arc<Heard>>) {
        let Err(end) = self.follow(heard).await;
        if let End::Failed(status) = end
            && self.answers.send(Err(status)).await.is_err()
        {
            tracing::debug!("the subscriber left before it was told why its stream ends");
        }
    }

    async fn follow(
        &mut self,
        mut heard: broadcast::Receiver<Arc<Heard>>,
    ) -> Result<std::convert::Infallible, End> {
        self.read().await?;
        let (shutdown, answers) = (self.state.shutdown.clone(), self.answers.clone());
        // Waited for over all rounds: to begin to wait, and to end it, costs as much as to bring something.
        let (mut stopping, mut left) = (pin!(shutdown.cancelled()), pin!(answers.closed()));
        let period = Duration::from_millis(limits::STREAM_HEARTBEAT_MS);
        let (mut beat, mut mend_at) = (pin!(tokio::time::sleep(period)), Instant::now());
        loop {
            tokio::select! {
                biased;
                () = &mut stopping => {
                    return Err(End::Failed(unavailable("gateway_stopping", "this gateway ends; resume with the last cursor")));
                }
                () = &mut left => return Err(End::Over),
                next = heard.recv() => match next {
                    Ok(heard) => self.take(&heard).await?,
                    // Too slow for what was told meanwhile.
                    Err(RecvError::Lagged(_)) => self.read().await?,
                    Err(RecvError::Closed) => return Err(closed()),
                },
                () = &mut beat => {
                    self.send(Item::Heartbeat(v1::Heartbeat { event_seq: self.head }), String::new()).await?;
                    beat.as_mut().reset(Instant::now() + period);
                }
                () = tokio::time::sleep_until(mend_at), if self.open.has_holes() => {
                    Box::pin(self.send_open_parts()).await?;
                    mend_at = Instant::now() + MEND;
                }
            }
        }
    }

    async fn take(&mut self, heard: &Heard) -> Result<(), End> {
        match heard {
            Heard::Event(event) if event.seq <= self.seen => Ok(()),
            Heard::Event(event) if event.seq == self.seen + 1 || mutant::on(Mutant::GapUnrepaired) => {
                self.send_event(event.clone()).await
            }
            Heard::Head(seq) if *seq <= self.seen => Ok(()),
            Heard::Event(_) | Heard::Head(_) => Box::pin(self.catch_up()).await,
            Heard::Delta(delta) if delta.epoch < self.epoch && !mutant::on(Mutant::DeltaEpochUnchecked) => {
                Ok(())
            }
            Heard::Delta(delta) => {
                for delta in self.open.fresh(delta) {
                    self.send(Item::Delta(delta), String::new()).await?;
                }
                Ok(())
            }
            Heard::Gone => Err(unread(store::error::Error::NotFound(store::error::Entity::Session))),
            Heard::Closed => Err(closed()),
        }
    }

    /// Sends what is stored and was not sent. Reading takes far more room than waiting, which nearly all streams do at any time:
    /// it is given back at once.
    async fn read(&mut self) -> Result<(), End> {
        Box::pin(async {
            self.catch_up().await?;
            self.send_open_parts().await
        })
        .await
    }

    /// Sends everything that is stored after the last event that was sent; each page is read while the one before is sent.
    async fn catch_up(&mut self) -> Result<(), End> {
        let Wish { tenant, session, .. } = self.wish.clone();
        let mut pages = self.state.store.event_pages(tenant, session, self.seen);
        let mut page = pages.next().await.map_err(unread)?;
        while let Some(events) = page {
            let next = async { pages.next().await.map_err(unread) };
            // A subscriber that leaves waits for no page.
            ((), page) = tokio::try_join!(self.send_events(events), next)?;
        }
        Ok(())
    }

    async fn send_events(&mut self, events: Vec<StoredEvent>) -> Result<(), End> {
        for event in events {
            self.send_event(to_wire(event)).await?;
        }
        Ok(())
    }

    /// A late joiner sees the text so far of the parts that are still streaming. What is stored comes a little later than what
    /// is heard: in between there is a hole, which is filled when the rest is stored.
    async fn send_open_parts(&mut self) -> Result<(), End> {
        let chunks = self.state.store.list_chunks(self.wish.tenant, &self.wish.session, self.epoch).await;
        for chunk in chunks.map_err(unread)? {
            for delta in self.open.chunk(&chunk) {
                self.send(Item::Delta(delta), String::new()).await?;
            }
        }
        Ok(())
    }

    async fn send_event(&mut self, event: v1::Event) -> Result<(), End> {
        self.seen = event.seq;
        self.head = self.head.max(event.seq);
        self.epoch = self.epoch.max(event.epoch);
        self.open.observe(&event.kind, &event.properties_json);
        let is_end =
            event.kind == event::IDLE && self.wish.until_idle_after.is_some_and(|after| event.seq >= after);
        self.send(Item::Event(event), cursor(self.seen)).await?;
        if is_end { Err(End::Over) } else { Ok(()) }
    }

    async fn send(&self, item: Item, cursor: String) -> Result<(), End> {
        let answer = v1::SubscribeResponse { item: Some(item), cursor };
        self.answers.send(Ok(answer)).await.map_err(|_| End::Over)
    }
}

/// An event as it goes to subscribers.
pub(crate) fn to_wire(event: StoredEvent) -> v1::Event {
    v1::Event {
        seq: event.seq,
        epoch: event.epoch,
        kind: event.kind,
        properties_json: event.properties.into_bytes().into(),
        at_ms: event.at.0,
        id: event.id,
    }
}

fn unread(error: store::error::Error) -> End {
    End::Failed(from_store(error))
}

fn closed() -> End {
    End::Failed(unavailable("bus_unavailable", "the connection for events is closed"))
}
