//! A subscription that begins as soon as NATS accepts it. While the client reconnects, it queues a bounded number of commands
//! and then blocks, so subscribing may take as long as NATS is away. Callers must not wait that long.

use crate::error::Error;
use async_nats::{Client, Message, Subscriber, connection};
use futures::{StreamExt as _, future::BoxFuture};
use std::time::Duration;

/// Interval at which a reader checks whether NATS is back; milliseconds. The check reads one flag.
const NATS_LOOK_MS: u64 = 250;

/// A subscription, from the first attempt on.
pub(crate) struct Subscription(State);

enum State {
    /// Kept between two polls, so a caller that stops waiting loses nothing.
    Joining(BoxFuture<'static, Result<Subscriber, Error>>),
    Joined(Subscriber),
    Over,
}

/// A message of a subscription.
pub(crate) enum Signal {
    /// The subscription works from now on. Earlier messages are lost.
    Joined,
    Message(Message),
}

/// When a subscription counts as started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// The client will send the subscription before every later message of this process.
    Queued,
    /// The server has received the subscription.
    Sent,
}

impl Subscription {
    /// Subscribes, and waits at most `wait` until the subscription has started: see [`Subscription::is_joined`].
    ///
    /// # Errors
    /// `Subscribe` when the client is closed.
    pub(crate) async fn begin(
        nats: &Client,
        subject: String,
        start: Start,
        wait: Duration,
    ) -> Result<Self, Error> {
        let mut joining: BoxFuture<'static, _> = Box::pin(join(nats.clone(), subject, start));
        Ok(Self(match tokio::time::timeout(wait, &mut joining).await {
            Ok(subscriber) => State::Joined(subscriber?),
            Err(_) => State::Joining(joining),
        }))
    }

    /// Begins a subscription that shares the messages with the others of `group`: one of them gets each message. Does not wait.
    pub(crate) fn share(nats: &Client, subject: String, group: &'static str) -> Self {
        Self(State::Joining(Box::pin(join_group(nats.clone(), subject, group))))
    }

    /// Whether the subscription works already.
    pub(crate) fn is_joined(&self) -> bool {
        matches!(self.0, State::Joined(_))
    }

    /// Waits for the next signal; `None` when the client is closed. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Signal> {
        match &mut self.0 {
            State::Joined(subscriber) => subscriber.next().await.map(Signal::Message),
            State::Joining(joining) => match joining.await {
                Ok(subscriber) => {
                    self.0 = State::Joined(subscriber);
                    Some(Signal::Joined)
                }
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "cannot subscribe");
                    self.0 = State::Over;
                    None
                }
            },
            State::Over => None,
        }
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription").field("is_joined", &self.is_joined()).finish()
    }
}

async fn join(nats: Client, subject: String, start: Start) -> Result<Subscriber, Error> {
    wait_for_connection(&nats).await;
    let subscriber = nats.subscribe(subject).await?;
    if start == Start::Sent {
        nats.flush().await?;
    }
    Ok(subscriber)
}

async fn join_group(nats: Client, subject: String, group: &'static str) -> Result<Subscriber, Error> {
    wait_for_connection(&nats).await;
    Ok(nats.queue_subscribe(subject, group.to_owned()).await?)
}

/// Waits until the client is not disconnected. It must queue nothing before: thousands of readers that come and go would fill its queue.
async fn wait_for_connection(nats: &Client) {
    while nats.connection_state() == connection::State::Disconnected {
        tokio::time::sleep(Duration::from_millis(NATS_LOOK_MS)).await;
    }
}
