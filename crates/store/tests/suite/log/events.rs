//! The log, as readers use it.

use crate::world::{Running, World};
use domain::{
    event::{Event, IDLE, StoredEvent},
    limits::EVENTS_PAGE,
};
use store::{
    error::{Entity, Error},
    log::{events::Head, record::Progress},
};
use testkit::sample::NOW;

#[tokio::test]
async fn events_are_read_after_a_position_up_to_the_head() {
    let mut world = World::new().await;
    let running = world.running().await;
    let idle = world.change(Event::SessionIdle(domain::session::Outcome::Done));
    let written = world
        .store
        .append(&running.write(1), std::slice::from_ref(&idle), 0, Progress::Made, NOW)
        .await
        .unwrap();
    let want = StoredEvent {
        seq: 4,
        epoch: 1,
        id: idle.id.to_string(),
        kind: IDLE.to_owned(),
        properties: format!(r#"{{"sessionID":"{}","outcome":"done"}}"#, running.session),
        at: NOW,
    };
    assert_eq!(written.events, std::slice::from_ref(&want));
    let (store, tenant, session) = (&world.store, world.tenant, &running.session);
    assert_eq!(
        store.list_events(tenant, session, 3, 10).await.unwrap(),
        [want],
        "identical to the published bytes"
    );
    let kinds: Vec<_> =
        store.list_events(tenant, session, 0, 3).await.unwrap().into_iter().map(|e| e.kind).collect();
    assert_eq!(kinds, ["session.created", "message.updated", "message.part.updated"]);
    assert_eq!(store.get_head(tenant, session).await.unwrap(), Head { seq: 4, epoch: 1 });
    let mut pages = store.event_pages(tenant, session.clone(), 2);
    let seqs =
        pages.next().await.unwrap().map(|page| page.into_iter().map(|event| event.seq).collect::<Vec<_>>());
    assert_eq!(seqs, Some(vec![3, 4]));
    assert_eq!(pages.next().await.unwrap(), None);
    assert_eq!(store.event_pages(tenant, session.clone(), 4).next().await.unwrap(), None);
    let unknown = world.sample.session();
    assert!(matches!(world.store.get_head(tenant, &unknown).await, Err(Error::NotFound(Entity::Session))));
    let heads = store.list_heads(tenant, &[&unknown, session]).await.unwrap();
    assert_eq!(heads, [(session.clone(), Head { seq: 4, epoch: 1 })], "those that exist");
}

#[tokio::test]
async fn a_long_log_is_read_page_by_page() {
    let mut world = World::new().await;
    let running = world.running().await;
    let page = u64::try_from(EVENTS_PAGE).unwrap();
    let written = store_events(&mut world, &running, 2 * page - 3).await;
    assert_eq!(written, 2 * page, "two full pages");
    let mut pages = world.store.event_pages(world.tenant, running.session.clone(), 0);
    let mut seqs = vec![];
    while let Some(events) = pages.next().await.unwrap() {
        assert_eq!(events.len() as u64, page);
        seqs.extend(events.into_iter().map(|event| event.seq));
    }
    assert_eq!(seqs, (1..=written).collect::<Vec<_>>());
}

/// Writes this number of events, and returns the position of the last one.
async fn store_events(world: &mut World, running: &Running, count: u64) -> u64 {
    let changes: Vec<_> =
        (0..count).map(|_| world.change(Event::SessionIdle(domain::session::Outcome::Done))).collect();
    let written = world.store.append(&running.write(1), &changes, 0, Progress::Made, NOW).await.unwrap();
    written.events.last().unwrap().seq
}
