//! Streamed text: fenced, in order, and removed once the parts are complete.

use crate::{
    family::waiting,
    world::{World, idle},
};
use domain::{ids::PartId, session::Outcome, wait::Reason};
use store::{error::Error, log::chunks::Chunk, session::park::ParkOutcome};
use testkit::sample::NOW;

#[tokio::test]
async fn chunks_are_read_in_order_and_a_repeated_chunk_changes_nothing() {
    let mut world = World::new().await;
    let running = world.running().await;
    let (store, tenant, session) = (&world.store, world.tenant, &running.session);
    let (first, second) =
        (PartId::make(&mut world.sample.ids, NOW), PartId::make(&mut world.sample.ids, NOW));
    let chunk = |part: &PartId, offset_bytes, text: &str| Chunk {
        part_id: part.clone(),
        offset_bytes,
        text: text.into(),
    };
    let stored = [chunk(&first, 0, "Hé"), chunk(&first, 3, "llo"), chunk(&second, 0, "World")];
    for at in [2, 1, 0, 0] {
        store.append_chunk(tenant, session, 1, &stored[at]).await.unwrap();
    }
    store.append_chunk(tenant, session, 1, &chunk(&first, 0, "another text")).await.unwrap();
    assert_eq!(store.list_chunks(tenant, session, 1).await.unwrap(), stored);
    assert_eq!(store.list_chunks(tenant, session, 2).await.unwrap(), []);
}

#[tokio::test]
async fn the_end_of_a_turn_deletes_its_chunks_and_a_wait_keeps_them() {
    let mut world = World::new().await;
    let (mut waits, mut ends) = (world.actor().await, world.actor().await);
    for actor in [&waits, &ends] {
        let part_id = PartId::make(&mut world.sample.ids, NOW);
        let chunk = Chunk { part_id, offset_bytes: 0, text: "text".to_owned() };
        world.store.append_chunk(world.tenant, actor.session(), 1, &chunk).await.unwrap();
    }
    // The session has an input that the loop has not seen, so the turn goes on.
    let (fence, end) = (ends.next(), idle(Outcome::Done, None));
    let parked = world.store.park(&fence, &[], 0, &end, NOW).await.unwrap();
    assert_eq!(parked, ParkOutcome::NewInput);
    assert_eq!(world.number("select count(*) from part_chunk").await, 2);
    let parked = world.store.park(&fence, &[], 1, &end, NOW).await.unwrap();
    assert!(matches!(parked, ParkOutcome::Parked(_)), "{parked:?}");
    assert_eq!(world.store.list_chunks(world.tenant, ends.session(), 1).await.unwrap(), []);
    world.park_as(&mut waits, 1, &waiting(Reason::Permission, None)).await;
    assert_eq!(world.store.list_chunks(world.tenant, waits.session(), 1).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_stale_epoch_stores_no_chunk() {
    let mut world = World::new().await;
    let running = world.running().await;
    let chunk =
        Chunk { part_id: PartId::make(&mut world.sample.ids, NOW), offset_bytes: 0, text: "late".to_owned() };
    world.store.append_chunk(world.tenant, &running.session, 1, &chunk).await.unwrap();
    world.store.forget_worker(running.worker).await.unwrap();
    let successor = world.worker().await;
    world.take(&running.session, successor).await.unwrap();
    for offset_bytes in [0, 4] {
        let late = Chunk { offset_bytes, ..chunk.clone() };
        let result = world.store.append_chunk(world.tenant, &running.session, 1, &late).await;
        assert!(matches!(result, Err(Error::Fenced)), "{result:?}");
    }
    assert_eq!(world.number("select count(*) from part_chunk").await, 1);
    let unknown = world.sample.session();
    assert!(matches!(world.store.append_chunk(world.tenant, &unknown, 1, &chunk).await, Err(Error::Fenced)));
}
