//! Effects: their intent is stored before they start, and closed with their answer.

use crate::world::{Running, World};
use domain::{
    conversation::{
        message::Message,
        part::{Body, Part, Ran, Span, Tool, ToolState},
    },
    event::Event,
};
use serde_json::{Map, json};
use std::sync::Arc;
use store::log::{change::Change, record::Progress};
use testkit::sample::NOW;

/// Makes the changes that bring a call into a state.
fn states(world: &mut World, running: &Running) -> [Vec<Change>; 2] {
    let parent = world.sample.user(&running.session).id;
    let message = world.sample.assistant(&running.session, &parent);
    let text = world.sample.text(&running.session, &message.id, "");
    let time = Span { start: NOW, end: Some(NOW) };
    let running_state = ToolState::Running { input: json!({}), title: None, metadata: None, time };
    let completed = ToolState::Completed {
        input: json!({}),
        output: Arc::default(),
        title: String::new(),
        metadata: Map::new(),
        time: Ran::new(NOW, NOW),
        attachments: vec![],
    };
    let part = |state| {
        let tool = Tool { call_id: "call-1".to_owned(), tool: "bash".to_owned(), state };
        let part = Part { body: Body::Tool(tool), ..text.clone() };
        Event::PartUpdated { part: Box::new(part), at: NOW }
    };
    let message = Event::MessageUpdated(Box::new(Message::Assistant(Box::new(message))));
    let begun = vec![world.change(message), world.change(part(running_state))];
    [begun, vec![world.change(part(completed))]]
}

#[tokio::test]
async fn an_effect_is_known_from_its_intent_to_its_answer() {
    let mut world = World::new().await;
    let running = world.running().await;
    let [begin, end] = states(&mut world, &running);
    let open = "select count(*) from tool_exec where state = 'executing' and epoch = 1 and tool = 'bash'";
    world.store.append(&running.write(1), &begin, 0, Progress::None, NOW).await.unwrap();
    assert_eq!(world.number(open).await, 1);

    // A successor that writes "running" again does not take over the call.
    world.store.forget_worker(running.worker).await.unwrap();
    let successor = world.worker().await;
    let taken = world.take(&running.session, successor).await.unwrap();
    let fence = |write_seq| store::log::record::Fence { write_seq, ..taken.fence.clone() };
    let again: Vec<_> = begin.iter().map(|change| world.change_again(change)).collect();
    world.store.append(&fence(1), &again, 0, Progress::None, NOW).await.unwrap();
    assert_eq!(world.number(open).await, 1);

    world.store.append(&fence(2), &end, 0, Progress::Made, NOW).await.unwrap();
    let newest = world.newest_statement().await;
    assert!(newest.starts_with("with behind as (update"), "no transaction has to end: {newest}");
    let sql = "select count(*) from tool_exec where state = 'done' and ended_at is not null";
    assert_eq!((world.number(sql).await, world.number("select count(*) from tool_exec").await), (1, 1));
}

#[tokio::test]
async fn an_effect_that_begins_and_ends_in_one_write_is_over() {
    let mut world = World::new().await;
    let running = world.running().await;
    let both = states(&mut world, &running).concat();
    let written = world.store.append(&running.write(1), &both, 0, Progress::Made, NOW).await.unwrap();
    assert_eq!(written.events.len(), both.len());
    let sql = "select count(*) from tool_exec where state = 'done' and ended_at is not null and epoch = 1";
    assert_eq!((world.number(sql).await, world.number("select count(*) from tool_exec").await), (1, 1));
    assert_eq!(world.gap_free(&running.session).await, written.events.last().unwrap().seq);
}

#[tokio::test]
async fn the_end_of_an_effect_that_never_began_adds_nothing() {
    let mut world = World::new().await;
    let running = world.running().await;
    let [mut refused, end] = states(&mut world, &running);
    refused.truncate(1);
    refused.extend(end);
    world.store.append(&running.write(1), &refused, 0, Progress::Made, NOW).await.unwrap();
    assert_eq!(world.number("select count(*) from tool_exec").await, 0);
}
