//! What can go wrong with what may be lost.

/// An error of the bus. Nothing is lost with it but time.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a namespace.
    #[error("{0:?} is not a namespace: use letters and digits")]
    Namespace(String),
    /// A server is not there.
    #[error("{0} is not connected")]
    Down(&'static str),
    /// Not an address of a NATS server.
    #[error("read the URL of NATS")]
    NatsUrl(#[source] std::io::Error),
    /// NATS could not be reached.
    #[error("connect to NATS")]
    Nats(#[from] async_nats::ConnectError),
    /// A subscription could not be made.
    #[error("subscribe at NATS")]
    Subscribe(#[from] async_nats::SubscribeError),
    /// Pending messages could not be sent.
    #[error("flush to NATS")]
    Flush(#[from] async_nats::client::FlushError),
    /// Redis failed or is not there.
    #[error("ask Redis")]
    Redis(#[from] redis::RedisError),
    /// Redis answered something that no script of ours gives.
    #[error("Redis answered {0:?}")]
    Answer(String),
}
