//! The connection itself: lazy, and clear about a missing server.

use crate::world::World;
use store::Store;

#[tokio::test]
async fn ping_requires_both_roles() {
    let world = World::new().await;
    world.store.ping().await.unwrap();
    let nobody = world.database.system_url.replace("flotilla_system", "nobody");
    let store = Store::connect(&world.database.app_url, &nobody, 1).unwrap();
    let error = store.ping().await.unwrap_err();
    assert!(!error.is_transient(), "a wrong login is a permanent error: {error:?}");
}

#[tokio::test]
async fn the_first_query_reports_a_missing_postgres() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://nobody:x@{}/none", listener.local_addr().unwrap());
    drop(listener);
    let store = Store::connect(&url, &url, 1).unwrap();
    assert!(testkit::within("the query fails", store.ping()).await.unwrap_err().is_transient());
    assert!(Store::connect("no url", &url, 1).is_err());
}

#[tokio::test]
async fn a_closed_store_refuses_queries() {
    let world = World::new().await;
    world.store.close().await;
    assert!(world.store.get_tenant(world.tenant).await.unwrap_err().is_transient());
}
