//! The cost of one round trip to each server on this machine at this moment, as the baseline for our latencies.

use crate::bench::samples::Samples;
use sqlx::Connection as _;
use std::time::Instant;

/// Round trips to each server.
#[derive(Debug, Default)]
pub struct RoundTrips {
    /// One inserted row, durable.
    pub commit: Samples,
    /// One command to Redis.
    pub redis: Samples,
    /// From one NATS client to another.
    pub nats: Samples,
}

/// Measures private servers in `directory`, `rounds` times each.
pub async fn measure(directory: &std::path::Path, rounds: usize) -> RoundTrips {
    let servers =
        local::stack::start(directory, local::options::Options::default()).await.expect("private servers");
    let mut raw = RoundTrips::default();
    let mut connection = sqlx::PgConnection::connect(&servers.postgres_url).await.expect("a connection");
    sqlx::query("create table bench (n bigint)").execute(&mut connection).await.expect("a table");
    let bus = bus::Bus::connect(&servers.nats_url, &servers.redis_url, "bench").await.expect("a bus");
    let (tenant, session) = (domain::ids::TenantId(uuid()), "ses_bench".parse().expect("an id"));
    let mut reader = bus.read(tenant, &session).await.expect("a subscription");
    let publisher = bus.publisher();
    for _ in 0..rounds {
        let begun = Instant::now();
        sqlx::query("insert into bench values (1)").execute(&mut connection).await.expect("a commit");
        raw.commit.push(begun.elapsed());
        let begun = Instant::now();
        bus.ping_redis().await.expect("an answer of Redis");
        raw.redis.push(begun.elapsed());
        let begun = Instant::now();
        publisher.publish(tenant, &session, &bus::feed::News::Beat { epoch: 1, seq: 1 });
        reader.next().await.expect("an answer of NATS");
        raw.nats.push(begun.elapsed());
    }
    connection.close().await.expect("a closed connection");
    servers.stop().await.expect("stopped servers");
    raw
}

fn uuid() -> uuid::Uuid {
    uuid::Uuid::from_u128(1)
}
