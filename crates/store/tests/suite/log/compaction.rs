//! The compaction of logs: a reader of a compacted log ends with the same messages and parts, and no position is used twice.

use crate::world::{Running, World};
use domain::{
    conversation::{
        message::{FileDiff, Message},
        part::Body,
    },
    event::{Event, StoredEvent},
    ids::SessionId,
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::Value;
use std::collections::BTreeMap;
use store::{control::candidate::SessionRef, log::record::Progress};
use testkit::sample::NOW;

/// What a client knows after it has read a log: messages and parts by id.
fn replay(events: &[StoredEvent]) -> BTreeMap<String, Value> {
    let mut known = BTreeMap::new();
    for event in events {
        let properties: Value = serde_json::from_str(&event.properties).unwrap();
        let text =
            |path: &str| properties.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        match event.kind.as_str() {
            "message.updated" => drop(known.insert(text("/info/id"), properties["info"].clone())),
            "message.part.updated" => drop(known.insert(text("/part/id"), properties["part"].clone())),
            "message.part.removed" => drop(known.remove(&text("/partID"))),
            _ => {}
        }
    }
    known
}

/// Writes a random history of one message and a few parts, which are changed and removed in any order.
async fn write_history(world: &mut World, running: &Running, rng: &mut StdRng, writes: u64) {
    let session = &running.session;
    let mut user = world.sample.user(session);
    let mut parts: Vec<_> = (0..4).map(|_| world.sample.text(session, &user.id, "")).collect();
    let message = world.change(Event::MessageUpdated(Box::new(Message::User(user.clone()))));
    world.store.append(&running.write(1), &[message], 0, Progress::None, NOW).await.unwrap();
    for write in 2..writes {
        let part = &mut parts[rng.random_range(0..4)];
        let event = match rng.random_range(0..8) {
            0 => {
                user.agent = format!("agent-{write}");
                Event::MessageUpdated(Box::new(Message::User(user.clone())))
            }
            1 => Event::PartRemoved { message_id: user.id.clone(), part_id: part.id.clone() },
            _ => {
                if let Body::Text(text) = &mut part.body {
                    text.text = format!("version {write}");
                }
                Event::PartUpdated { part: Box::new(part.clone()), at: NOW }
            }
        };
        let change = world.change(event);
        world.store.append(&running.write(write), &[change], 0, Progress::None, NOW).await.unwrap();
    }
    let idle = world.change(Event::SessionIdle(domain::session::Outcome::Done));
    world.store.append(&running.write(writes), &[idle], 0, Progress::Made, NOW).await.unwrap();
}

async fn events(world: &World, session: &SessionId) -> Vec<StoredEvent> {
    world.store.list_events(world.tenant, session, 0, 10_000).await.unwrap().events
}

#[tokio::test]
async fn a_compacted_log_replays_to_the_same_state() {
    for seed in 0..4 {
        let mut world = World::new().await;
        let running = world.running().await;
        write_history(&mut world, &running, &mut StdRng::seed_from_u64(seed), 60).await;
        world.sql("update session_run set phase = 0").await;
        let of = SessionRef { tenant: world.tenant, session: running.session.clone() };
        assert_eq!(world.store.list_compactable(10).await.unwrap(), [], "it is idle for a moment only");
        world.sql("update session set updated_at = now() - interval '25 hours'").await;
        assert_eq!(world.store.list_compactable(10).await.unwrap(), std::slice::from_ref(&of));

        let before = events(&world, &running.session).await;
        let emptied = world.store.compact_log(&of).await.unwrap().unwrap();
        assert_eq!(world.store.compact_log(&of).await.unwrap(), None);
        assert_eq!(world.store.list_compactable(10).await.unwrap(), []);
        let after = events(&world, &running.session).await;
        assert_eq!(replay(&after), replay(&before), "seed {seed}");
        assert_eq!(after.len() as u64 + emptied, before.len() as u64);
        assert!(emptied > 30, "seed {seed}: {emptied}");
        assert!(after.iter().all(|event| before.contains(event)), "those that stay are unchanged");
        assert_eq!(after.last(), before.last());
        let rows =
            "select count(*) from session_event where seq between 1 and (select event_seq from session_run)";
        assert_eq!(world.number(rows).await, i64::try_from(before.len()).unwrap(), "every position is there");
        // A reader that had a part of the log goes on from any position.
        for position in 0..before.len() {
            let rest = world
                .store
                .list_events(world.tenant, &running.session, position as u64, 10_000)
                .await
                .unwrap();
            let known: Vec<_> = before[..position].iter().cloned().chain(rest.events).collect();
            assert_eq!(replay(&known), replay(&before), "seed {seed} position {position}");
        }
    }
}

#[tokio::test]
async fn only_the_newest_changes_of_a_session_stay() {
    let mut world = World::new().await;
    let running = world.running().await;
    for write in 1..=3 {
        let diff = FileDiff { file: Some(format!("{write}.txt")), ..FileDiff::default() };
        let change = world.change(Event::SessionDiff(vec![diff]));
        world.store.append(&running.write(write), &[change], 0, Progress::None, NOW).await.unwrap();
    }
    world.sql("update session_run set phase = 0").await;
    let of = SessionRef { tenant: world.tenant, session: running.session.clone() };
    assert_eq!(world.store.compact_log(&of).await.unwrap(), Some(2));
    let after = events(&world, &running.session).await;
    let diffs: Vec<_> = after.iter().filter(|event| event.kind == "session.diff").collect();
    assert!(diffs.len() == 1 && diffs[0].properties.contains("3.txt"), "{diffs:?}");
}

#[tokio::test]
async fn a_session_that_works_is_not_compacted() {
    let mut world = World::new().await;
    let running = world.running().await;
    world.sql("update session set updated_at = now() - interval '25 hours'").await;
    assert_eq!(world.store.list_compactable(10).await.unwrap(), []);
    let of = SessionRef { tenant: world.tenant, session: running.session.clone() };
    assert_eq!(world.store.compact_log(&of).await.unwrap(), None);
    let unknown = SessionRef { tenant: world.sample.tenant(), session: running.session };
    assert_eq!(world.store.compact_log(&unknown).await.unwrap(), None);
}
