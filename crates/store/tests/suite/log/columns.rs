//! The to-do list and the branch of a session, which a loop stores with the other rows of a write.

use crate::world::{self, Running, World};
use domain::{
    event::Event,
    money::{Tokens, UsdPicos},
    session::Outcome,
};
use serde_json::{Value, json};
use store::{
    error::Error,
    log::{
        change::{Change, ChangeBody, Charge, KnownSession},
        record::{Fence, Progress},
    },
    rows::session_row::Session,
    session::park::ParkOutcome,
};
use testkit::sample::NOW;

fn todos(content: &str) -> Value {
    json!([{"content": content}])
}

/// Asserts that the session has this to-do list and this branch.
async fn assert_has(world: &World, running: &Running, list: &Value, branch: Option<&str>) {
    assert_eq!(world.store.get_todos(world.tenant, &running.session).await.unwrap(), *list);
    let session = world.store.get_session(world.tenant, &running.session).await.unwrap();
    assert_eq!(session.branch.as_deref(), branch);
}

#[tokio::test]
async fn they_come_with_the_statement_of_the_write_and_keep_each_other() {
    let mut world = World::new().await;
    let running = world.running().await;
    let branch = |name: Option<&str>| Event::BranchUpdated(name.map(ToOwned::to_owned));
    for (number, events, list, name) in [
        (1, vec![branch(Some("main"))], json!([]), Some("main")),
        (2, vec![Event::TodoUpdated(todos("a"))], todos("a"), Some("main")),
        (3, vec![branch(None)], todos("a"), None),
        (
            4,
            vec![Event::TodoUpdated(todos("b")), branch(Some("x")), Event::TodoUpdated(todos("c"))],
            todos("c"),
            Some("x"),
        ),
    ] {
        let changes: Vec<Change> =
            [vec![world.busy()], events.into_iter().map(|event| world.change(event)).collect()].concat();
        world.store.append(&running.write(number), &changes, 0, Progress::Made, NOW).await.unwrap();
        let newest = world.newest_statement().await;
        assert!(newest.starts_with("with behind as (update"), "no transaction has to end: {newest}");
        assert_has(&world, &running, &list, name).await;
    }
    let (fence, changes) = (running.write(5), [world.change(Event::TodoUpdated(todos("d")))]);
    let written = world.store.append(&fence, &changes, 0, Progress::Made, NOW).await.unwrap();
    let again = world.store.append(&fence, &changes, 0, Progress::Made, NOW).await.unwrap();
    assert_eq!(again.events, written.events);
    let stale = Fence { epoch: running.write(6).epoch - 1, ..running.write(6) };
    let changes = [world.change(Event::TodoUpdated(todos("stale"))), world.change(branch(None))];
    let refused = world.store.append(&stale, &changes, 0, Progress::Made, NOW).await;
    assert!(matches!(refused, Err(Error::Fenced)), "{refused:?}");
    assert_has(&world, &running, &todos("d"), Some("x")).await;
    world.gap_free(&running.session).await;
}

#[tokio::test]
async fn they_come_with_the_statement_of_a_charge_in_any_order() {
    let mut world = World::new().await;
    let running = world.running().await;
    for number in 1..=2 {
        let Session { info, event_seq, .. } =
            world.store.get_session(world.tenant, &running.session).await.unwrap();
        let id = world.sample.event();
        let entries = vec![World::entry(id.as_str(), Tokens::default(), 7)];
        let known = Some(KnownSession { event_seq, info: Box::new(info) });
        let charge = Change { id, body: ChangeBody::Spend(Charge { entries, known }) };
        let list = todos(&number.to_string());
        let mut changes = vec![charge, world.change(Event::TodoUpdated(list.clone()))];
        if number == 2 {
            changes.reverse();
        }
        world.store.append(&running.write(number), &changes, 0, Progress::Made, NOW).await.unwrap();
        let newest = world.newest_statement().await;
        assert!(newest.starts_with("with behind as (update"), "no transaction has to end: {newest}");
        assert_has(&world, &running, &list, None).await;
    }
    let session = world.store.get_session(world.tenant, &running.session).await.unwrap();
    assert_eq!(session.info.cost, UsdPicos(14));
    world.gap_free(&running.session).await;
}

#[tokio::test]
async fn they_are_stored_with_the_end_of_a_loop() {
    let mut world = World::new().await;
    let running = world.running().await;
    let changes = [Event::TodoUpdated(todos("a")), Event::SessionIdle(Outcome::Done)];
    let changes = changes.map(|event| world.change(event));
    let end = world::idle(Outcome::Done, None);
    let parked = world.store.park(&running.write(1), &changes, 1, &end, NOW).await.unwrap();
    assert!(matches!(parked, ParkOutcome::Parked(_)), "{parked:?}");
    assert_has(&world, &running, &todos("a"), None).await;
    world.gap_free(&running.session).await;
}
