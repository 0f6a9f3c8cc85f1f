//! The mailbox: a prompt is accepted once, wakes its session once, and is never lost.

use crate::world::{World, beat};
use domain::{
    conversation::{
        message::{Message, ModelRef, User},
        part::{Body, Text},
    },
    event::Event,
    ids::SessionId,
    limits,
    session::Phase,
};
use store::{
    error::{Entity, Error},
    log::record::Progress,
    session::{
        forks::NewFork,
        inputs::{Prompt, Reply, VariantChoice},
        mailbox::{Kind, MailboxInput},
        sessions::Patch,
    },
};
use testkit::sample::{self, NOW};

#[tokio::test]
async fn a_prompt_makes_an_idle_session_runnable_in_one_step() {
    let mut world = World::new().await;
    let session = world.session().await;
    let mut prompt = world.prompt(&session, "hello");
    prompt.traceparent = Some("00-1-2-01".to_owned());
    let accepted = world.store.accept_prompt(world.tenant, &prompt, NOW).await.unwrap();
    assert_eq!((&accepted.message_id, accepted.inputs_ahead, accepted.runnable), (&prompt.id, 0, true));
    let kinds: Vec<_> = accepted.events.iter().map(|event| (event.seq, event.kind.as_str())).collect();
    assert_eq!(kinds, [(2, "message.updated"), (3, "message.part.updated")]);
    let state = world.store.get_session(world.tenant, &session).await.unwrap();
    assert_eq!((state.phase, state.queue_position, state.event_seq), (Phase::Runnable, 1, 3));
    let entry = world.store.get_message(world.tenant, &session, &prompt.id).await.unwrap();
    assert_eq!((entry.message.id(), entry.parts), (&prompt.id, vec![(3, prompt.parts[0].clone())]));
    let want = MailboxInput {
        seq: 1,
        kind: Kind::Prompt,
        dedupe: prompt.dedupe.clone(),
        message_id: Some(prompt.id.clone()),
        body: None,
        traceparent: prompt.traceparent.clone(),
    };
    assert_eq!(world.store.list_inputs(world.tenant, &session, 0).await.unwrap(), [want]);
    assert_eq!(world.store.list_inputs(world.tenant, &session, 1).await.unwrap(), []);
}

#[tokio::test]
async fn a_prompt_is_stored_with_one_statement() {
    let mut world = World::new().await;
    let session = world.session().await;
    assert_eq!(world.accept(&session, "hello").await.events.len(), 2);
    let newest = world.newest_statement().await;
    assert!(newest.starts_with("with behind as"), "no transaction has to end: {newest}");
    world.gap_free(&session).await;
}

#[tokio::test]
async fn a_prompt_that_meets_another_write_is_stored_behind_it_for_the_session_as_it_then_is() {
    let mut world = World::new().await;
    let session = world.session().await;
    let prompt = world.prompt(&session, "hello");
    let mut client = world.writing_client(&session).await;
    sqlx::raw_sql("update session set agent = 'plan'").execute(&mut client).await.unwrap();
    let commit = async {
        world.wait_for_lock().await;
        sqlx::raw_sql("commit").execute(&mut client).await.unwrap();
    };
    let (accepted, ()) = tokio::join!(world.store.accept_prompt(world.tenant, &prompt, NOW), commit);
    let seqs: Vec<_> = accepted.unwrap().events.iter().map(|event| event.seq).collect();
    assert_eq!(seqs, [3, 4], "the other write has event 2");
    assert_eq!(newest_prompt(&world, &session).await.agent, "plan");
    assert_eq!(world.gap_free(&session).await, 4);
    assert_eq!(world.number("select input_seq from session_run").await, 1);
}

#[tokio::test]
async fn a_prompt_is_stored_although_postgres_closed_the_connections() {
    let mut world = World::new().await;
    let session = world.session().await;
    world.accept(&session, "first").await;
    let end = "select pg_terminate_backend(pid, 5000) from pg_stat_activity
                where datname = current_database() and usename = 'flotilla_app'";
    world.sql(end).await;
    assert_eq!(world.accept(&session, "second").await.inputs_ahead, 1);
    assert_eq!(world.gap_free(&session).await, 5);
}

#[tokio::test]
async fn a_prompt_restores_an_archived_session_and_a_repeated_one_does_not() {
    let mut world = World::new().await;
    let session = world.session().await;
    let patch = Patch { title: None, archived: Some(true), ..Patch::default() };
    for (text, want) in [
        ("hello", vec![(3, "session.updated"), (4, "message.updated"), (5, "message.part.updated")]),
        ("hello", vec![]),
    ] {
        let event = world.sample.event();
        world.store.update_session(world.tenant, &session, &patch, &event, NOW).await.unwrap();
        let accepted = world.accept(&session, text).await;
        let kinds: Vec<_> = accepted.events.iter().map(|event| (event.seq, event.kind.as_str())).collect();
        assert_eq!(kinds, want);
        let info = world.store.get_session(world.tenant, &session).await.unwrap().info;
        assert_eq!(info.time.archived.is_some(), want.is_empty());
        let is_told = |event: &domain::event::StoredEvent| !event.properties.contains("\"archived\"");
        assert!(accepted.events.first().is_none_or(is_told), "{:?}", accepted.events.first());
    }
    assert_eq!(world.gap_free(&session).await, 6);
}

#[tokio::test]
async fn a_repeated_key_is_the_same_prompt_and_another_body_a_conflict() {
    let mut world = World::new().await;
    let session = world.session().await;
    let prompt = world.prompt(&session, "hello");
    assert_eq!(world.store.find_prompt(world.tenant, &prompt).await.unwrap(), None);
    let first = world.accept(&session, "hello").await;
    assert_eq!(world.accept(&session, "second").await.inputs_ahead, 1);
    let found = world.store.find_prompt(world.tenant, &prompt).await.unwrap().unwrap();
    assert_eq!((&found.message_id, found.inputs_ahead, found.runnable), (&first.message_id, 0, false));

    let again = world.accept(&session, "hello").await;
    assert_eq!((&again.message_id, again.inputs_ahead), (&first.message_id, 0));
    assert_eq!((again.events, again.runnable), (vec![], false));
    let mut other = world.prompt(&session, "other");
    other.dedupe = "hello".to_owned();
    let result = world.store.accept_prompt(world.tenant, &other, NOW).await;
    assert!(matches!(result, Err(Error::Conflict)), "{result:?}");
    let found = world.store.find_prompt(world.tenant, &other).await;
    assert!(matches!(found, Err(Error::Conflict)), "{found:?}");
    assert_eq!(world.number("select count(*) from message").await, 2);
    assert_eq!(world.gap_free(&session).await, 5);
}

#[tokio::test]
async fn a_note_wakes_no_session_and_a_message_keeps_its_id() {
    let mut world = World::new().await;
    let session = world.session().await;
    let mut note = world.prompt(&session, "note");
    note.reply = Reply::None;
    let accepted = world.store.accept_prompt(world.tenant, &note, NOW).await.unwrap();
    assert!(!accepted.runnable);
    let state = world.store.get_session(world.tenant, &session).await.unwrap();
    assert_eq!((state.phase, state.event_seq), (Phase::Idle, 3));
    assert_eq!(
        world.number("select input_seq - input_ack from session_run").await,
        0,
        "no worker may take it"
    );
    let again = world.store.accept_prompt(world.tenant, &note, NOW).await.unwrap();
    assert_eq!((again.message_id, again.events), (note.id.clone(), vec![]));

    let mut other = world.prompt(&session, "other");
    other.id = note.id.clone();
    let result = world.store.accept_prompt(world.tenant, &other, NOW).await;
    assert!(matches!(result, Err(Error::Conflict)), "another prompt of the same id: {result:?}");

    world.accept(&session, "begin").await;
    let mut late = world.prompt(&session, "late");
    late.reply = Reply::None;
    world.store.accept_prompt(world.tenant, &late, NOW).await.unwrap();
    assert_eq!(world.number("select input_seq - input_ack from session_run").await, 2, "the loop takes it");
    world.gap_free(&session).await;
}

#[tokio::test]
async fn concurrent_prompts_with_one_key_make_one_message() {
    let mut world = World::new().await;
    let session = world.session().await;
    let prompts: Vec<_> = (0..8).map(|_| world.prompt(&session, "hello")).collect();
    let accepted = prompts.iter().map(|prompt| world.store.accept_prompt(world.tenant, prompt, NOW));
    let accepted = futures::future::try_join_all(accepted).await.unwrap();
    assert_eq!(accepted.iter().filter(|accepted| accepted.runnable).count(), 1);
    assert!(accepted.iter().all(|other| other.message_id == accepted[0].message_id));
    assert_eq!(world.number("select count(*) from message").await, 1);
}

#[tokio::test]
async fn concurrent_writers_leave_no_gap_in_the_events() {
    let mut world = World::new().await;
    let running = world.running().await;
    let prompts: Vec<_> =
        (0..40).map(|number| world.prompt(&running.session, &format!("prompt {number}"))).collect();
    let intakes = prompts.chunks(5).map(async |prompts| {
        for prompt in prompts {
            let accepted = world.store.accept_prompt(world.tenant, prompt, NOW).await.unwrap();
            assert!(!accepted.runnable, "its loop runs");
        }
    });
    let changes: Vec<_> = {
        let mut sample = testkit::sample::Sample::new(2);
        let what = store::log::change::ChangeBody::Event(domain::event::Event::SessionStatus(
            domain::event::Status::Busy,
        ));
        (0..40).map(|_| store::log::change::Change { id: sample.event(), body: what.clone() }).collect()
    };
    let appends = async {
        for (write_seq, change) in (1..).zip(&changes) {
            let change = std::slice::from_ref(change);
            let none = store::log::record::Progress::None;
            world.store.append(&running.write(write_seq), change, 0, none, NOW).await.unwrap();
        }
    };
    tokio::join!(futures::future::join_all(intakes), appends);
    assert_eq!(world.gap_free(&running.session).await, 3 + 40 * 2 + 40);
    let inputs = world.store.list_inputs(world.tenant, &running.session, 0).await.unwrap();
    assert_eq!(inputs.iter().map(|input| input.seq).collect::<Vec<_>>(), (1..=41).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_session_with_a_full_mailbox_refuses_prompts() {
    let mut world = World::new().await;
    let session = world.session().await;
    world.accept(&session, "hello").await;
    world.sql(&format!("update session_run set input_seq = {}", limits::INPUTS_PENDING_MAX)).await;
    let prompt = world.prompt(&session, "one more");
    let result = world.store.accept_prompt(world.tenant, &prompt, NOW).await;
    assert!(matches!(result, Err(Error::TooManyInputs(limits::INPUTS_PENDING_MAX))), "{result:?}");
    assert_eq!(world.accept(&session, "hello").await.events, [], "an earlier prompt is still accepted");
    assert_eq!(world.number("select count(*) from message").await, 1);
}

#[tokio::test]
async fn a_session_refuses_prompts_that_its_loop_could_not_load() {
    let mut world = World::new().await;
    let running = world.running().await;
    let session = running.session.clone();
    world.sql(&format!("update session_run set prompt_bytes = {}", limits::SESSION_PROMPTS_BYTES_MAX)).await;
    let mut note = world.prompt(&session, "a note");
    note.reply = Reply::None;
    let mut large = world.prompt(&session, "a large prompt");
    let text = "x".repeat(usize::try_from(limits::SESSION_PROMPT_BEYOND_BYTES).unwrap());
    large.parts[0].body = Body::Text(Text { text, ..Text::default() });
    for prompt in [&note, &large] {
        let result = world.store.accept_prompt(world.tenant, prompt, NOW).await;
        assert!(matches!(result, Err(Error::PromptsTooLarge { .. })), "{result:?}");
    }
    world.accept(&session, "a small prompt").await;
    let compacted = world.change(Event::SessionCompacted);
    world.store.append(&running.write(1), &[compacted], 0, Progress::Made, NOW).await.unwrap();
    for prompt in [&note, &large] {
        world.store.accept_prompt(world.tenant, prompt, NOW).await.unwrap();
    }
    let bytes = world.number("select prompt_bytes from session_run").await;
    assert!(bytes > i64::try_from(limits::SESSION_PROMPT_BEYOND_BYTES).unwrap());
}

#[tokio::test]
async fn a_prompt_wakes_a_waiting_session_and_leaves_a_running_one_to_its_loop() {
    let mut world = World::new().await;
    for (phase, want) in [(3, Phase::Runnable), (2, Phase::Running)] {
        let session = world.session().await;
        let set =
            format!("update session_run set phase = {phase}, wake_at = now() where session_id = '{session}'");
        world.sql(&set).await;
        world.accept(&session, "hello").await;
        assert_eq!(world.store.get_session(world.tenant, &session).await.unwrap().phase, want);
    }
    assert_eq!(
        world.number("select count(*) from session_run where phase = 1 and wake_at is not null").await,
        0
    );
}

#[tokio::test]
async fn an_unknown_session_refuses_inputs() {
    let mut world = World::new().await;
    let session = world.sample.session();
    let prompt = world.prompt(&session, "hello");
    let result = world.store.accept_prompt(world.tenant, &prompt, NOW).await;
    assert!(matches!(result, Err(Error::NotFound(Entity::Session))), "{result:?}");
    let result = world.store.accept_abort(world.tenant, &session, "a1").await;
    assert!(matches!(result, Err(Error::NotFound(Entity::Session))), "{result:?}");
}

#[tokio::test]
async fn an_abort_reaches_the_loop_and_leaves_an_idle_session_alone() {
    let mut world = World::new().await;
    let idle = world.session().await;
    assert_eq!(world.store.accept_abort(world.tenant, &idle, "a1").await.unwrap(), None);
    assert_eq!(world.store.list_inputs(world.tenant, &idle, 0).await.unwrap(), []);
    assert_eq!(world.store.get_session(world.tenant, &idle).await.unwrap().phase, Phase::Idle);

    let running = world.running().await;
    assert!(world.store.accept_abort(world.tenant, &running.session, "a1").await.unwrap().is_some());
    let inputs = world.store.list_inputs(world.tenant, &running.session, 1).await.unwrap();
    assert_eq!(
        inputs,
        [MailboxInput {
            seq: 2,
            kind: Kind::Abort,
            dedupe: "a1".to_owned(),
            message_id: None,
            body: None,
            traceparent: None
        }]
    );
    let orders = world.store.renew_worker(&beat(running.worker)).await.unwrap().aborts;
    assert_eq!(orders.iter().map(|place| &place.session).collect::<Vec<_>>(), [&running.session]);
    let written = world.append(&running.write(1)).await.unwrap();
    assert_eq!((written.input_seq, written.cancel_seq), (2, 2));
    assert!(world.park(&running.write(2)).await.is_none(), "the abort was not seen");
}

#[tokio::test]
async fn an_abort_needs_no_worker() {
    let mut world = World::new().await;
    let session = world.session().await;
    world.accept(&session, "hello").await;
    assert!(world.store.accept_abort(world.tenant, &session, "a1").await.unwrap().is_some());
    assert_eq!(world.store.get_session(world.tenant, &session).await.unwrap().phase, Phase::Runnable);
    let waiting = world.session().await;
    world.sql(&format!("update session_run set phase = 3 where session_id = '{waiting}'")).await;
    assert!(world.store.accept_abort(world.tenant, &waiting, "a1").await.unwrap().is_some());
    assert_eq!(world.store.get_session(world.tenant, &waiting).await.unwrap().phase, Phase::Runnable);
}

#[tokio::test]
async fn an_input_of_a_newer_version_is_an_error() {
    let mut world = World::new().await;
    let running = world.running().await;
    world.store.accept_abort(world.tenant, &running.session, "a1").await.unwrap();
    world.sql("update session_input set kind = 'hologram' where kind = 'abort'").await;
    let read = world.store.list_inputs(world.tenant, &running.session, 0).await;
    let Err(Error::Unreadable { source, .. }) = &read else { panic!("{read:?}") };
    assert!(source.to_string().contains("\"hologram\""), "{source}");
}

async fn newest_prompt(world: &World, session: &SessionId) -> User {
    let talk = world.store.load_conversation(world.tenant, session, 0).await.unwrap();
    let Message::User(user) = &talk.last().unwrap().message else { panic!("a prompt") };
    user.clone()
}

/// The variant of the newest user message.
async fn newest_variant(world: &World, session: &SessionId) -> Option<String> {
    newest_prompt(world, session).await.model.variant
}

#[tokio::test]
async fn a_prompt_is_answered_by_what_it_names_and_otherwise_by_what_its_session_has() {
    let mut world = World::new().await;
    let (session, model) = (world.session().await, sample::model());
    world.accept(&session, "by the session's").await;
    let user = newest_prompt(&world, &session).await;
    assert_eq!((user.agent.as_str(), &user.model.model), ("build", &model));

    let other = ModelRef { provider_id: "other".to_owned(), model_id: "large".to_owned() };
    let prompt = world.prompt(&session, "by its own");
    let prompt = Prompt { agent: Some("plan".to_owned()), model: Some(other.clone()), ..prompt };
    world.store.accept_prompt(world.tenant, &prompt, NOW).await.unwrap();
    let user = newest_prompt(&world, &session).await;
    assert_eq!((user.agent.as_str(), user.model.model), ("plan", other));

    world.accept(&session, "by the session's again").await;
    let user = newest_prompt(&world, &session).await;
    assert_eq!(
        (user.agent.as_str(), user.model.model),
        ("build", model),
        "a prompt names them for itself only"
    );
}

#[tokio::test]
async fn a_receipt_tells_the_position_in_the_queue_of_the_tenant() {
    let mut world = World::new().await;
    let sessions = [world.session().await, world.session().await];
    let position = async |world: &mut World, session: usize, text: &str| {
        let prompt = Prompt { with_queue_position: true, ..world.prompt(&sessions[session], text) };
        world.store.accept_prompt(world.tenant, &prompt, NOW).await.unwrap().queue_position
    };
    assert_eq!(position(&mut world, 0, "first").await, 1);
    assert_eq!(position(&mut world, 1, "behind it").await, 2);
    assert_eq!(position(&mut world, 0, "keeps its place").await, 1);
    assert_eq!(world.accept(&sessions[1], "not asked for").await.queue_position, 0);
    let worker = world.worker().await;
    world.take(&sessions[0], worker).await.unwrap();
    assert_eq!(position(&mut world, 0, "a loop has it").await, 0);
    assert_eq!(position(&mut world, 1, "moves up").await, 1);
}

#[tokio::test]
async fn a_prompt_without_a_variant_gets_the_last_chosen_one_and_so_does_a_fork() {
    let mut world = World::new().await;
    let session = world.session().await;
    let named = |name: &str| VariantChoice::Named(name.to_owned());
    for (number, (choice, want)) in [
        (VariantChoice::Session, None),
        (named("high"), Some("high")),
        (VariantChoice::Session, Some("high")),
        (VariantChoice::Provider, None),
        (VariantChoice::Session, None),
    ]
    .into_iter()
    .enumerate()
    {
        let mut prompt = world.prompt(&session, &format!("prompt {number}"));
        prompt.variant = choice;
        world.store.accept_prompt(world.tenant, &prompt, NOW).await.unwrap();
        assert_eq!(newest_variant(&world, &session).await.as_deref(), want, "prompt {number}");
    }
    let mut chosen = world.prompt(&session, "low");
    chosen.variant = named("low");
    world.store.accept_prompt(world.tenant, &chosen, NOW).await.unwrap();
    let (new, event) = (world.new_session(), world.sample.event());
    let fork = NewFork { origin: &session, session: &new, event_id: &event, before_seq: 0 };
    world.store.fork_session(world.tenant, fork, &mut |_| vec![], NOW).await.unwrap();
    world.accept(&new.id, "in the fork").await;
    assert_eq!(newest_variant(&world, &new.id).await.as_deref(), Some("low"));
}
