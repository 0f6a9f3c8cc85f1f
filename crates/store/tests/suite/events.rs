//! The log for readers.

use crate::world::World;
use domain::event::{Event, IDLE, Stored};
use store::{error::Error, events::Head, record::Progress};
use testkit::sample::NOW;

#[tokio::test]
async fn events_are_read_after_a_place_and_the_head_says_how_far() {
    let mut world = World::new().await;
    let running = world.running().await;
    let idle = world.change(Event::SessionIdle(domain::session::Outcome::Done));
    let written = world
        .store
        .append(&running.write(1), std::slice::from_ref(&idle), 0, Progress::Made, NOW)
        .await
        .unwrap();
    let want = Stored {
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
        "byte for byte what was published"
    );
    let kinds: Vec<_> =
        store.list_events(tenant, session, 0, 3).await.unwrap().into_iter().map(|e| e.kind).collect();
    assert_eq!(kinds, ["session.created", "message.updated", "message.part.updated"]);
    assert_eq!(store.get_head(tenant, session).await.unwrap(), Head { seq: 4, epoch: 1 });
    let unknown = world.sample.session();
    assert!(matches!(world.store.get_head(tenant, &unknown).await, Err(Error::NotFound("session"))));
    let heads = store.list_heads(tenant, &[&unknown, session]).await.unwrap();
    assert_eq!(heads, [(session.clone(), Head { seq: 4, epoch: 1 })], "those that exist");
}
