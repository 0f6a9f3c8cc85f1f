//! The testbed of a measurement: a stack whose services run in this process, its servers, and direct access to them.

mod relay;

pub(crate) use relay::Traffic;

use crate::{DatabaseUrls, Options, Stack};
use relay::Relay;
use sqlx::Connection as _;
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The servers of a measurement.
#[derive(Debug, Clone)]
pub enum Servers {
    /// New servers below this directory. Postgres waits for the disk.
    Own(PathBuf),
    /// The servers that tests share. Postgres does not wait for the disk.
    Shared,
}

/// A stack and its servers.
pub(crate) struct Testbed {
    pub(crate) stack: Stack,
    /// The stack's database, as a superuser.
    postgres_url: String,
    own: Option<local::stack::Stack>,
    /// Between the services and Postgres; `None`: they reach it directly.
    relay: Option<Relay>,
}

/// New servers with a database.
struct OwnServers {
    servers: local::stack::Stack,
    urls: DatabaseUrls,
}

impl OwnServers {
    async fn start(directory: &Path) -> Self {
        let directory = directory.join(testkit::namespace());
        let servers = local::stack::start(&directory, local::options::Options::default())
            .await
            .expect("private servers");
        let key = gateway::admin::Key::New;
        let bootstrap =
            gateway::admin::bootstrap(&servers.postgres_url, "bench", key).await.expect("a database");
        let urls = DatabaseUrls { app: bootstrap.app_url, system: bootstrap.system_url };
        Self { servers, urls }
    }
}

impl Testbed {
    /// Starts a stack, and its servers if it has its own.
    pub(crate) async fn start(servers: &Servers, options: Options) -> Self {
        let Servers::Own(directory) = servers else {
            let stack = Stack::with(options).await;
            return Self { postgres_url: stack.database.migrator_url.clone(), stack, own: None, relay: None };
        };
        Self::start_on(OwnServers::start(directory).await, options).await
    }

    /// Starts a stack on servers of its own.
    async fn start_on(own: OwnServers, options: Options) -> Self {
        let OwnServers { servers, urls } = own;
        let options = Options {
            database_urls: Some(urls),
            redis_url: Some(servers.redis_url.clone()),
            nats_url: Some(servers.nats_url.clone()),
            ..options
        };
        let postgres_url = servers.postgres_url.clone();
        Self { stack: Stack::with(options).await, postgres_url, own: Some(servers), relay: None }
    }

    /// As [`Testbed::start`], with a relay that counts what the services ask of Postgres for the sessions of a tenant.
    pub(crate) async fn start_behind_relay(servers: &Servers, options: Options) -> Self {
        let Servers::Own(directory) = servers else {
            let database = testkit::database().await;
            let urls = DatabaseUrls { app: database.app_url, system: database.system_url };
            let (relay, urls) = Relay::before(&urls).await;
            let stack = Stack::with(Options { database_urls: Some(urls), ..options }).await;
            return Self { stack, postgres_url: database.migrator_url, own: None, relay: Some(relay) };
        };
        let mut own = OwnServers::start(directory).await;
        let (relay, urls) = Relay::before(&own.urls).await;
        own.urls = urls;
        Self { relay: Some(relay), ..Self::start_on(own, options).await }
    }

    /// Takes what the services have asked of Postgres since the last call, if they reach it through a relay.
    pub(crate) fn take_traffic(&self) -> Traffic {
        self.relay.as_ref().map(Relay::take).unwrap_or_default()
    }

    /// Stops the services at once, and then the servers.
    pub(crate) async fn end(self) {
        drop(self.stack);
        if let Some(own) = self.own {
            own.stop().await.expect("stopped servers");
        }
    }

    /// Connects to the stack's database as a superuser.
    pub(crate) async fn postgres(&self) -> sqlx::PgConnection {
        sqlx::PgConnection::connect(&self.postgres_url).await.expect("a connection")
    }

    /// Connects to Postgres as the stack's services do.
    pub(crate) fn store(&self, connections: u32) -> store::Store {
        let settings = &self.stack.settings;
        store::Store::connect(&settings.app_url, &settings.system_url, connections).expect("a store")
    }

    /// Raises the limit of running loops of a tenant.
    pub(crate) async fn raise_limit(&self, tenant_id: &str) {
        let request = rpc::v1::UpdateTenantRequest {
            tenant_id: tenant_id.to_owned(),
            running_max: domain::limits::TENANT_RUNNING_MOST,
            weight: 1,
            ..Default::default()
        };
        self.stack.operator().tenants().update_tenant(request).await.expect("a raised limit");
    }

    /// Waits until a query returns true.
    pub(crate) async fn until_sql(&self, what: &str, query: &'static str) {
        let mut connection = self.postgres().await;
        let begun = Instant::now();
        loop {
            let holds: bool =
                sqlx::query_scalar(query).fetch_one(&mut connection).await.expect("an answer of Postgres");
            if holds {
                return;
            }
            poll_again(begun, what).await;
        }
    }
}

/// Waits until `condition` holds, with a longer time limit than in tests.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        poll_again(begun, what).await;
    }
}

async fn poll_again(begun: Instant, what: &str) {
    assert!(begun.elapsed() < Duration::from_secs(120), "waited two minutes, but it did not happen: {what}");
    tokio::time::sleep(Duration::from_millis(20)).await;
}
