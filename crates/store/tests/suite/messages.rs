//! Conversations: whole for the loop, in pages for people.

use crate::world::World;
use domain::ids::{MessageId, SessionId};
use store::{Page, error::Error, messages::Entry};
use testkit::sample::NOW;

async fn world_with_prompts() -> (World, SessionId, Vec<String>) {
    let mut world = World::new().await;
    let session = world.session().await;
    let mut ids = vec![];
    for text in ["one", "two", "three"] {
        ids.push(world.accept(&session, text).await.message_id.to_string());
    }
    (world, session, ids)
}

fn ids(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| entry.message.id().to_string()).collect()
}

#[tokio::test]
async fn pages_go_from_the_newest_back_and_read_forwards() {
    let (world, session, want) = world_with_prompts().await;
    let list = async |limit, cursor: Option<u64>| {
        let page = Page { limit, cursor: cursor.map(|seq| seq.to_string()) };
        world.store.list_messages(world.tenant, &session, &page).await.unwrap()
    };
    let newest = list(2, None).await;
    assert_eq!(ids(&newest), want[1..]);
    assert!(newest.iter().all(|entry| entry.parts.len() == 1 && entry.parts[0].0 == entry.seq + 1));
    assert_eq!(ids(&list(2, Some(newest[0].seq)).await), want[..1]);
    assert_eq!(ids(&list(0, None).await), want);
}

#[tokio::test]
async fn the_loop_reads_all_or_what_came_after() {
    let (world, session, want) = world_with_prompts().await;
    let all = world.store.load_conversation(world.tenant, &session, 0).await.unwrap();
    assert_eq!(ids(&all), want);
    let after = world.store.load_conversation(world.tenant, &session, all[1].seq).await.unwrap();
    assert_eq!(after, all[2..]);
}

#[tokio::test]
async fn one_message_is_read_with_its_parts() {
    let (mut world, session, want) = world_with_prompts().await;
    let entry = world.store.get_message(world.tenant, &session, &want[1].parse().unwrap()).await.unwrap();
    assert_eq!((ids(std::slice::from_ref(&entry)), entry.parts.len()), (vec![want[1].clone()], 1));
    let unknown = MessageId::make(&mut world.sample.ids, NOW);
    let other = world.session().await;
    for (session, id) in [(&session, &unknown), (&other, &want[1].parse().unwrap())] {
        let result = world.store.get_message(world.tenant, session, id).await;
        assert!(matches!(result, Err(Error::NotFound("message"))), "{result:?}");
    }
}

#[tokio::test]
async fn a_part_of_a_later_version_is_named_as_such() {
    let (world, session, _) = world_with_prompts().await;
    world.sql(r#"update part set data = '{"type":"hologram"}'"#).await;
    let result = world.store.load_conversation(world.tenant, &session, 0).await;
    assert!(matches!(result, Err(Error::Unreadable { what: "part", .. })), "{result:?}");
}
