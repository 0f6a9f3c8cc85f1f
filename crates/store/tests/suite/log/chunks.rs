//! Streamed text: fenced, in order, and removed once the parts are complete.

use crate::world::World;
use domain::ids::PartId;
use store::{error::Error, log::chunks::Chunk};
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
    store.delete_chunks(tenant, session, 0).await.unwrap();
    assert_eq!(
        store.list_chunks(tenant, session, 1).await.unwrap(),
        stored,
        "a loop before it deletes none of its chunks"
    );
    store.delete_chunks(tenant, session, 1).await.unwrap();
    assert_eq!(store.list_chunks(tenant, session, 1).await.unwrap(), []);
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
