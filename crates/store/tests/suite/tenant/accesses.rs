//! What sessions reached of the network: rows of the broker, which it bounds and others read.

use crate::world::World;
use domain::{
    egress::EgressAccess,
    ids::{SessionId, Timestamp},
    limits::{EGRESS_ACCESSES_MAX, EGRESS_REFUSALS_MAX, PAGE_MAX},
};
use store::{
    Page,
    broker::BrokerStore,
    error::{Entity, Error},
};

pub(crate) fn access(host: &str) -> EgressAccess {
    EgressAccess {
        began_at: Timestamp(1_700_000_000_123),
        host: host.to_owned(),
        code: String::new(),
        connections: 2,
        bytes: 1 << 40,
    }
}

/// The hosts of all rows of a session, newest first.
async fn hosts(world: &World, session: &SessionId) -> Vec<String> {
    let (mut kept, mut cursor) = (vec![], None);
    loop {
        let page = Page { limit: PAGE_MAX, cursor };
        let entries = world.store.list_egress(world.tenant, session, &page).await.unwrap();
        cursor = entries.last().map(|entry| entry.cursor.clone());
        kept.extend(entries.into_iter().map(|entry| entry.access.host));
        if cursor.is_none() {
            return kept;
        }
    }
}

#[tokio::test]
async fn the_newest_are_kept_and_listed_first() {
    let mut world = World::new().await;
    let (tenant, session) = (world.tenant, world.session().await);
    let broker = BrokerStore::connect(&world.database.broker_url, 2).unwrap();
    broker.add_egress(tenant, &session, &[access("a.example.com"), access("b.example.com")]).await.unwrap();
    let page = |limit, cursor| Page { limit, cursor };
    let first = world.store.list_egress(tenant, &session, &page(1, None)).await.unwrap();
    assert_eq!(first[0].access, access("b.example.com"));
    let second =
        world.store.list_egress(tenant, &session, &page(1, Some(first[0].cursor.clone()))).await.unwrap();
    assert_eq!(second[0].access, access("a.example.com"));

    let many = vec![access("c.example.com"); usize::try_from(EGRESS_ACCESSES_MAX).unwrap() - 1];
    broker.add_egress(tenant, &session, &many).await.unwrap();
    let kept = hosts(&world, &session).await;
    assert_eq!(kept.len(), many.len() + 1);
    assert_eq!(kept.last().unwrap(), "b.example.com", "the oldest is removed");

    let stranger = world.sample.tenant();
    for (tenant, session) in [(stranger, &session), (tenant, &"ses_missing".parse().unwrap())] {
        let gone = broker.add_egress(tenant, session, &[access("a.example.com")]).await;
        assert!(matches!(gone, Err(Error::NotFound(Entity::Session))), "{gone:?}");
    }
}

#[tokio::test]
async fn refusals_do_not_push_out_what_was_reached() {
    let mut world = World::new().await;
    let session = world.session().await;
    let broker = BrokerStore::connect(&world.database.broker_url, 2).unwrap();
    let refused =
        EgressAccess { code: "egress_host_not_allowed".to_owned(), ..access("invented.example.com") };
    let many = vec![refused; usize::try_from(EGRESS_REFUSALS_MAX).unwrap()];
    for accesses in [&[access("reached.example.com")][..], &many, &many] {
        broker.add_egress(world.tenant, &session, accesses).await.unwrap();
    }
    let kept = hosts(&world, &session).await;
    assert_eq!((kept.len(), kept.last().unwrap().as_str()), (many.len() + 1, "reached.example.com"));
}
