//! Tenants: made once for each name, seen by themselves.

use crate::world::World;
use domain::limits;
use store::{Page, error::Error};

#[tokio::test]
async fn a_tenant_is_made_once_for_each_name() {
    let mut world = World::new().await;
    let id = world.sample.tenant();
    let made = world.store.create_tenant(id, "second").await.unwrap();
    assert_eq!((made.id, made.name.as_str(), made.running_max), (id, "second", limits::TENANT_RUNNING_MAX));
    let other = world.sample.tenant();
    assert_eq!(world.store.create_tenant(other, "second").await.unwrap(), made);
    assert_eq!(world.store.get_tenant(id).await.unwrap(), made);
    assert!(matches!(world.store.get_tenant(other).await, Err(Error::NotFound("tenant"))));
}

#[tokio::test]
async fn tenants_are_listed_in_pages() {
    let mut world = World::new().await;
    for name in ["third", "second"] {
        world.store.create_tenant(world.sample.tenant(), name).await.unwrap();
    }
    let page = world.store.list_tenants(&Page { limit: 2, cursor: None }).await.unwrap();
    assert_eq!(page.iter().map(|tenant| tenant.name.as_str()).collect::<Vec<_>>(), ["first", "second"]);
    let rest = world.store.list_tenants(&Page { limit: 2, cursor: Some("second".to_owned()) }).await.unwrap();
    assert_eq!(rest.iter().map(|tenant| tenant.name.as_str()).collect::<Vec<_>>(), ["third"]);
}
