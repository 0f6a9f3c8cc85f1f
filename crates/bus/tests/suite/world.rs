//! A bus with keys and subjects of its own, and a second way to Redis for what time would do.

use bus::{
    Bus,
    queue::{Claimed, Claims, Enqueued, Mode},
};
use domain::ids::{SessionId, TenantId};
use redis::aio::MultiplexedConnection;
use testkit::sample::Sample;

pub(crate) struct World {
    pub bus: Bus,
    pub namespace: String,
    pub sample: Sample,
    redis: MultiplexedConnection,
}

impl World {
    /// A bus whose queue is complete.
    pub(crate) async fn new() -> Self {
        let world = Self::emptied().await;
        world.bus.complete_rebuild().await.unwrap();
        world
    }

    /// A bus whose Redis was just emptied.
    pub(crate) async fn emptied() -> Self {
        let (servers, namespace) = (testkit::servers().await, testkit::namespace());
        let bus = Bus::connect(&servers.nats_url, &servers.redis_url, &namespace).await.unwrap();
        let client = redis::Client::open(servers.redis_url.as_str()).unwrap();
        let redis = client.get_multiplexed_async_connection().await.unwrap();
        Self { bus, namespace, sample: Sample::new(1), redis }
    }

    /// A way to NATS for what our own code would never send.
    pub(crate) async fn nats(&self) -> async_nats::Client {
        let address: async_nats::ServerAddr = testkit::servers().await.nats_url.parse().unwrap();
        let (user, password) =
            (address.username().unwrap().to_owned(), address.password().unwrap().to_owned());
        async_nats::ConnectOptions::with_user_and_password(user, password).connect(address).await.unwrap()
    }

    pub(crate) fn key(&self, name: &str) -> String {
        format!("{{{}}}:{name}", self.namespace)
    }

    pub(crate) async fn redis(&self, command: &str, arguments: &[&str]) -> redis::Value {
        let mut command = redis::cmd(command);
        command.arg(arguments);
        command.query_async(&mut self.redis.clone()).await.unwrap()
    }

    /// Makes a worker that lives until it is killed, however slow the test is.
    pub(crate) async fn live(&self, worker: &str) {
        self.bus.renew(worker).await.unwrap();
        self.redis("PERSIST", &[&self.key(&format!("w:{worker}"))]).await;
    }

    /// What the end of a worker's lease does.
    pub(crate) async fn kill(&self, worker: &str) {
        self.redis("DEL", &[&self.key(&format!("w:{worker}"))]).await;
    }

    pub(crate) async fn enqueue(&self, tenant: TenantId, session: &SessionId) -> Enqueued {
        self.bus.enqueue(tenant, session, 0, Mode::Normal).await.unwrap()
    }

    /// Queues `count` sessions of a tenant.
    pub(crate) async fn fill(&mut self, tenant: TenantId, count: usize) -> Vec<SessionId> {
        let mut sessions = vec![];
        for _ in 0..count {
            let session = self.sample.session();
            assert_eq!(self.enqueue(tenant, &session).await, Enqueued::Queued);
            sessions.push(session);
        }
        sessions
    }

    pub(crate) async fn claim(&self, worker: &str, count: usize) -> Vec<Claimed> {
        match self.bus.claim(worker, count).await.unwrap() {
            Claims::Some(claimed) => claimed,
            Claims::Empty => panic!("the queue is not complete"),
        }
    }

    /// Claims, and gives the sessions.
    pub(crate) async fn claim_sessions(&self, worker: &str, count: usize) -> Vec<SessionId> {
        self.claim(worker, count).await.into_iter().map(|claimed| claimed.session).collect()
    }
}
