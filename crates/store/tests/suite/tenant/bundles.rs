//! Bundles: unreadable until complete, and immutable afterwards.

use crate::world::World;
use domain::limits::BUNDLE_PIECE_BYTES;
use store::error::{Entity, Error};

#[tokio::test]
async fn a_bundle_exists_once_it_is_complete() {
    let world = World::new().await;
    let (store, tenant) = (&world.store, world.tenant);
    let (whole, rest) = (vec![1; BUNDLE_PIECE_BYTES], vec![2; 3]);
    let size = whole.len() as u64 + 3;
    store.begin_bundle(tenant, "b1", size).await.unwrap();
    store.put_bundle_piece(tenant, "b1", 0, &whole).await.unwrap();
    store.put_bundle_piece(tenant, "b1", 1, &rest).await.unwrap();
    assert!(!store.has_bundle(tenant, "b1").await.unwrap());
    assert!(matches!(store.get_bundle_size(tenant, "b1").await, Err(Error::NotFound(Entity::Bundle))));
    assert_eq!(store.find_bundle_piece(tenant, "b1", 0).await.unwrap(), None);

    store.complete_bundle(tenant, "b1").await.unwrap();
    assert!(store.has_bundle(tenant, "b1").await.unwrap());
    assert_eq!(store.get_bundle_size(tenant, "b1").await.unwrap(), size);
    for (piece, want) in [(0, Some(whole)), (1, Some(rest)), (2, None)] {
        assert!(store.find_bundle_piece(tenant, "b1", piece).await.unwrap() == want, "piece {piece}");
    }
}

#[tokio::test]
async fn a_restarted_upload_replaces_the_failed_one() {
    let world = World::new().await;
    let (store, tenant) = (&world.store, world.tenant);
    store.begin_bundle(tenant, "b1", 2 * BUNDLE_PIECE_BYTES as u64).await.unwrap();
    for piece in 0..2 {
        store.put_bundle_piece(tenant, "b1", piece, b"wrong").await.unwrap();
    }
    store.begin_bundle(tenant, "b1", 5).await.unwrap();
    store.put_bundle_piece(tenant, "b1", 0, b"right").await.unwrap();
    store.complete_bundle(tenant, "b1").await.unwrap();
    assert_eq!(store.get_bundle_size(tenant, "b1").await.unwrap(), 5);
    assert_eq!(store.find_bundle_piece(tenant, "b1", 0).await.unwrap().as_deref(), Some(&b"right"[..]));
    assert_eq!(store.find_bundle_piece(tenant, "b1", 1).await.unwrap(), None, "left by the failed upload");
}

#[tokio::test]
async fn a_complete_bundle_is_immutable() {
    let world = World::new().await;
    let (store, tenant) = (&world.store, world.tenant);
    store.begin_bundle(tenant, "b1", 5).await.unwrap();
    store.put_bundle_piece(tenant, "b1", 0, b"right").await.unwrap();
    store.complete_bundle(tenant, "b1").await.unwrap();
    store.begin_bundle(tenant, "b1", 7).await.unwrap();
    store.put_bundle_piece(tenant, "b1", 0, b"another").await.unwrap();
    assert_eq!(store.get_bundle_size(tenant, "b1").await.unwrap(), 5);
    assert_eq!(store.find_bundle_piece(tenant, "b1", 0).await.unwrap().as_deref(), Some(&b"right"[..]));
}

#[tokio::test]
async fn a_piece_without_a_bundle_is_refused() {
    let world = World::new().await;
    assert!(matches!(world.store.put_bundle_piece(world.tenant, "b1", 0, b"x").await, Err(Error::Db(_))));
}
