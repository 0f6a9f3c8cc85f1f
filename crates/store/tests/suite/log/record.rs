//! The writes of a loop: fenced, repeatable, gap-free, cheap.

use crate::world::{self, World};
use domain::{
    conversation::{message::Message, part::Body},
    event::{Event, IDLE},
    money::{Tokens, UsdPicos},
    session::{Outcome, Phase},
};
use serde_json::json;
use sqlx::AssertSqlSafe;
use store::{
    error::Error,
    log::{
        change::{Change, ChangeBody, Title},
        record::{Fence, Progress},
    },
    session::park::ParkOutcome,
};
use testkit::sample::{NOW, Sample};

#[tokio::test]
async fn a_repeated_write_is_the_same_write() {
    let mut world = World::new().await;
    let running = world.running().await;
    let (changes, other) = ([world.busy(), world.busy()], [world.busy()]);
    let write = async |number: u64, changes: &[Change]| {
        world.store.append(&running.write(number), changes, 1, Progress::None, NOW).await
    };
    let first = write(1, &changes).await.unwrap();
    assert_eq!(first.events.iter().map(|event| event.seq).collect::<Vec<_>>(), [4, 5]);
    assert_eq!(write(1, &changes).await.unwrap(), first);
    let second = write(2, &[]).await.unwrap();
    assert_eq!(second.events, []);
    assert_eq!(write(1, &changes).await.unwrap(), first, "also later");
    assert!(matches!(write(2, &other).await, Err(Error::Fenced)), "the number was used for something else");
    assert!(matches!(write(4, &[]).await, Err(Error::Fenced)), "a number was skipped");
    assert_eq!(world.gap_free(&running.session).await, 5);
}

/// A client writes to the session at the same time.
#[tokio::test]
async fn a_write_goes_behind_that_of_a_client_which_it_waits_for() {
    let mut world = World::new().await;
    let running = world.running().await;
    let session = running.session.clone();
    let entries =
        world.store.list_messages(world.tenant, &session, &store::Page::default()).await.unwrap().entries;
    let prompt = entries[0].message.id();
    let part = world.sample.text(&session, prompt, "of the loop");
    let changes = [world.change(Event::PartUpdated { part: Box::new(part.clone()), at: NOW }), world.busy()];
    let mut client = world.writing_client(&session).await;
    let (tenant, id) = (world.tenant, part.id.as_str());
    let held = format!(
        "insert into part (tenant_id, session_id, message_id, id, seq, kind, data, size_bytes)
         values ('{tenant}', '{session}', '{prompt}', '{id}', 4, 'text', '{{}}', 2)"
    );
    sqlx::raw_sql(AssertSqlSafe(held)).execute(&mut client).await.unwrap();
    let fence = running.write(1);
    world.assert_written_behind(client, &fence, &changes).await;
    let entry = world.store.get_message(world.tenant, &session, prompt).await.unwrap();
    assert_eq!(entry.parts.last(), Some(&(4, part)), "the newer version, at the first position");
}

#[tokio::test]
async fn a_write_stores_the_newest_of_several_versions_and_none_of_what_it_removes() {
    let mut world = World::new().await;
    let running = world.running().await;
    let session = running.session.clone();
    let prompt =
        world.store.list_messages(world.tenant, &session, &store::Page::default()).await.unwrap().entries;
    let answer = world.sample.assistant(&session, prompt[0].message.id());
    let mut ended = answer.clone();
    ended.finish = Some("stop".to_owned());
    let text = |text: String| {
        Body::Text(domain::conversation::part::Text { text, ..domain::conversation::part::Text::default() })
    };
    let begun = world.sample.text(&session, &answer.id, "Hel");
    let gone = world.sample.text(&session, &answer.id, "x");
    // Together they have more bytes than one statement gathers.
    let mut whole = begun.clone();
    whole.body = text("a".repeat(300_000));
    let mut last = world.sample.text(&session, &answer.id, "");
    last.body = text("b".repeat(300_000));
    let message = |message: &domain::conversation::message::Assistant| {
        Event::MessageUpdated(Box::new(Message::Assistant(Box::new(message.clone()))))
    };
    let part = |part: &domain::conversation::part::Part| Event::PartUpdated {
        part: Box::new(part.clone()),
        at: NOW,
    };
    let events = [
        message(&answer),
        part(&begun),
        part(&gone),
        message(&ended),
        part(&whole),
        Event::PartRemoved { message_id: answer.id.clone(), part_id: gone.id.clone() },
        part(&last),
        part(&last),
    ];
    let changes = events.map(|event| world.change(event));
    let written = world.store.append(&running.write(1), &changes, 0, Progress::Made, NOW).await.unwrap();
    assert_eq!(written.events.len(), 8, "the log has every version");
    let entry = world.store.get_message(world.tenant, &session, &answer.id).await.unwrap();
    assert_eq!(entry.message, Message::Assistant(Box::new(ended)));
    assert_eq!((entry.seq, entry.parts), (4, vec![(5, whole), (10, last)]), "each keeps its first position");
    let sizes = "select count(*) from part where size_bytes <> octet_length(data::text)";
    assert_eq!(world.number(sizes).await, 0);
}

#[tokio::test]
async fn changes_reach_their_tables() {
    let mut world = World::new().await;
    let running = world.running().await;
    let session = running.session.clone();
    let prompt =
        world.store.list_messages(world.tenant, &session, &store::Page::default()).await.unwrap().entries;
    let mut answer = world.sample.assistant(&session, prompt[0].message.id());
    let (kept, gone) =
        (world.sample.text(&session, &answer.id, "Hel"), world.sample.text(&session, &answer.id, "x"));
    let updated = |part: &domain::conversation::part::Part| Event::PartUpdated {
        part: Box::new(part.clone()),
        at: NOW,
    };
    let events = [
        Event::MessageUpdated(Box::new(Message::Assistant(Box::new(answer.clone())))),
        updated(&kept),
        updated(&gone),
        Event::TodoUpdated(json!([{"content": "test", "status": "pending"}])),
    ];
    let changes = events.map(|event| world.change(event));
    world.store.append(&running.write(1), &changes, 0, Progress::Made, NOW).await.unwrap();

    answer.finish = Some("stop".to_owned());
    let mut whole = kept.clone();
    whole.body = Body::Text(domain::conversation::part::Text {
        text: "Hello".to_owned(),
        ..domain::conversation::part::Text::default()
    });
    let events = [
        updated(&whole),
        Event::PartRemoved { message_id: answer.id.clone(), part_id: gone.id.clone() },
        Event::MessageUpdated(Box::new(Message::Assistant(Box::new(answer.clone())))),
    ];
    let changes = events.map(|event| world.change(event));
    world.store.append(&running.write(2), &changes, 0, Progress::Made, NOW).await.unwrap();

    let entry = world.store.get_message(world.tenant, &session, &answer.id).await.unwrap();
    assert_eq!(entry.message, Message::Assistant(Box::new(answer)));
    assert_eq!((entry.seq, entry.parts), (4, vec![(5, whole)]), "both keep their positions");
    assert_eq!(world.number("select count(*) from session where todos->0->>'content' = 'test'").await, 1);
    assert_eq!(world.gap_free(&session).await, 10);
}

#[tokio::test]
async fn spending_adds_up_exactly_and_a_repeated_write_spends_once() {
    let mut world = World::new().await;
    let running = world.running().await;
    let tokens = Tokens { input: 1, output: 2, reasoning: 3, cache_read: 4, cache_write: 5 };
    for write_seq in [1, 2] {
        let spend = world.spend(tokens, 1_000_000_000_001);
        for _ in 0..2 {
            let spend = std::slice::from_ref(&spend);
            let written =
                world.store.append(&running.write(write_seq), spend, 0, Progress::Made, NOW).await.unwrap();
            assert_eq!(written.events[0].kind, "session.updated");
        }
    }
    let info = world.store.get_session(world.tenant, &running.session).await.unwrap().info;
    assert_eq!((info.tokens, info.cost), (tokens.plus(tokens), UsdPicos(2_000_000_000_002)));
}

#[tokio::test]
async fn a_generated_title_is_set_once_and_replaces_no_other() {
    let mut world = World::new().await;
    let running = world.running().await;
    let tokens = Tokens { input: 1, output: 2, ..Tokens::default() };
    for (write_seq, title, want) in
        [(1, Some("Fix it"), "Fix it"), (2, Some("Another one"), "Fix it"), (3, None, "Fix it")]
    {
        let title = Title {
            instead_of: "A session".to_owned(),
            title: title.map(str::to_owned),
            entries: vec![World::entry(&format!("title {write_seq}"), tokens, 5)],
        };
        let change = [Change { id: world.sample.event(), body: ChangeBody::Title(title) }];
        for _ in 0..2 {
            let written =
                world.store.append(&running.write(write_seq), &change, 0, Progress::None, NOW).await.unwrap();
            assert_eq!(written.events[0].kind, "session.updated");
            assert!(written.events[0].properties.contains(want), "{}", written.events[0].properties);
        }
        let info = world.store.get_session(world.tenant, &running.session).await.unwrap().info;
        assert_eq!((info.title.as_str(), info.cost), (want, UsdPicos(5 * i64::try_from(write_seq).unwrap())));
        assert_eq!((info.tokens.input, info.tokens.output), (write_seq, 2 * write_seq));
    }
    assert_eq!(world.gap_free(&running.session).await, 6);
}

#[tokio::test]
async fn parking_stores_the_outcome_of_the_turn() {
    let mut world = World::new().await;
    let running = world.running().await;
    let idle = [world.change(Event::SessionIdle(Outcome::Failed))];
    let end = world::idle(Outcome::Failed, Some("overloaded"));
    let early = world.store.park(&running.write(2), &idle, 1, &end, NOW).await;
    assert!(matches!(early, Err(Error::Fenced)), "a number was skipped");
    let fence = running.write(1);
    let parked = world.store.park(&fence, &idle, 1, &end, NOW).await.unwrap();
    let ParkOutcome::Parked(written) = parked.clone() else { panic!("{parked:?}") };
    assert_eq!((written.events[0].seq, written.events[0].kind.as_str()), (4, IDLE));
    let state = world.store.get_session(world.tenant, &running.session).await.unwrap();
    assert_eq!((state.phase, state.last_outcome), (Phase::Idle, Some(Outcome::Failed)));
    assert_eq!(state.last_error.as_deref(), Some("overloaded"));
    let again = world.store.park(&fence, &idle, 1, &end, NOW).await.unwrap();
    assert_eq!(again, parked, "a repeated parking is the same parking");
    assert_eq!(world.gap_free(&running.session).await, 4);

    world.accept(&running.session, "second").await;
    let taken = world.take(&running.session, running.worker).await.unwrap();
    assert_eq!((taken.input_ack, taken.attempts), (1, 1));
    let late = world.store.park(&running.write(2), &[], 2, &end, NOW).await;
    assert!(matches!(late, Err(Error::Fenced)), "{late:?}");
}

#[tokio::test]
async fn a_loop_that_has_not_seen_an_input_does_not_park() {
    let mut world = World::new().await;
    let running = world.running().await;
    world.accept(&running.session, "second").await;
    let idle = [world.change(Event::SessionIdle(Outcome::Done))];
    let park = async |read_input| {
        world.store.park(&running.write(1), &idle, read_input, &world::idle(Outcome::Done, None), NOW).await
    };
    assert_eq!(park(1).await.unwrap(), ParkOutcome::NewInput);
    let state = world.store.get_session(world.tenant, &running.session).await.unwrap();
    assert_eq!(
        (state.phase, state.last_outcome, state.event_seq),
        (Phase::Running, None, 5),
        "nothing was written"
    );
    assert!(matches!(park(2).await.unwrap(), ParkOutcome::Parked(_)));
}

/// In either order, no prompt remains in an idle session.
#[tokio::test]
async fn a_prompt_during_parking_is_never_lost() {
    let mut world = World::new().await;
    for round in 0..20 {
        let running = world.running().await;
        let prompt = world.prompt(&running.session, &format!("late {round}"));
        let fence = running.write(1);
        let (parked, accepted) =
            tokio::join!(world.park(&fence), world.store.accept_prompt(world.tenant, &prompt, NOW));
        let phase = world.store.get_session(world.tenant, &running.session).await.unwrap().phase;
        let want = if parked.is_some() { (Phase::Runnable, true) } else { (Phase::Running, false) };
        assert_eq!((phase, accepted.unwrap().runnable), want, "round {round}");
    }
}

/// A loop keeps writing while its session is taken over. After the takeover every write fails.
#[tokio::test]
async fn a_takeover_fences_the_writes_of_the_previous_loop() {
    let mut world = World::new().await;
    let running = world.running().await;
    let successor = world.worker().await;
    let mut sample = Sample::new(2);
    let mut change = || {
        let what = ChangeBody::Event(Event::SessionStatus(domain::event::Status::Busy));
        [Change { id: sample.event(), body: what }]
    };
    let changes: Vec<_> = (0..2_000).map(|_| change()).collect();
    let store = &world.store;
    let (written, underway) = tokio::sync::oneshot::channel();
    let old = async {
        let mut written = Some(written);
        for (write_seq, change) in (1..).zip(&changes) {
            match store.append(&running.write(write_seq), change, 0, Progress::None, NOW).await {
                Ok(_) if write_seq == 5 => written.take().unwrap().send(()).unwrap(),
                Ok(_) => {}
                Err(Error::Fenced) => return write_seq - 1,
                Err(error) => panic!("{error:?}"),
            }
        }
        panic!("the loop was not fenced")
    };
    let new = async {
        underway.await.unwrap();
        store.forget_worker(running.worker).await.unwrap();
        let fence = world.take(&running.session, successor).await.unwrap().fence;
        let mine = Change { id: Sample::new(3).event(), body: changes[0][0].body.clone() };
        store.append(&Fence { write_seq: 1, ..fence }, &[mine], 0, Progress::None, NOW).await.unwrap().events
    };
    let (old_writes, new_events) = tokio::join!(old, new);
    assert!(old_writes >= 5);
    assert_eq!(world.gap_free(&running.session).await, new_events[0].seq, "no event follows the successor's");
    assert_eq!(new_events[0].seq, 3 + old_writes + 1);
    assert_eq!(new_events[0].epoch, 2);
}

/// The limit of moved index entries in 200 updates. A page fills while another transaction, such as an analyze, still
/// sees old rows.
const MOVED_MAX: i64 = 20;

#[tokio::test]
async fn writing_moves_no_index_entry_of_the_control_row() {
    let mut world = World::new().await;
    let running = world.running().await;
    let before = updates(&world).await;
    for write_seq in 1..=200 {
        world.append(&running.write(write_seq)).await.unwrap();
    }
    // Connections report their statistics when they end.
    world.store.close().await;
    testkit::eventually("the updates are counted", async || updates(&world).await.0 >= before.0 + 200).await;
    let after = updates(&world).await;
    let (all, hot) = (after.0 - before.0, after.1 - before.1);
    assert!(all - hot <= MOVED_MAX, "{} of {all} updates left their page", all - hot);
}

/// Only a phase change moves an index entry. A session that waits and wakes repeatedly costs three of them each time,
/// and the writes in between cost none.
#[tokio::test]
async fn waiting_moves_no_more_index_entries_than_its_phases() {
    const ROUNDS: i64 = 10;
    const WRITES: i64 = 20;
    let mut world = World::new().await;
    let mut parent = world.actor().await;
    let (call, child) = world.child(&mut parent).await;
    let worker = world.worker().await;
    let session = parent.session().clone();
    let before = updates(&world).await;
    for round in 0..ROUNDS {
        for _ in 0..WRITES / 2 {
            world.append(&parent.next()).await.unwrap();
            let event = world.sample.event();
            world.store.report_child(&child.fence, &call, &json!([]), &event, NOW).await.unwrap().unwrap();
        }
        let read_input = u64::try_from(round).unwrap() + 1;
        let wait = crate::family::waiting(domain::wait::Reason::BackOff, Some(domain::ids::Timestamp(0)));
        assert!(matches!(world.park_as(&mut parent, read_input, &wait).await, ParkOutcome::Parked(_)));
        world.accept(&session, &format!("round {round}")).await;
        parent = crate::family::Actor { fence: world.take(&session, worker).await.unwrap().fence };
    }
    let want = ROUNDS * (WRITES + 3);
    world.store.close().await;
    testkit::eventually("the updates are counted", async || updates(&world).await.0 >= before.0 + want).await;
    let after = updates(&world).await;
    let (all, hot) = (after.0 - before.0, after.1 - before.1);
    assert!(all - hot <= ROUNDS * 3 + MOVED_MAX, "{} of {all} updates left their page", all - hot);
}

/// Updates of the control rows: all, and those that stayed on their page.
async fn updates(world: &World) -> (i64, i64) {
    let count = async |column: &str| {
        world.number(&format!("select {column} from pg_stat_user_tables where relname = 'session_run'")).await
    };
    (count("n_tup_upd").await, count("n_tup_hot_upd").await)
}
