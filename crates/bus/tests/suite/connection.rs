//! The bus without its servers: it starts, names the missing servers, and works once they are back.

use crate::world::entry;
use bus::{
    Bus,
    error::Error,
    feed::News,
    queue::{EnqueueResult, Mode},
};
use testkit::{eventually, namespace, sample::Sample, within};
use tokio::net::{TcpListener, TcpStream};

/// A loopback address without a listener.
async fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

/// The address in a URL with a login.
fn address(url: &str) -> &str {
    url.split('@').next_back().unwrap().trim_end_matches('/')
}

/// Lets connections to `from` through to `to`.
async fn forward(from: &str, to: &'static str) {
    let listener = TcpListener::bind(from).await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut server = TcpStream::connect(to).await.unwrap();
                // Either side may disconnect.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
}

#[tokio::test]
async fn the_bus_reports_missing_servers_and_works_once_they_start() {
    let servers = testkit::servers().await;
    let (nats, redis) = (free_address().await, free_address().await);
    let nats_url = servers.nats_url.replace(address(&servers.nats_url), &nats);
    let redis_url = servers.redis_url.replace(address(&servers.redis_url), &redis);
    let namespace = namespace();
    let connecting = Box::pin(Bus::connect(&nats_url, &redis_url, &namespace));
    let bus = within("it connects without servers", connecting).await.unwrap();
    let mut sample = Sample::new(1);
    let (tenant, session) = (sample.tenant(), sample.session());

    assert!(matches!(bus.ping_nats(), Err(Error::Down("NATS"))));
    assert!(matches!(within("Redis is given up", bus.ping_redis()).await, Err(Error::Redis(_))));
    let enqueued = within("Redis is given up", bus.enqueue(entry(tenant, &session), Mode::Normal)).await;
    assert!(matches!(enqueued, Err(Error::Redis(_))), "{enqueued:?}");
    let mut reader = within("NATS is given up", bus.read(tenant, &session)).await.unwrap();
    assert!(!reader.is_joined());
    let publisher = bus.publisher();
    for seq in 0..20_000 {
        publisher.publish(tenant, &session, &News::Beat { epoch: 1, seq });
    }
    bus.ring();
    bus.nudge(tenant, &session);

    forward(&nats, address(&servers.nats_url)).await;
    forward(&redis, address(&servers.redis_url)).await;
    eventually("NATS is connected", async || bus.ping_nats().is_ok()).await;
    eventually("Redis answers", async || bus.ping_redis().await.is_ok()).await;
    bus.complete_rebuild().await.unwrap();
    assert_eq!(bus.enqueue(entry(tenant, &session), Mode::Normal).await.unwrap(), EnqueueResult::Queued);
    within("the subscription made before works", async {
        loop {
            publisher.publish(tenant, &session, &News::Beat { epoch: 9, seq: 9 });
            if let Some(News::Beat { epoch: 9, .. }) = reader.next().await {
                break;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn invalid_urls_are_refused_at_once() {
    let servers = testkit::servers().await;
    for namespace in ["", "a.b", "a b", "a>", "ä"] {
        let result = Bus::connect(&servers.nats_url, &servers.redis_url, namespace).await;
        assert!(matches!(result, Err(Error::Namespace(_))), "{namespace:?}");
    }
    assert!(matches!(Bus::connect(&servers.nats_url, "no url", "a").await, Err(Error::Redis(_))));
    assert!(Bus::connect("nats://[", &servers.redis_url, "a").await.is_err());
}

#[tokio::test]
async fn the_bus_is_healthy_with_its_servers() {
    let servers = testkit::servers().await;
    let bus = Bus::connect(&servers.nats_url, &servers.redis_url, &namespace()).await.unwrap();
    eventually("NATS is connected", async || bus.ping_nats().is_ok()).await;
    bus.ping_redis().await.unwrap();
}
