//! Bundles: unreadable until complete, never mixed, immutable afterwards, and removed when nobody needs them.

use crate::world::World;
use domain::{
    limits::BUNDLE_PIECE_BYTES,
    session::{Origin, Source},
};
use store::{
    control::bundles::BundlePass,
    error::{Entity, Error},
    session::creation::NewSession,
    tenant::{
        bundle_writer::BundleWriter,
        bundles::{BundleHead, Upload, UploadContent},
    },
};
use testkit::sample::NOW;

/// Uploads the pieces, and gives the bundle its name.
async fn upload(world: &World, sha256: &str, pieces: &[&[u8]]) {
    let upload = put(world, pieces).await;
    finish(world, &upload, sha256, pieces).await.unwrap();
}

async fn put(world: &World, pieces: &[&[u8]]) -> Upload {
    let upload = world.store.begin_upload(world.tenant).await.unwrap();
    for (number, data) in (0..).zip(pieces) {
        world.store.put_upload_piece(&upload, number, data).await.unwrap();
    }
    upload
}

async fn finish(world: &World, upload: &Upload, sha256: &str, pieces: &[&[u8]]) -> Result<(), Error> {
    let size_bytes = pieces.iter().map(|data| data.len() as u64).sum();
    world.store.finish_upload(upload, UploadContent { sha256, size_bytes, head: None }).await
}

async fn piece(world: &World, id: &str, number: i32) -> Option<Vec<u8>> {
    world.store.find_bundle_piece(world.tenant, id, number).await.unwrap()
}

#[tokio::test]
async fn a_bundle_exists_once_it_is_complete() {
    let world = World::new().await;
    let (whole, rest) = (vec![1; BUNDLE_PIECE_BYTES], vec![2; 3]);
    let pieces: [&[u8]; 2] = [&whole, &rest];
    let upload = put(&world, &pieces).await;
    world.store.put_upload_piece(&upload, 1, &rest).await.unwrap();
    assert!(!world.store.has_bundle(world.tenant, "b1").await.unwrap());
    assert_eq!(piece(&world, "b1", 0).await, None);
    assert_eq!(world.store.find_bundle_start(world.tenant, "b1", 5).await.unwrap(), None);

    finish(&world, &upload, "b1", &pieces).await.unwrap();
    assert!(world.store.has_bundle(world.tenant, "b1").await.unwrap());
    let start = world.store.find_bundle_start(world.tenant, "b1", 5).await.unwrap().unwrap();
    assert_eq!((start.bytes, start.created_at.0 > 0), (vec![1; 5], true));
    for (number, want) in [(0, Some(whole)), (1, Some(rest)), (2, None)] {
        assert!(piece(&world, "b1", number).await == want, "piece {number}");
    }
    assert_eq!(world.number("select count(*) from bundle").await, 1, "the upload is no longer there");
}

#[tokio::test]
async fn uploads_of_one_bundle_do_not_mix_and_the_first_one_counts() {
    let world = World::new().await;
    let right: [&[u8]; 1] = [b"right"];
    let (first, second, wrong) =
        (put(&world, &right).await, put(&world, &right).await, put(&world, &[b"wrong"]).await);
    let (one, two) =
        tokio::join!(finish(&world, &first, "b1", &right), finish(&world, &second, "b1", &right));
    one.unwrap();
    two.unwrap();
    world.store.discard_upload(&wrong).await.unwrap();
    assert_eq!(piece(&world, "b1", 0).await.as_deref(), Some(&b"right"[..]));
    let rows = "select (select count(*) from bundle) * 10 + (select count(*) from bundle_piece)";
    assert_eq!(world.number(rows).await, 11, "one bundle, one piece");
}

#[tokio::test]
async fn an_upload_replaces_the_failed_one_of_an_earlier_version() {
    let world = World::new().await;
    let tenant = world.tenant;
    let rows = "insert into bundle (tenant_id, id, size_bytes) select id, 'b1', 10 from tenant;
                insert into bundle_piece (tenant_id, bundle_id, piece, data) select id, 'b1', 0, 'wrong' from tenant;
                insert into bundle_piece (tenant_id, bundle_id, piece, data) select id, 'b1', 1, 'wrong' from tenant";
    world.sql(rows).await;
    assert!(!world.store.has_bundle(tenant, "b1").await.unwrap());
    upload(&world, "b1", &[b"right"]).await;
    assert_eq!(piece(&world, "b1", 0).await.as_deref(), Some(&b"right"[..]));
    assert_eq!(piece(&world, "b1", 1).await, None);
}

#[tokio::test]
async fn an_upload_that_took_too_long_is_removed() {
    let world = World::new().await;
    let (old, recent) = (put(&world, &[b"x"]).await, put(&world, &[b"y"]).await);
    upload(&world, "b1", &[b"z"]).await;
    assert_eq!(world.store.forget_uploads(10).await.unwrap(), 0);
    let age = "update bundle set created_at = now() - interval '25 hours'
                where complete or id = (select min(id) from bundle where not complete)";
    world.sql(age).await;
    assert_eq!(world.store.forget_uploads(10).await.unwrap(), 1);
    let late = world.store.put_upload_piece(&old, 1, b"x").await;
    assert!(matches!(late, Err(Error::Db(_))), "{late:?}");
    let late = finish(&world, &old, "b2", &[b"x"]).await;
    assert!(matches!(late, Err(Error::NotFound(Entity::Bundle))), "{late:?}");
    assert!(!world.store.has_bundle(world.tenant, "b2").await.unwrap());
    finish(&world, &recent, "b3", &[b"y"]).await.unwrap();
    assert!(world.store.has_bundle(world.tenant, "b1").await.unwrap());
}

#[tokio::test]
async fn a_bundle_that_nobody_needs_is_removed_after_a_week() {
    let mut world = World::new().await;
    let tenant = world.tenant;
    let source = |id: &str| Source { origin: Origin::Bundle(id.to_owned()), ..Source::default() };
    for id in ["asked", "project", "recent", "session", "unused"] {
        upload(&world, id, &[b"x"]).await;
    }
    let new = NewSession { source: Some(source("session")), ..world.new_session() };
    let event = world.sample.event();
    world.store.create_session(tenant, &new, &event, NOW).await.unwrap();
    world.store.set_project_source(tenant, &world.project, &source("project")).await.unwrap();
    world.sql("update bundle set used_at = now() - interval '8 days' where id <> 'recent'").await;
    assert!(world.store.has_bundle(tenant, "asked").await.unwrap());

    let pass = world.store.forget_bundles(10).await.unwrap();
    assert_eq!(pass, BundlePass { seen: 3, removed: 1 });
    for (id, want) in
        [("asked", true), ("project", true), ("recent", true), ("session", true), ("unused", false)]
    {
        assert_eq!(world.store.has_bundle(tenant, id).await.unwrap(), want, "{id}");
    }
    assert_eq!(world.store.forget_bundles(10).await.unwrap(), BundlePass { seen: 0, removed: 0 });
    // A deleted session needs no bundle.
    world.store.delete_session(tenant, &new.id).await.unwrap();
    world.sql("update bundle set used_at = now() - interval '8 days'").await;
    assert_eq!(world.store.forget_bundles(10).await.unwrap(), BundlePass { seen: 4, removed: 3 });
    assert!(world.store.has_bundle(tenant, "project").await.unwrap());
}

#[tokio::test]
async fn a_bundle_is_written_as_its_bytes_arrive() {
    let world = World::new().await;
    let mut writer = BundleWriter::begin(&world.store, world.tenant).await.unwrap();
    let (first, rest) = (vec![7; BUNDLE_PIECE_BYTES - 1], [8, 9, 10]);
    writer.add(&first).await.unwrap();
    writer.add(&rest).await.unwrap();
    assert_eq!(writer.size_bytes(), BUNDLE_PIECE_BYTES as u64 + 2);
    let whole = writer.close().await.unwrap();
    let (sha256, size_bytes) = (whole.sha256.clone(), whole.size_bytes);
    assert!(!world.store.has_bundle(world.tenant, &sha256).await.unwrap());
    let id = whole.publish(None).await.unwrap();
    assert_eq!((&id, size_bytes), (&sha256, BUNDLE_PIECE_BYTES as u64 + 2));
    assert_eq!(piece(&world, &id, 0).await, Some([&first[..], &[8]].concat()));
    assert_eq!(piece(&world, &id, 1).await, Some(vec![9, 10]));

    let mut discarded = BundleWriter::begin(&world.store, world.tenant).await.unwrap();
    discarded.add(b"x").await.unwrap();
    discarded.close().await.unwrap().discard().await.unwrap();
    assert_eq!(world.number("select count(*) from bundle").await, 1);
}

#[tokio::test]
async fn a_bundle_is_found_by_where_it_begins() {
    let world = World::new().await;
    let head = |commit: &str, branch: &str, is_whole| BundleHead {
        commit: commit.to_owned(),
        branch: branch.to_owned(),
        is_whole,
    };
    for (number, head) in
        [head("c1", "main", true), head("c1", "main", false), head("c2", "main", false)].iter().enumerate()
    {
        let mut writer = BundleWriter::begin(&world.store, world.tenant).await.unwrap();
        writer.add(&[u8::try_from(number).unwrap()]).await.unwrap();
        writer.close().await.unwrap().publish(Some(head)).await.unwrap();
    }
    let find = async |head: BundleHead| {
        let found = world.store.find_bundle_of(world.tenant, &head).await.unwrap()?;
        Some(piece(&world, &found, 0).await.unwrap()[0])
    };
    assert_eq!(find(head("c1", "main", true)).await, Some(0));
    assert_eq!(find(head("c1", "main", false)).await, Some(0), "more history will do");
    assert_eq!(find(head("c2", "main", false)).await, Some(2));
    assert_eq!(find(head("c2", "main", true)).await, None);
    assert_eq!(find(head("c1", "other", true)).await, None);
    // An upload that is not whole has no head, and one that nobody needs is gone.
    world.sql("update bundle set used_at = now() - interval '8 days'").await;
    world.store.forget_bundles(10).await.unwrap();
    assert_eq!(find(head("c1", "main", true)).await, None);
    let other = World::new().await;
    assert_eq!(other.store.find_bundle_of(other.tenant, &head("c2", "main", false)).await.unwrap(), None);
}
