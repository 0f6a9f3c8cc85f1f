//! Settings of tenants and projects.

use crate::world::World;
use domain::{policy::level::Level, session::Source};
use store::{
    error::{Entity, Error},
    tenant::settings::StoredSettings,
};

fn summarize(stored: &[StoredSettings]) -> Vec<(Level, &str, &str)> {
    stored.iter().map(|stored| (stored.level, stored.document.as_str(), stored.by.as_str())).collect()
}

#[tokio::test]
async fn a_session_is_bound_by_its_tenant_and_its_project() {
    let mut world = World::new().await;
    let (tenant, own, session) = (world.tenant, world.project.clone(), world.session().await);
    let elsewhere = world.sample.project();
    world.store.create_project(tenant, &elsewhere, "elsewhere", &Source::default()).await.unwrap();
    let store = &world.store;
    assert_eq!(store.list_settings_of(tenant, &session).await.unwrap(), []);
    store.put_settings(tenant, Some(&elsewhere), "{\"c\": 1}", "ann").await.unwrap();
    store.put_settings(tenant, Some(&own), "{}", "ann").await.unwrap();
    store.put_settings(tenant, Some(&own), "{\"b\": 1}", "bob").await.unwrap();
    store.put_settings(tenant, None, "{\"a\": 1}", "ann").await.unwrap();
    let both = store.list_settings_of(tenant, &session).await.unwrap();
    let want = [(Level::Tenant, "{\"a\": 1}", "ann"), (Level::Project, "{\"b\": 1}", "bob")];
    assert_eq!(summarize(&both), want);
    assert_eq!(store.list_settings(tenant, Some(&own)).await.unwrap(), both);
    assert_eq!(summarize(&store.list_settings(tenant, None).await.unwrap()), want[..1]);
    assert!(store.delete_settings(tenant, Some(&own)).await.unwrap());
    assert!(!store.delete_settings(tenant, Some(&own)).await.unwrap());
    assert_eq!(summarize(&store.list_settings_of(tenant, &session).await.unwrap()), want[..1]);
}

#[tokio::test]
async fn other_tenants_can_neither_read_nor_write_settings() {
    let mut world = World::new().await;
    let (tenant, own, session) = (world.tenant, world.project.clone(), world.session().await);
    let stranger = world.sample.tenant();
    world.store.create_tenant(stranger, "second").await.unwrap();
    world.store.put_settings(tenant, Some(&own), "{}", "ann").await.unwrap();
    let refused = world.store.put_settings(stranger, Some(&own), "{}", "eve").await;
    assert!(matches!(refused, Err(Error::NotFound(Entity::Project))));
    assert!(!world.store.delete_settings(stranger, Some(&own)).await.unwrap());
    assert_eq!(world.store.list_settings(stranger, Some(&own)).await.unwrap(), []);
    assert_eq!(world.store.list_settings_of(stranger, &session).await.unwrap(), []);
    assert_eq!(world.store.list_settings_of(tenant, &session).await.unwrap().len(), 1);
}
