//! The errors of the bus.

/// An error of the bus. It costs time, but no work is lost.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("invalid namespace {0:?}; use letters and digits")]
    Namespace(String),
    /// A server is not connected.
    #[error("{0} is not connected")]
    Down(&'static str),
    /// The URL of NATS is malformed.
    #[error("invalid NATS URL")]
    NatsUrl(#[source] std::io::Error),
    /// NATS could not be reached.
    #[error("cannot connect to NATS")]
    Nats(#[from] async_nats::ConnectError),
    #[error("cannot subscribe at NATS")]
    Subscribe(#[from] async_nats::SubscribeError),
    /// Pending messages could not be sent.
    #[error("cannot flush to NATS")]
    Flush(#[from] async_nats::client::FlushError),
    /// Redis failed or is down.
    #[error("cannot query Redis")]
    Redis(#[from] redis::RedisError),
    /// Redis returned a value that none of our scripts returns.
    #[error("unexpected answer of Redis: {0:?}")]
    Answer(String),
}
