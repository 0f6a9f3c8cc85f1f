//! API keys: found by their hash until they are revoked.

use crate::world::World;
use domain::policy::role::Role;
use store::{
    Page,
    error::{Entity, Error},
};

#[tokio::test]
async fn a_key_is_found_by_its_hash_until_it_is_revoked() {
    let world = World::new().await;
    let (store, tenant) = (&world.store, world.tenant);
    let key = store.create_key(tenant, "fl_abc", &[7; 32], "laptop", Role::Admin).await.unwrap();
    assert_eq!((key.prefix.as_str(), key.name.as_str(), key.revoked_at), ("fl_abc", "laptop", None));
    assert_eq!(store.find_key(&[7; 32]).await.unwrap().unwrap().tenant.id, tenant);
    assert_eq!(store.find_key(&[8; 32]).await.unwrap(), None);
    store.create_key(tenant, "fl_def", &[9; 32], "viewer", Role::Viewer).await.unwrap();
    assert_eq!(store.find_key(&[9; 32]).await.unwrap().unwrap().role, Role::Viewer);
    let valid = async || {
        let mut valid = store.list_valid_keys(&[[7; 32], [8; 32], [9; 32]]).await.unwrap();
        valid.sort();
        valid
    };
    assert_eq!(valid().await, [[7; 32], [9; 32]]);

    store.revoke_key(tenant, "fl_abc").await.unwrap();
    assert_eq!(valid().await, [[9; 32]]);
    assert_eq!(store.find_key(&[7; 32]).await.unwrap(), None);
    let revoked = store.list_keys(tenant, &Page::default()).await.unwrap();
    assert!(revoked[0].revoked_at.is_some());
    store.revoke_key(tenant, "fl_abc").await.unwrap();
    assert_eq!(store.list_keys(tenant, &Page::default()).await.unwrap(), revoked, "the first time is kept");
    assert!(matches!(store.revoke_key(tenant, "fl_xyz").await, Err(Error::NotFound(Entity::Key))));
}

#[tokio::test]
async fn a_secret_belongs_to_one_key_of_all_tenants() {
    let mut world = World::new().await;
    let other = world.sample.tenant();
    world.store.create_tenant(other, "second").await.unwrap();
    world.store.create_key(world.tenant, "fl_abc", &[7; 32], "laptop", Role::Admin).await.unwrap();
    for (tenant, prefix, secret) in [(other, "fl_xyz", [7; 32]), (world.tenant, "fl_abc", [8; 32])] {
        assert!(matches!(
            world.store.create_key(tenant, prefix, &secret, "copy", Role::Admin).await,
            Err(Error::Db(_))
        ));
    }
}

#[tokio::test]
async fn keys_are_listed_in_pages() {
    let world = World::new().await;
    for (number, prefix) in (1_u8..).zip(["a", "b", "c"]) {
        world.store.create_key(world.tenant, prefix, &[number; 32], prefix, Role::Admin).await.unwrap();
    }
    let page = Page { limit: 2, cursor: Some("a".to_owned()) };
    let keys = world.store.list_keys(world.tenant, &page).await.unwrap();
    assert_eq!(keys.iter().map(|key| key.prefix.as_str()).collect::<Vec<_>>(), ["b", "c"]);
}
