//! Tickets: each is valid once, for a short time, and only at its own stack.

use crate::world::World;
use bus::{Bus, tickets::TICKET_LIFE_S};
use futures::future::join_all;

#[tokio::test]
async fn a_ticket_is_redeemed_only_once() {
    let world = World::new().await;
    world.bus.put_ticket("secret", "a terminal").await.unwrap();
    let brought = join_all((0..20).map(|_| world.bus.take_ticket("secret"))).await;
    let mut let_in = brought.into_iter().filter_map(Result::unwrap);
    assert_eq!((let_in.next().as_deref(), let_in.next()), (Some("a terminal"), None));
}

#[tokio::test]
async fn an_expired_ticket_is_refused() {
    let world = World::new().await;
    world.bus.put_ticket("secret", "a terminal").await.unwrap();
    let key = format!("{}:ticket:secret", world.namespace);
    let left = world.number("TTL", &[&key]).await.unwrap();
    assert!(left > 0.0 && left <= TICKET_LIFE_S as f64, "it lives for {left} s");
    // Simulates an expired ticket.
    world.redis("PEXPIRE", &[&key, "0"]).await;
    assert_eq!(world.bus.take_ticket("secret").await.unwrap(), None);
}

#[tokio::test]
async fn a_ticket_of_another_stack_is_unknown() {
    let (world, servers) = (World::new().await, testkit::servers().await);
    world.bus.put_ticket("secret", "a terminal").await.unwrap();
    let other = Bus::connect(&servers.nats_url, &servers.redis_url, &testkit::namespace()).await.unwrap();
    assert_eq!(other.take_ticket("secret").await.unwrap(), None);
    assert_eq!(world.bus.take_ticket("secre").await.unwrap(), None);
    assert!(world.bus.take_ticket("secret").await.unwrap().is_some());
}
