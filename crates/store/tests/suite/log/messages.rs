//! Conversations: whole for the loop, in pages for people.

use crate::world::{Running, World};
use domain::{
    conversation::{
        message::{Message, User},
        part::{Body, Part, Text, attached::Compaction},
    },
    event::Event,
    ids::{MessageId, PartId, SessionId},
    limits::MESSAGES_PAGE_BYTES,
};
use store::{
    Page,
    error::{Entity, Error},
    log::{change::Change, edits::Edit, messages::MessageWithParts, record::Progress},
    loop_start::{KeptPosition, LoopStart},
    rows::session_row::SessionWithSettings,
    session::runs::{SuspectPolicy, TakeResult, TakenSession},
};
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

fn ids(entries: &[MessageWithParts]) -> Vec<String> {
    entries.iter().map(|entry| entry.message.id().to_string()).collect()
}

#[tokio::test]
async fn pages_start_at_the_newest_message_and_read_forwards() {
    let (world, session, want) = world_with_prompts().await;
    let list = async |limit, cursor: Option<u64>| {
        let page = Page { limit, cursor: cursor.map(|seq| seq.to_string()) };
        world.store.list_messages(world.tenant, &session, &page).await.unwrap()
    };
    let newest = list(2, None).await;
    assert!(newest.has_more);
    let newest = newest.entries;
    assert_eq!(ids(&newest), want[1..]);
    assert!(newest.iter().all(|entry| entry.parts.len() == 1 && entry.parts[0].0 == entry.seq + 1));
    let oldest = list(2, Some(newest[0].seq)).await;
    assert_eq!((ids(&oldest.entries), oldest.has_more), (want[..1].to_vec(), false));
    assert_eq!(ids(&list(0, None).await.entries), want);
    let after = async |seq, limit| {
        ids(&world.store.list_messages_after(world.tenant, &session, seq, limit).await.unwrap().entries)
    };
    assert_eq!((after(0, 2).await, after(newest[0].seq, 9).await), (want[..2].to_vec(), want[2..].to_vec()));
}

#[tokio::test]
async fn a_page_of_messages_ends_where_its_bytes_do_but_is_never_empty() {
    let mut world = World::new().await;
    let session = world.session().await;
    let third = usize::try_from(MESSAGES_PAGE_BYTES).unwrap() / 3;
    let mut want = vec![];
    for (name, bytes) in [("a", third), ("b", third), ("c", 4 * third), ("d", third)] {
        let mut prompt = world.prompt(&session, name);
        prompt.parts[0].body = Body::Text(Text { text: "x".repeat(bytes), ..Text::default() });
        world.store.accept_prompt(world.tenant, &prompt, NOW).await.unwrap();
        want.push(prompt.id.to_string());
    }
    let newest = async |cursor: Option<u64>| {
        let page = Page { limit: 9, cursor: cursor.map(|seq| seq.to_string()) };
        world.store.list_messages(world.tenant, &session, &page).await.unwrap()
    };
    let (mut cursor, mut pages) = (None, vec![]);
    loop {
        let page = newest(cursor).await;
        cursor = page.entries.first().map(|entry| entry.seq);
        pages.push(ids(&page.entries));
        if !page.has_more {
            break;
        }
    }
    assert_eq!(pages, [want[3..].to_vec(), want[2..3].to_vec(), want[..2].to_vec()]);
    let oldest = world.store.list_messages_after(world.tenant, &session, 0, 9).await.unwrap();
    assert_eq!((ids(&oldest.entries), oldest.has_more), (want[..2].to_vec(), true));
}

#[tokio::test]
async fn the_newest_answer_is_found_behind_later_prompts() {
    let mut world = World::new().await;
    let running = world.running().await;
    let (store, tenant) = (world.store.clone(), world.tenant);
    assert_eq!(store.find_newest_answer(tenant, &running.session).await.unwrap(), None);
    let prompt =
        store.list_messages(tenant, &running.session, &Page::default()).await.unwrap().entries.remove(0);
    let answer = world.sample.assistant(&running.session, prompt.message.id());
    let id = answer.id.clone();
    let change = world.change(Event::MessageUpdated(Box::new(Message::Assistant(Box::new(answer)))));
    store.append(&running.write(1), &[change], 0, Progress::Made, NOW).await.unwrap();
    world.accept(&running.session, "another prompt").await;
    let newest = store.find_newest_answer(tenant, &running.session).await.unwrap();
    assert_eq!(newest.map(|entry| entry.message.id().clone()), Some(id));
}

#[tokio::test]
async fn the_loop_reads_all_messages_or_those_after_a_position() {
    let (world, session, want) = world_with_prompts().await;
    let all = world.store.load_conversation(world.tenant, &session, 0).await.unwrap();
    assert_eq!(ids(&all), want);
    let after = world.store.load_conversation(world.tenant, &session, all[1].seq).await.unwrap();
    assert_eq!(after, all[2..]);
}

#[tokio::test]
async fn a_loop_begins_with_everything_that_it_needs() {
    let mut world = World::new().await;
    let (session, worker) = (world.session().await, world.worker().await);
    world.accept(&session, "begin").await;
    for project in [Some(&world.project), None] {
        world.store.put_settings(world.tenant, project, "{}", "ann").await.unwrap();
    }
    let (store, tenant) = (&world.store, world.tenant);
    let taken = store.take_session(tenant, &session, worker, SuspectPolicy::Accept).await.unwrap();
    let TakeResult::Taken(taken) = taken else { panic!("it is free: {taken:?}") };
    let fence = taken.take_over.fence.clone();
    let start = store.read_loop_start(*taken, None).await.unwrap();
    let newest = world.newest_statement().await;
    assert!(newest.starts_with("with recent as"), "no transaction has to end: {newest}");
    let SessionWithSettings { session: stored, settings } = &start.stored;
    assert_eq!(*settings, store.list_settings_of(tenant, &session).await.unwrap());
    assert_eq!(*stored, store.get_session(tenant, &session).await.unwrap());
    assert_eq!(start.stored, store.get_session_with_settings(tenant, &session).await.unwrap());
    assert_eq!(start.inputs, store.list_inputs(tenant, &session, 0).await.unwrap());
    assert_eq!(start.messages, store.load_conversation(tenant, &session, 0).await.unwrap());
    assert_eq!((settings.len(), start.inputs.len(), start.messages.len(), start.left_out), (2, 1, 1, 0));
    let running = Running { session, worker, fence };
    assert_eq!(world.loop_start(&running, start.inputs[0].seq, None).await.inputs, []);
}

impl World {
    /// Creates a session whose first turn is over, and the position that its worker has kept.
    async fn kept(&mut self) -> (Running, KeptPosition) {
        let running = self.running().await;
        let last = self.append(&running.write(1)).await.unwrap().events.pop().unwrap();
        self.park(&running.write(2)).await.unwrap();
        let prompt = self.store.load_conversation(self.tenant, &running.session, 0).await.unwrap().remove(0);
        (running, KeptPosition { event_seq: last.seq, event_id: last.id, read_after: prompt.seq })
    }

    async fn start(&self, running: &Running, kept: &KeptPosition) -> LoopStart {
        self.loop_start(running, 0, Some(kept)).await
    }

    /// Reads what the loop of a session begins with, after the inputs up to `input_ack`.
    async fn loop_start(&self, running: &Running, input_ack: u64, kept: Option<&KeptPosition>) -> LoopStart {
        let stored = self.store.get_session_with_settings(self.tenant, &running.session).await;
        let taken = TakenSession { take_over: running.take_over(input_ack), stored };
        self.store.read_loop_start(taken, kept).await.unwrap()
    }
}

#[tokio::test]
async fn a_loop_reads_only_the_messages_that_came_after_the_kept_ones() {
    let mut world = World::new().await;
    let (running, kept) = world.kept().await;
    let start = world.start(&running, &kept).await;
    assert_eq!((start.continues_kept, start.messages), (true, vec![]));
    world.accept(&running.session, "on").await;
    let all = world.store.load_conversation(world.tenant, &running.session, 0).await.unwrap();
    let start = world.start(&running, &kept).await;
    assert_eq!((start.continues_kept, &start.messages[..]), (true, &all[1..]));
    let (seq, id) = (kept.event_seq, kept.event_id.as_str());
    for (what, event_seq, event_id) in [
        ("the log of another session with the same id", seq, "evt_other"),
        ("a log without the kept event", seq + 1_000, id),
        ("an older event of the log", seq - 1, id),
    ] {
        let other = KeptPosition { event_seq, event_id: event_id.to_owned(), ..kept };
        let start = world.start(&running, &other).await;
        assert_eq!((start.continues_kept, &start.messages), (false, &all), "{what}");
    }
}

#[tokio::test]
async fn a_loop_reads_everything_after_any_change_of_a_kept_message() {
    let mut world = World::new().await;
    for change in ["text", "part", "message"] {
        let (running, kept) = world.kept().await;
        let (tenant, session) = (world.tenant, &running.session);
        let first = world.store.load_conversation(tenant, session, 0).await.unwrap().remove(0);
        let (message, part) = (first.message.id().clone(), first.parts[0].1.id.clone());
        let edit = match change {
            "text" => Edit::Text(message, part, "other".to_owned()),
            "part" => Edit::RemovePart(message, part),
            _ => Edit::RemoveMessage(message),
        };
        let event = world.sample.event();
        world.store.edit(tenant, session, &edit, &event, NOW).await.unwrap();
        world.accept(session, "on").await;
        let all = world.store.load_conversation(tenant, session, 0).await.unwrap();
        let start = world.start(&running, &kept).await;
        assert_eq!((start.continues_kept, start.messages), (false, all), "{change}");
    }
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
        assert!(matches!(result, Err(Error::NotFound(Entity::Message))), "{result:?}");
    }
}

#[tokio::test]
async fn a_part_of_a_newer_version_is_a_named_error() {
    let (world, session, _) = world_with_prompts().await;
    world.sql(r#"update part set data = '{"type":"hologram"}'"#).await;
    let result = world.store.load_conversation(world.tenant, &session, 0).await;
    assert!(matches!(result, Err(Error::Unreadable { what: "part", .. })), "{result:?}");
}

/// Makes a complete answer to `parent`.
fn answer(
    world: &mut World,
    session: &SessionId,
    parent: &MessageId,
    summary: Option<bool>,
) -> (MessageId, Change) {
    let mut step = world.sample.assistant(session, parent);
    (step.finish, step.summary) = (Some("stop".to_owned()), summary);
    (step.id.clone(), world.change(Event::MessageUpdated(Box::new(Message::Assistant(Box::new(step))))))
}

/// Makes a request for a summary that keeps the messages after `tail`.
fn wish(world: &mut World, session: &SessionId, tail: Option<&MessageId>) -> (User, [Change; 2]) {
    let user = world.sample.user(session);
    let body = Body::Compaction(Compaction { auto: true, overflow: None, tail_start_id: tail.cloned() });
    let (id, message_id) = (PartId::make(&mut world.sample.ids, NOW), user.id.clone());
    let part = Part { id, session_id: session.clone(), message_id, body };
    let message = world.change(Event::MessageUpdated(Box::new(Message::User(user.clone()))));
    (user, [message, world.change(Event::PartUpdated { part: Box::new(part), at: NOW })])
}

#[tokio::test]
async fn a_loop_reads_from_the_newest_summary_on() {
    let mut world = World::new().await;
    let running = world.running().await;
    let session = running.session.clone();
    let mut writes = 0;
    let mut write = async |world: &World, changes: &[Change]| {
        writes += 1;
        world.store.append(&running.write(writes), changes, 0, Progress::None, NOW).await.unwrap();
    };
    // The first message that a loop would read, counted from the oldest.
    let first = async |world: &World| {
        let start = world.loop_start(&running, 0, None).await;
        let all = world.store.load_conversation(world.tenant, &running.session, 0).await.unwrap();
        let first = all.iter().position(|entry| entry.seq > start.left_out).unwrap();
        assert_eq!(start.messages, all[first..]);
        first
    };
    let prompt =
        world.store.load_conversation(world.tenant, &session, 0).await.unwrap()[0].message.id().clone();
    let (kept, kept_change) = answer(&mut world, &session, &prompt, None);
    write(&world, &[kept_change]).await;
    let (request, wished) = wish(&mut world, &session, None);
    write(&world, &wished).await;
    assert_eq!(first(&world).await, 0, "a request is not a summary");
    let (_, summed) = answer(&mut world, &session, &request.id, Some(true));
    write(&world, &[summed]).await;
    world.accept(&session, "on").await;
    assert_eq!(first(&world).await, 0, "the request decides what follows");
    let (_, later) = answer(&mut world, &session, &request.id, None);
    write(&world, &[later]).await;
    assert_eq!(first(&world).await, 2, "the request");
    // Another summary, with a tail older than its request.
    let (again, wished) = wish(&mut world, &session, Some(&kept));
    write(&world, &wished).await;
    let (_, summed) = answer(&mut world, &session, &again.id, Some(true));
    let (_, later) = answer(&mut world, &session, &again.id, None);
    write(&world, &[summed, later]).await;
    assert_eq!(first(&world).await, 1, "the tail");
    world.sql("update session_input set kind = 'note' where dedupe = 'on'").await;
    assert_eq!(first(&world).await, 0, "the newest prompt, which started the turn");
}
