//! The App at a forge, its installations, and the sessions of issues and pull requests.

use super::secrets::sealed;
use crate::world::World;
use store::{
    Actor, Page,
    audit::AuditScope,
    broker::{
        BrokerStore,
        forge::{ForgeApp, SealedApp},
        keys::SealedKey,
    },
    error::Error,
    tenant::forge::ThreadKey,
};

fn app(version: u64) -> SealedApp {
    let app = ForgeApp {
        app_id: 7,
        slug: "flotilla".to_owned(),
        api_url: "https://api.h.org".to_owned(),
        web_url: "https://h.org".to_owned(),
    };
    SealedApp { app, version, sealed: sealed(&version.to_string()) }
}

#[tokio::test]
async fn an_app_is_replaced_by_its_next_version_alone() {
    let world = World::new().await;
    let broker = BrokerStore::connect(&world.database.broker_url, 1).unwrap();
    assert_eq!(broker.find_forge_app().await.unwrap(), None);
    assert!(broker.put_forge_app(&app(1), "ann").await.unwrap());
    assert!(!broker.put_forge_app(&app(1), "ann").await.unwrap(), "somebody else was first");
    assert!(broker.put_forge_app(&app(2), "ann").await.unwrap());
    assert!(!broker.put_forge_app(&app(4), "ann").await.unwrap());
    assert_eq!(broker.find_forge_app().await.unwrap(), Some(app(2)));

    let key = |id: &str| SealedKey { key_id: id.to_owned(), bytes: b"again".to_vec() };
    broker.register_key(&key("k2"), &[]).await.unwrap();
    assert!(!broker.replace_forge_app_key(2, "k1", &key("k3")).await.unwrap(), "another key seals");
    assert!(!broker.replace_forge_app_key(1, "k1", &key("k2")).await.unwrap(), "another version");
    assert!(broker.replace_forge_app_key(2, "k1", &key("k2")).await.unwrap());
    let found = broker.find_forge_app().await.unwrap().unwrap();
    assert_eq!((found.sealed.key_id.as_str(), found.sealed.sealed_key), ("k2", b"again".to_vec()));
}

#[tokio::test]
async fn an_installation_has_one_owner() {
    let mut world = World::new().await;
    let broker = BrokerStore::connect(&world.database.broker_url, 1).unwrap();
    let (first, second) = (world.tenant, world.sample.tenant());
    world.store.create_tenant(second, "second").await.unwrap();
    let store = world.store.acting(Actor { name: "ann".to_owned(), key: String::new() });
    let bound = store.bind_installation(first, 7, "acme", "ann").await.unwrap();
    assert_eq!((bound.id, bound.account.as_str(), bound.bound_by.as_str()), (7, "acme", "ann"));
    // Its account has another name by now.
    let again = store.bind_installation(first, 7, "Acme-Dev", "bob").await.unwrap();
    assert_eq!((again.account.as_str(), again.bound_by.as_str()), ("Acme-Dev", "ann"));
    assert!(matches!(store.bind_installation(second, 7, "acme", "eve").await, Err(Error::Conflict)));
    assert_eq!(store.list_installations(first).await.unwrap(), [again]);
    assert_eq!(store.list_installations(second).await.unwrap(), []);
    assert_eq!(store.find_installation_owner(7).await.unwrap(), Some(first));
    assert_eq!(store.find_installation_owner(8).await.unwrap(), None);
    assert!(broker.has_installation(first, 7).await.unwrap());
    assert!(!broker.has_installation(second, 7).await.unwrap());
    assert_eq!(broker.find_installation(first, "acme-dev").await.unwrap(), Some(7));
    assert_eq!(broker.find_installation(first, "acme").await.unwrap(), None);
    assert_eq!(broker.find_installation(second, "acme-dev").await.unwrap(), None);
    let page = Page { limit: 10, cursor: None };
    let lines = store.list_audit(AuditScope::Tenant(first), &page).await.unwrap();
    let lines: Vec<_> = lines.iter().filter(|line| line.action.starts_with("installation.")).collect();
    assert_eq!((lines.len(), lines[0].actor.name.as_str()), (2, "ann"));
}

#[tokio::test]
async fn a_thread_has_the_session_that_it_got_last() {
    let mut world = World::new().await;
    let (one, two) = (world.session().await, world.session().await);
    let (store, tenant) = (&world.store, world.tenant);
    let key = ThreadKey { repository: 1, number: 2 };
    assert_eq!(store.find_thread(tenant, key).await.unwrap(), None);
    store.put_thread(tenant, key, &one).await.unwrap();
    store.put_thread(tenant, ThreadKey { number: 3, ..key }, &one).await.unwrap();
    store.put_thread(tenant, key, &two).await.unwrap();
    assert_eq!(store.find_thread(tenant, key).await.unwrap(), Some(two));
    assert_eq!(store.find_thread(tenant, ThreadKey { number: 3, ..key }).await.unwrap(), Some(one));
    assert_eq!(store.find_thread(tenant, ThreadKey { repository: 2, ..key }).await.unwrap(), None);
}
