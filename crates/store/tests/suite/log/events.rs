//! The log, as readers use it.

use crate::world::{Running, World};
use domain::{
    conversation::message,
    event::{Event, IDLE, StoredEvent},
    limits::{EVENTS_PAGE, EVENTS_PAGE_BYTES},
};
use store::{
    error::{Entity, Error},
    log::{
        events::{EventPage, Head, LargeEvent, LogPage},
        record::Progress,
    },
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
        EventPage { events: vec![want.clone()], large: None, has_more: false },
        "identical to the published bytes"
    );
    let page = store.list_events(tenant, session, 0, 3).await.unwrap();
    assert!(page.has_more);
    let kinds: Vec<_> = page.events.into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, ["session.created", "message.updated", "message.part.updated"]);
    assert_eq!(store.get_head(tenant, session).await.unwrap(), Head { seq: 4, epoch: 1, is_idle: false });
    let mut pages = store.event_pages(tenant, session.clone(), 2);
    assert_eq!(pages.next().await.unwrap().map(|page| seqs(&page)), Some(vec![3, 4]));
    assert_eq!(pages.next().await.unwrap(), None);
    assert_eq!(store.event_pages(tenant, session.clone(), 4).next().await.unwrap(), None);
    for (after, want) in [(2, Some(vec![3, 4])), (4, None), (9, None)] {
        let (head, mut pages) = store.open_event_pages(tenant, session.clone(), after).await.unwrap();
        assert_eq!(head, Head { seq: 4, epoch: 1, is_idle: false });
        assert_eq!(pages.next().await.unwrap().map(|page| seqs(&page)), want);
        assert_eq!(pages.next().await.unwrap(), None);
    }
    assert_eq!(store.find_event(tenant, session, 4).await.unwrap(), Some(want));
    assert_eq!(store.find_event(tenant, session, 5).await.unwrap(), None);
    let unknown = world.sample.session();
    assert!(matches!(world.store.get_head(tenant, &unknown).await, Err(Error::NotFound(Entity::Session))));
    let opened = world.store.open_event_pages(tenant, unknown.clone(), 0).await;
    assert!(matches!(opened, Err(Error::NotFound(Entity::Session))), "{opened:?}");
    let heads = store.list_heads(tenant, &[&unknown, session]).await.unwrap();
    assert_eq!(heads, [(session.clone(), Head { seq: 4, epoch: 1, is_idle: false })], "those that exist");
}

#[tokio::test]
async fn a_long_log_is_read_page_by_page() {
    let mut world = World::new().await;
    let running = world.running().await;
    let page = u64::try_from(EVENTS_PAGE).unwrap();
    let written = store_events(&mut world, &running, 2 * page - 3).await;
    assert_eq!(written, 2 * page, "two full pages");
    let mut pages = world.store.event_pages(world.tenant, running.session.clone(), 0);
    let mut all = vec![];
    while let Some(next) = pages.next().await.unwrap() {
        let seqs = seqs(&next);
        assert_eq!(seqs.len() as u64, page);
        all.extend(seqs);
    }
    assert_eq!(all, (1..=written).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_page_ends_where_its_bytes_do_and_a_large_event_is_read_alone() {
    let mut world = World::new().await;
    let running = world.running().await;
    let bytes = usize::try_from(EVENTS_PAGE_BYTES).unwrap();
    let texts = [2 * bytes, bytes / 2, bytes / 3, bytes / 3, 1, 3 * bytes, 1].map(|bytes| "x".repeat(bytes));
    let changes = texts.map(|text| world.change(Event::SessionError(message::Error::coded("failed", text))));
    world.store.append(&running.write(1), &changes, 0, Progress::Made, NOW).await.unwrap();
    let mut pages = world.store.event_pages(world.tenant, running.session.clone(), 3);
    let (mut all, mut large) = (vec![], vec![]);
    while let Some(page) = pages.next().await.unwrap() {
        all.push(seqs(&page));
        if let LogPage::Large(event) = page {
            large.push(event);
        }
    }
    assert_eq!(
        all,
        [vec![4], vec![5, 6, 7], vec![8], vec![9], vec![10]],
        "the event that exceeds the bytes is the last of its page"
    );
    for event in large {
        let LargeEvent { seq, bytes } = event;
        let event = pages.read(event).await.unwrap().unwrap();
        assert_eq!((event.seq, event.properties.len()), (seq, bytes));
    }
    let opened = world.store.open_event_pages(world.tenant, running.session.clone(), 3).await;
    let (_, mut whole) = opened.unwrap();
    for want in all {
        let events = whole.next_whole().await.unwrap().unwrap();
        assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), want);
    }
    assert_eq!(whole.next_whole().await.unwrap(), None);
}

/// The positions of the events of a page.
fn seqs(page: &LogPage) -> Vec<u64> {
    match page {
        LogPage::Events(events) => events.iter().map(|event| event.seq).collect(),
        LogPage::Large(event) => vec![event.seq],
    }
}

/// Writes this number of events, and returns the position of the last one.
async fn store_events(world: &mut World, running: &Running, count: u64) -> u64 {
    let changes: Vec<_> =
        (0..count).map(|_| world.change(Event::SessionIdle(domain::session::Outcome::Done))).collect();
    let written = world.store.append(&running.write(1), &changes, 0, Progress::Made, NOW).await.unwrap();
    written.events.last().unwrap().seq
}
