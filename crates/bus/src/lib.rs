//! NATS and Redis: the ready queue, wake-ups, live events and deltas. Everything here may be lost at any moment; Postgres holds
//! the truth and repairs the loss.

pub mod control;
pub mod doorbell;
pub mod error;
pub mod feed;
pub mod queue;
pub mod terminals;
pub mod tickets;
pub mod visits;
pub mod warm_up;

mod hints;
mod outgoing;
mod subjects;
mod subscription;

use error::Error;
use hints::Hints;
use std::time::Duration;

/// Unread messages of one subscription; the client drops further ones, as for the news queue.
const NATS_RECEIVE_QUEUE_MAX: usize = 1_024;
/// Timeout of Redis, for a response and for a connection; milliseconds.
const REDIS_ANSWER_MS: u64 = 1_000;

/// Both connections. Clones share them.
#[derive(Debug, Clone)]
pub struct Bus {
    nats: async_nats::Client,
    redis: redis::aio::ConnectionManager,
    namespace: String,
    hints: Hints,
}

impl Bus {
    /// Creates both connections in the background: this succeeds even while the servers are down, and the clients retry
    /// forever. `namespace` separates stacks that share the servers; letters and digits.
    ///
    /// # Errors
    /// `Namespace`, and `NatsUrl`, `Nats` or `Redis` for a malformed URL.
    pub async fn connect(nats_url: &str, redis_url: &str, namespace: &str) -> Result<Self, Error> {
        if namespace.is_empty() || !namespace.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(Error::Namespace(namespace.to_owned()));
        }
        let address: async_nats::ServerAddr = nats_url.parse().map_err(Error::NatsUrl)?;
        let mut options = async_nats::ConnectOptions::new()
            .retry_on_initial_connect()
            .max_reconnects(None)
            .subscription_capacity(NATS_RECEIVE_QUEUE_MAX);
        // The client ignores credentials in the URL.
        if let (Some(user), Some(password)) = (address.username(), address.password()) {
            options = options.user_and_password(user.to_owned(), password.to_owned());
        }
        let nats = options.connect(address).await?;
        let timeout = Duration::from_millis(REDIS_ANSWER_MS);
        let config = redis::aio::ConnectionManagerConfig::new()
            .set_response_timeout(Some(timeout))
            .set_connection_timeout(Some(timeout))
            .set_number_of_retries(1);
        let redis =
            redis::aio::ConnectionManager::new_lazy_with_config(redis::Client::open(redis_url)?, config)?;
        let hints = Hints::start(nats.clone(), subjects::wake(namespace));
        Ok(Self { nats, redis, namespace: namespace.to_owned(), hints })
    }

    /// Checks that NATS is connected.
    ///
    /// # Errors
    /// `Down`.
    pub fn ping_nats(&self) -> Result<(), Error> {
        match self.nats.connection_state() {
            async_nats::connection::State::Connected => Ok(()),
            async_nats::connection::State::Pending | async_nats::connection::State::Disconnected => {
                Err(Error::Down("NATS"))
            }
        }
    }

    /// Checks that Redis answers.
    ///
    /// # Errors
    /// `Redis`.
    pub async fn ping_redis(&self) -> Result<(), Error> {
        let mut redis = self.redis.clone();
        redis::cmd("PING").query_async::<String>(&mut redis).await?;
        Ok(())
    }
}
