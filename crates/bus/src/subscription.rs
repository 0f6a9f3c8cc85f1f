//! A subscription that NATS may not be able to take yet: it begins as soon as it can, and nobody waits long for it. While
//! the client reconnects it takes a bounded number of commands and then none, so to subscribe may last as long as NATS
//! is away.

use crate::error::Error;
use async_nats::{Client, Message, Subscriber, connection};
use domain::limits;
use futures::{StreamExt as _, future::BoxFuture};
use std::time::Duration;

/// What is subscribed to, from the first try on.
pub(crate) struct Subscription(State);

enum State {
    /// Kept between two polls: whoever stops waiting for it loses nothing.
    Joining(BoxFuture<'static, Result<Subscriber, Error>>),
    Joined(Subscriber),
    /// The client is closed.
    Over,
}

/// What is heard.
pub(crate) enum Heard {
    /// The subscription works from now on; what was said before it is lost.
    Joined,
    Message(Message),
}

/// When a subscription counts as begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    /// When the client will tell the server of it before anything that this process says later.
    Queued,
    /// When the server was told.
    Sent,
}

impl Subscription {
    /// Begins to subscribe, and waits for it at most `wait`: see [`Subscription::is_joined`].
    ///
    /// # Errors
    /// `Subscribe` when the client is closed.
    pub(crate) async fn begin(
        nats: &Client,
        subject: String,
        (begun, wait): (Begun, Duration),
    ) -> Result<Self, Error> {
        let mut joining: BoxFuture<'static, _> = Box::pin(join(nats.clone(), subject, begun));
        Ok(Self(match tokio::time::timeout(wait, &mut joining).await {
            Ok(subscriber) => State::Joined(subscriber?),
            Err(_) => State::Joining(joining),
        }))
    }

    /// Whether it works already.
    pub(crate) fn is_joined(&self) -> bool {
        matches!(self.0, State::Joined(_))
    }

    /// Waits for what comes next; `None` when the client is closed. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Heard> {
        match &mut self.0 {
            State::Joined(subscriber) => subscriber.next().await.map(Heard::Message),
            State::Joining(joining) => match joining.await {
                Ok(subscriber) => {
                    self.0 = State::Joined(subscriber);
                    Some(Heard::Joined)
                }
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "subscribe");
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

async fn join(nats: Client, subject: String, begun: Begun) -> Result<Subscriber, Error> {
    // Not even queued meanwhile: thousands of readers that come and go would fill the client's queue.
    while nats.connection_state() == connection::State::Disconnected {
        tokio::time::sleep(Duration::from_millis(limits::NATS_LOOK_MS)).await;
    }
    let subscriber = nats.subscribe(subject).await?;
    if begun == Begun::Sent {
        nats.flush().await?;
    }
    Ok(subscriber)
}
