//! A bus with its own keys and subjects, and a second Redis connection to simulate the passing of time.

use bus::{
    Bus,
    queue::{Claim, Claims, EnqueueResult, Mode, QueueEntry, TenantShare},
};
use domain::{
    ids::{SessionId, TenantId},
    session::Class,
};
use redis::aio::MultiplexedConnection;
use testkit::sample::Sample;

/// A session that a person waits for, of a tenant with a known share.
pub(crate) fn entry(tenant: TenantId, session: &SessionId) -> QueueEntry<'_> {
    QueueEntry { tenant, session, class: Class::Interactive, share: None }
}

pub(crate) struct World {
    pub bus: Bus,
    pub namespace: String,
    pub sample: Sample,
    redis: MultiplexedConnection,
}

impl World {
    /// Creates a bus with a complete queue.
    pub(crate) async fn new() -> Self {
        let world = Self::emptied().await;
        world.bus.complete_rebuild().await.unwrap();
        world
    }

    /// Creates a bus with an emptied Redis.
    pub(crate) async fn emptied() -> Self {
        let (servers, namespace) = (testkit::servers().await, testkit::namespace());
        let bus = Bus::connect(&servers.nats_url, &servers.redis_url, &namespace).await.unwrap();
        let client = redis::Client::open(servers.redis_url.as_str()).unwrap();
        let redis = client.get_multiplexed_async_connection().await.unwrap();
        Self { bus, namespace, sample: Sample::new(1), redis }
    }

    /// Opens a NATS connection for messages that our own code never sends.
    pub(crate) async fn nats(&self) -> async_nats::Client {
        let address: async_nats::ServerAddr = testkit::servers().await.nats_url.parse().unwrap();
        let (user, password) =
            (address.username().unwrap().to_owned(), address.password().unwrap().to_owned());
        async_nats::ConnectOptions::with_user_and_password(user, password).connect(address).await.unwrap()
    }

    pub(crate) fn key(&self, name: &str) -> String {
        format!("{{{}}}:2:{name}", self.namespace)
    }

    /// Returns the number that a command returns, directly or as text.
    /// Returns the number of sessions of the same tenant and class before a waiting one; `None` if it does not wait there.
    pub(crate) async fn position(&self, tenant: TenantId, session: &SessionId, class: Class) -> Option<u64> {
        let ready = self.key(&format!("r:{tenant}:{}", class.to_i16()));
        redis::from_redis_value(self.redis("ZRANK", &[&ready, session.as_str()]).await).unwrap()
    }

    pub(crate) async fn number(&self, command: &str, arguments: &[&str]) -> Option<f64> {
        redis::from_redis_value(self.redis(command, arguments).await).unwrap()
    }

    pub(crate) async fn redis(&self, command: &str, arguments: &[&str]) -> redis::Value {
        let mut command = redis::cmd(command);
        command.arg(arguments);
        command.query_async(&mut self.redis.clone()).await.unwrap()
    }

    /// Creates a worker that lives until it is killed, however slow the test is.
    pub(crate) async fn live(&self, worker: &str) {
        self.bus.renew(worker).await.unwrap();
        self.redis("PERSIST", &[&self.key(&format!("w:{worker}"))]).await;
    }

    /// Simulates the end of a worker's lease.
    pub(crate) async fn kill(&self, worker: &str) {
        self.redis("DEL", &[&self.key(&format!("w:{worker}"))]).await;
    }

    /// Lets `ms` of slot time pass for a worker's sessions, while the worker renews.
    pub(crate) async fn pass(&self, worker: &str, sessions: &[SessionId], mut ms: u64) {
        let held = self.bus.list_held(worker).await.unwrap();
        while ms > 0 {
            // Well below the maximum that one renewal charges.
            let step = ms.min(4_000);
            for Claim { tenant, session } in held.iter().filter(|held| sessions.contains(&held.session)) {
                let lease = self.key(&format!("l:{tenant}:{session}"));
                self.redis("HINCRBY", &[&lease, "paid", &format!("-{step}")]).await;
            }
            self.live(worker).await;
            ms -= step;
        }
    }

    pub(crate) async fn enqueue(&self, tenant: TenantId, session: &SessionId) -> EnqueueResult {
        self.bus.enqueue(entry(tenant, session), Mode::Normal).await.unwrap()
    }

    /// Queues `count` sessions of a class, at the same time.
    pub(crate) async fn fill_class(
        &mut self,
        tenant: TenantId,
        class: Class,
        count: usize,
    ) -> Vec<SessionId> {
        let sessions: Vec<_> = (0..count).map(|_| self.sample.session()).collect();
        for some in sessions.chunks(500) {
            let entries = some.iter().map(|session| QueueEntry { class, ..entry(tenant, session) });
            let queued =
                futures::future::join_all(entries.map(|entry| self.bus.enqueue(entry, Mode::Normal))).await;
            queued.into_iter().for_each(|queued| assert_eq!(queued.unwrap(), EnqueueResult::Queued));
        }
        sessions
    }

    /// Queues one session with its tenant's share.
    pub(crate) async fn share(&mut self, tenant: TenantId, running_max: u32, weight: u32) -> SessionId {
        let session = self.sample.session();
        let share = Some(TenantShare { running_max, weight });
        self.bus.enqueue(QueueEntry { share, ..entry(tenant, &session) }, Mode::Normal).await.unwrap();
        session
    }

    /// Queues `count` sessions of a tenant.
    pub(crate) async fn fill(&mut self, tenant: TenantId, count: usize) -> Vec<SessionId> {
        let mut sessions = vec![];
        for _ in 0..count {
            let session = self.sample.session();
            assert_eq!(self.enqueue(tenant, &session).await, EnqueueResult::Queued);
            sessions.push(session);
        }
        sessions
    }

    pub(crate) async fn claim(&self, worker: &str, count: usize) -> Vec<Claim> {
        match self.bus.claim(worker, count).await.unwrap() {
            Claims::Some(claimed) => claimed,
            Claims::Empty => panic!("the queue is not complete"),
        }
    }

    /// Claims, and returns the sessions.
    pub(crate) async fn claim_sessions(&self, worker: &str, count: usize) -> Vec<SessionId> {
        self.claim(worker, count).await.into_iter().map(|claimed| claimed.session).collect()
    }
}
