//! The inbox of a forge.

use crate::world::World;
use store::{
    Page,
    control::deliveries::{DeliveryState, NewDelivery},
};

/// A lease that does not end in a test.
const LEASE_MS: u64 = 600_000;

async fn add(world: &World, guid: &str, thread: &str) -> bool {
    let new = NewDelivery { guid, event: "issue_comment", installation: Some(7), thread, body: b"{}" };
    world.store.add_delivery(new).await.unwrap()
}

async fn claim(world: &World) -> Option<String> {
    world.store.claim_delivery(LEASE_MS).await.unwrap().map(|delivery| delivery.guid)
}

#[tokio::test]
async fn deliveries_of_one_thread_come_in_order_and_others_do_not_wait() {
    let world = World::new().await;
    for (guid, thread) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("n1", ""), ("n2", "")] {
        assert!(add(&world, guid, thread).await);
    }
    assert!(!add(&world, "a1", "a").await, "it is stored already");
    let known = world.store.list_known_deliveries(&["n1", "unknown"]).await.unwrap();
    assert_eq!(known, ["n1"]);
    let mut claimed = vec![];
    while let Some(guid) = claim(&world).await {
        claimed.push(guid);
    }
    assert_eq!(claimed, ["a1", "b1", "n1", "n2"]);
    world.store.finish_delivery("a1", DeliveryState::Done, "a prompt").await.unwrap();
    assert_eq!(claim(&world).await.as_deref(), Some("a2"));
}

#[tokio::test]
async fn a_delivery_comes_again_until_it_is_over() {
    let world = World::new().await;
    let store = &world.store;
    add(&world, "one", "").await;
    let first = store.claim_delivery(0).await.unwrap().unwrap();
    assert_eq!((first.event.as_str(), first.installation, first.attempts), ("issue_comment", Some(7), 0));
    // Its gateway died.
    let second = store.claim_delivery(LEASE_MS).await.unwrap().unwrap();
    assert_eq!((second.guid.as_str(), second.attempts, second.body), ("one", 1, b"{}".to_vec()));
    store.postpone_delivery("one", LEASE_MS, "the forge is away").await.unwrap();
    assert_eq!(claim(&world).await, None);
    store.postpone_delivery("one", 0, "the forge is away").await.unwrap();
    assert_eq!(claim(&world).await.as_deref(), Some("one"));
    store.finish_delivery("one", DeliveryState::Dead, "nobody has it").await.unwrap();
    store.finish_delivery("one", DeliveryState::Done, "too late").await.unwrap();
    let [record] = store.list_deliveries(&Page { limit: 5, cursor: None }).await.unwrap().try_into().unwrap();
    assert_eq!(
        (record.state, record.note.as_str(), record.attempts),
        (DeliveryState::Dead, "nobody has it", 3)
    );
    assert_eq!(store.renew_dead_deliveries(8).await.unwrap(), 0);
    assert_eq!(store.renew_dead_deliveries(7).await.unwrap(), 1);
    assert_eq!(claim(&world).await.as_deref(), Some("one"));
    assert!(!store.renew_delivery("one").await.unwrap(), "it is being processed");
    store.finish_delivery("one", DeliveryState::Ignored, "").await.unwrap();
    assert!(store.renew_delivery("one").await.unwrap());
    assert!(!store.renew_delivery("none").await.unwrap());
}

#[tokio::test]
async fn processed_deliveries_are_listed_in_pages_and_forgotten_after_a_while() {
    let world = World::new().await;
    let store = &world.store;
    for guid in ["one", "two", "three"] {
        add(&world, guid, "").await;
    }
    let page = store.list_deliveries(&Page { limit: 2, cursor: None }).await.unwrap();
    let cursor = page.last().map(|delivery| delivery.seq.to_string());
    let rest = store.list_deliveries(&Page { limit: 2, cursor }).await.unwrap();
    let guids: Vec<_> = page.iter().chain(&rest).map(|delivery| delivery.guid.as_str()).collect();
    assert_eq!(guids, ["three", "two", "one"]);
    store.finish_delivery("one", DeliveryState::Done, "").await.unwrap();
    assert_eq!(store.forget_old_deliveries().await.unwrap(), 0);
    world.sql("update forge_delivery set received_at = now() - interval '15 days'").await;
    assert_eq!(store.forget_old_deliveries().await.unwrap(), 1, "what is not processed stays");
}
