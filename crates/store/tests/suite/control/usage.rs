//! What tenants store, and their quotas.

use crate::world::World;
use domain::policy::quota::{TenantQuota, Usage};
use store::{
    Page,
    control::{candidate::SessionRef, tenants::TenantPatch},
    tenant::bundles::UploadContent,
};

async fn usage(world: &World) -> Usage {
    world.store.count_usage(world.tenant).await.unwrap()
}

async fn measure_all(world: &World) {
    for session in world.store.list_unmeasured(10).await.unwrap() {
        while world.store.measure_log(&session).await.unwrap() {}
    }
}

/// What Postgres says about the sizes of the logs.
async fn log_bytes(world: &World) -> u64 {
    let bytes = world.number("select sum(pg_column_size(properties))::bigint from session_event").await;
    u64::try_from(bytes).unwrap()
}

#[tokio::test]
async fn everything_that_a_tenant_stores_is_counted() {
    let mut world = World::new().await;
    let stranger = world.sample.tenant();
    world.store.create_tenant(stranger, "stranger").await.unwrap();
    assert_eq!(usage(&world).await, Usage { sessions: 0, projects: 1, stored_bytes: 0 });
    let (first, _) = (world.session().await, world.session().await);
    world.accept(&first, &"long ".repeat(5_000)).await;
    let upload = world.store.begin_upload(world.tenant).await.unwrap();
    world.store.put_upload_piece(&upload, 0, b"data").await.unwrap();
    assert_eq!(usage(&world).await.stored_bytes, 0, "neither whole nor measured");
    world
        .store
        .finish_upload(&upload, UploadContent { sha256: "b1", size_bytes: 4, head: None })
        .await
        .unwrap();
    assert_eq!(usage(&world).await, Usage { sessions: 2, projects: 1, stored_bytes: 4 });

    measure_all(&world).await;
    let logs = log_bytes(&world).await;
    assert_eq!(usage(&world).await.stored_bytes, logs + 4);
    assert_eq!(world.store.list_unmeasured(10).await.unwrap(), []);
    let of = SessionRef { tenant: world.tenant, session: first.clone() };
    assert!(!world.store.measure_log(&of).await.unwrap());
    world.accept(&first, "more").await;
    assert_eq!(world.store.list_unmeasured(10).await.unwrap(), [of]);
    measure_all(&world).await;
    assert!(log_bytes(&world).await > logs);
    assert_eq!(usage(&world).await.stored_bytes, log_bytes(&world).await + 4, "only what is new is added");

    let none = Usage::default();
    let list = world.store.list_usage(&Page::default()).await.unwrap();
    let list: Vec<_> = list.iter().map(|(tenant, usage)| (tenant.name.as_str(), *usage)).collect();
    assert_eq!(list, [("first", usage(&world).await), ("stranger", none)]);
    assert_eq!(world.store.count_usage(stranger).await.unwrap(), none);
    world.store.delete_session(world.tenant, &first).await.unwrap();
    let after = usage(&world).await;
    // The rows no longer count, although they are still there.
    world.remove_rows(world.tenant).await;
    assert_eq!((after.sessions, after.stored_bytes), (1, log_bytes(&world).await + 4));
}

#[tokio::test]
async fn a_compacted_log_is_measured_again() {
    let mut world = World::new().await;
    let session = world.session().await;
    world.accept(&session, "prompt").await;
    // The same part once more.
    world
        .sql(
            "insert into session_event (tenant_id, session_id, seq, epoch, id, kind, properties)
             select tenant_id, session_id, seq + 1, epoch, 'evt_again', kind, properties from session_event
              where kind = 'message.part.updated'",
        )
        .await;
    world.sql("update session_run set phase = 0, event_seq = event_seq + 1").await;
    measure_all(&world).await;
    let before = usage(&world).await.stored_bytes;
    let of = SessionRef { tenant: world.tenant, session };
    assert_eq!(world.store.compact_log(&of).await.unwrap(), Some(1));
    measure_all(&world).await;
    let after = usage(&world).await.stored_bytes;
    assert!(after < before, "{after} {before}");
    assert_eq!(after, log_bytes(&world).await);
}

#[tokio::test]
async fn a_change_of_a_quota_leaves_the_others() {
    let world = World::new().await;
    let set = async |quota| {
        let patch = TenantPatch { quota, ..TenantPatch::default() };
        world.store.update_tenant(world.tenant, patch).await.unwrap().quota
    };
    let own = TenantQuota { sessions: Some(5), projects: None, stored_bytes: Some(u64::MAX) };
    let stored = TenantQuota { stored_bytes: Some(i64::MAX.unsigned_abs()), ..own };
    assert_eq!(set(own).await, stored);
    let more = TenantQuota { projects: Some(0), ..TenantQuota::default() };
    assert_eq!(set(more).await, TenantQuota { projects: Some(0), ..stored });
    let read = world.store.get_tenant(world.tenant).await.unwrap().quota;
    assert_eq!(read, TenantQuota { projects: Some(0), ..stored });
}
