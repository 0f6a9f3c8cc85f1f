//! NATS goes down under a bus in use: callers do not wait, queues do not grow, and everything works again when NATS
//! returns.

use bus::{
    Bus,
    feed::{Delta, News},
};
use domain::ids::{MessageId, PartId};
use futures::FutureExt as _;
use testkit::{
    eventually, namespace,
    proxy::{
        Proxy,
        link::{ConnectionEnd, Rules},
    },
    sample::{NOW, Sample},
    within,
};

/// A bus whose connection to NATS the test controls.
async fn behind_a_proxy() -> (Bus, Proxy) {
    let servers = testkit::servers().await;
    let address = servers.nats_url.split('@').next_back().unwrap().trim_end_matches('/');
    let proxy = Proxy::start(address.parse().unwrap()).await.unwrap();
    let url = servers.nats_url.replace(address, &proxy.address.to_string());
    let bus = Bus::connect(&url, &servers.redis_url, &namespace()).await.unwrap();
    eventually("NATS is connected", async || bus.ping_nats().is_ok()).await;
    (bus, proxy)
}

async fn stop(bus: &Bus, proxy: &Proxy) {
    proxy.set(Rules { refuses: true, ..Rules::default() });
    proxy.cut(ConnectionEnd::Reset);
    eventually("NATS is away", async || bus.ping_nats().is_err()).await;
}

/// Rings and nudges far more often than the client's own queue can hold.
async fn shout(bus: &Bus, sample: &mut Sample) {
    let (tenant, session) = (sample.tenant(), sample.session());
    for _ in 0..10_000 {
        bus.ring();
        bus.nudge(tenant, &session);
        // The sending task drains the queue as far as it can.
        tokio::task::yield_now().await;
    }
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[tokio::test]
async fn rings_and_nudges_do_not_accumulate_during_an_outage() {
    let ((bus, proxy), mut sample) = (behind_a_proxy().await, Sample::new(1));
    let (mut doorbell, mut nudges) = (bus.listen().await.unwrap(), bus.nudges().await.unwrap());
    stop(&bus, &proxy).await;
    let before = tasks();
    shout(&bus, &mut sample).await;
    assert!(tasks() < before + 10, "{} tasks wait for NATS, {before} did before", tasks());
    // A new listener starts at once and receives later messages.
    let mut late = within("a worker starts without NATS", bus.listen()).await.unwrap();
    let mut late_nudges = within("a worker starts without NATS", bus.nudges()).await.unwrap();

    proxy.set(Rules::default());
    eventually("NATS is connected", async || bus.ping_nats().is_ok()).await;
    within("to hear again counts as a ring", late.wait()).await;
    let (tenant, last) = (sample.tenant(), sample.session());
    for nudges in [&mut nudges, &mut late_nudges] {
        within("a nudge is heard among the old ones", async {
            loop {
                bus.nudge(tenant, &last);
                let nudge = nudges.next_nudge();
                if tokio::time::timeout(std::time::Duration::from_millis(50), nudge).await
                    == Ok((tenant, last.clone()))
                {
                    break;
                }
            }
        })
        .await;
    }
    while doorbell.wait().now_or_never().is_some() {}
    bus.ring();
    within("a ring is heard", doorbell.wait()).await;
    while late.wait().now_or_never().is_some() {}
    bus.ring();
    within("a late listener hears the ring", late.wait()).await;
}

#[tokio::test]
async fn a_reader_starts_without_nats_and_joins_when_nats_returns() {
    let ((bus, proxy), mut sample) = (behind_a_proxy().await, Sample::new(1));
    let (tenant, session) = (sample.tenant(), sample.session());
    let mut early = bus.read(tenant, &session).await.unwrap();
    assert!(early.is_joined());
    stop(&bus, &proxy).await;
    shout(&bus, &mut sample).await;
    let before = tasks();
    for _ in 0..1_000 {
        // Subscribers come and go.
        let reader = within("a reader begins", bus.read(tenant, &session)).await.unwrap();
        assert!(!reader.is_joined());
    }
    assert!(tasks() < before + 10, "{} tasks wait for NATS, {before} did before", tasks());
    let mut reader = within("a reader begins", bus.read(tenant, &session)).await.unwrap();
    // A loop polls it together with other futures, and dropping the poll loses nothing.
    assert!(reader.next().now_or_never().is_none());

    proxy.set(Rules::default());
    let joined = within("it joins by itself", reader.next()).await;
    assert!(matches!(joined, Some(News::Joined)), "{joined:?}");
    assert!(reader.is_joined());
    let publisher = bus.publisher();
    publisher.publish(tenant, &session, &News::Beat { epoch: 1, seq: 7 });
    for reader in [&mut reader, &mut early] {
        let news = within("news arrives", reader.next()).await;
        assert!(matches!(news, Some(News::Beat { epoch: 1, seq: 7 })), "{news:?}");
    }
}

#[tokio::test]
async fn a_reader_waits_a_bounded_time_for_a_silent_nats() {
    let ((bus, proxy), mut sample) = (behind_a_proxy().await, Sample::new(1));
    let (tenant, session) = (sample.tenant(), sample.session());
    proxy.set(Rules::half_open());
    // The client still considers itself connected. Messages first fill the network's buffers, and then the client's
    // queue.
    let publisher = bus.publisher();
    let delta = Delta {
        epoch: 1,
        message: MessageId::make(&mut sample.ids, NOW),
        part: PartId::make(&mut sample.ids, NOW),
        offset: 0,
        text: "x".repeat(512 * 1024),
    };
    for _ in 0..32 {
        publisher.publish(tenant, &session, &News::Delta(delta.clone()));
        tokio::task::yield_now().await;
    }
    shout(&bus, &mut sample).await;
    let mut reader = within("a reader begins", bus.read(tenant, &session)).await.unwrap();
    assert!(!reader.is_joined());
    proxy.set(Rules::default());
    let news = within("it joins", reader.next()).await;
    assert!(matches!(news, Some(News::Joined)), "{news:?}");
}
