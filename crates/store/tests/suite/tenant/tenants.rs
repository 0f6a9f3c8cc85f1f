//! Tenants: created once for each name, visible to themselves.

use crate::world::World;
use domain::limits;
use store::{
    Page,
    control::tenants::TenantPatch,
    error::{Entity, Error},
};

#[tokio::test]
async fn a_tenant_is_created_once_for_each_name() {
    let mut world = World::new().await;
    let id = world.sample.tenant();
    let tenant = world.store.create_tenant(id, "second").await.unwrap();
    assert_eq!(
        (tenant.id, tenant.name.as_str(), tenant.running_max),
        (id, "second", limits::TENANT_RUNNING_MAX)
    );
    let other = world.sample.tenant();
    assert_eq!(world.store.create_tenant(other, "second").await.unwrap(), tenant);
    assert_eq!(world.store.get_tenant(id).await.unwrap(), tenant);
    assert!(matches!(world.store.get_tenant(other).await, Err(Error::NotFound(Entity::Tenant))));
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

#[tokio::test]
async fn the_share_of_a_tenant_can_be_updated_in_parts() {
    let mut world = World::new().await;
    let before = world.store.get_tenant(world.tenant).await.unwrap();
    assert_eq!((before.running_max, before.weight), (limits::TENANT_RUNNING_MAX, 1));
    let update = async |running_max, weight| {
        let patch = TenantPatch { running_max, weight, ..TenantPatch::default() };
        world.store.update_tenant(world.tenant, patch).await.unwrap()
    };
    assert_eq!(
        update(Some(3), None).await,
        store::tenant::tenants::Tenant { running_max: 3, ..before.clone() }
    );
    let after = update(None, Some(9)).await;
    assert_eq!(after, store::tenant::tenants::Tenant { running_max: 3, weight: 9, ..before });
    assert_eq!(update(None, None).await, after);
    assert_eq!(world.store.get_tenant(world.tenant).await.unwrap(), after);
    world.session().await;
    let session = world.session().await;
    world.accept(&session, "hello").await;
    let claimable = world.store.list_runnable(9).await.unwrap().remove(0);
    assert_eq!((claimable.running_max, claimable.weight), (3, 9), "claims know it");
    let unknown = world.sample.tenant();
    let result = world.store.update_tenant(unknown, TenantPatch::default()).await;
    assert!(matches!(result, Err(Error::NotFound(Entity::Tenant))), "{result:?}");
}
