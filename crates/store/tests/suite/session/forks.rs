//! Sessions that start with the history of another session.

use crate::world::World;
use domain::{
    conversation::{
        message::Message,
        part::{Body, Part, StepStart},
    },
    event::Event,
    policy::permission::Rules,
};
use store::{
    error::{Entity, Error},
    log::{messages::MessageWithParts, record::Progress},
    session::forks::NewFork,
};
use testkit::sample::NOW;

#[tokio::test]
async fn a_fork_has_the_rules_of_its_origin_and_the_given_history() {
    let mut world = World::new().await;
    let origin = world.new_session();
    let event = world.sample.event();
    world.store.create_session(world.tenant, &origin, &event, NOW).await.unwrap();
    let rights = r#"[[{"permission":"bash","pattern":"*","action":"deny"}],[]]"#;
    world.sql(&format!("update session set rights = '{rights}' where id = '{}'", origin.id)).await;
    let new = store::session::creation::NewSession { rules: Rules::default(), ..world.new_session() };
    let user = world.sample.user(&new.id);
    let part = world.sample.text(&new.id, &user.id, "said before");
    let events = [
        Event::MessageUpdated(Box::new(Message::User(user.clone()))),
        Event::PartUpdated { part: Box::new(part), at: NOW },
    ];
    let mut history = events.map(|event| world.change(event)).to_vec();
    for text in ["copied", "not copied"] {
        world.accept(&origin.id, text).await;
    }
    let messages = world.store.load_outline(world.tenant, &origin.id).await.unwrap();
    let (event, before_seq) = (world.sample.event(), messages[1].seq);
    let fork = NewFork { origin: &origin.id, session: &new, event_id: &event, before_seq };
    let mut copied = vec![];
    let mut copy = |entries: &[MessageWithParts]| {
        copied.extend(entries.iter().map(|entry| entry.message.id().clone()));
        std::mem::take(&mut history)
    };
    let fork = world.store.fork_session(world.tenant, fork, &mut copy, NOW).await.unwrap();
    assert_eq!(copied, [messages[0].id.clone()]);
    assert_eq!(fork.created.map(|event| event.kind).as_deref(), Some("session.created"));
    assert_eq!((world.gap_free(&new.id).await, fork.session.event_seq), (3, 3));
    let talk = world.store.load_conversation(world.tenant, &new.id, 0).await.unwrap();
    assert_eq!((talk.len(), talk[0].message.id(), talk[0].parts.len()), (1, &user.id, 1));
    let of = |session: &store::rows::session_row::Session| session.permissions.clone();
    let stored_origin = world.store.get_session(world.tenant, &origin.id).await.unwrap();
    assert_eq!((of(&fork.session), of(&fork.session).len()), (of(&stored_origin), 2));
    let bytes = "select count(distinct prompt_bytes) from session_run where prompt_bytes > 0";
    assert_eq!(world.number(bytes).await, 1, "the fork counts the prompts of its origin");
    let (other, missing, event) = (world.sample.tenant(), world.new_session(), world.sample.event());
    let fork = NewFork { origin: &origin.id, session: &missing, event_id: &event, before_seq };
    let hidden = world.store.fork_session(other, fork, &mut |_| vec![], NOW).await;
    assert!(matches!(hidden, Err(Error::NotFound(Entity::Session))));
}

#[tokio::test]
async fn a_long_history_is_copied_page_by_page() {
    let mut world = World::new().await;
    let origin = world.session().await;
    for number in 0..=200 {
        world.accept(&origin, &format!("prompt {number}")).await;
    }
    let (new, event) = (world.new_session(), world.sample.event());
    let fork = NewFork { origin: &origin, session: &new, event_id: &event, before_seq: u64::MAX };
    let (mut pages, mut change) = (vec![], vec![world.change(Event::SessionReleased)]);
    let mut copy = |entries: &[MessageWithParts]| {
        pages.push(entries.len());
        std::mem::take(&mut change)
    };
    let fork = world.store.fork_session(world.tenant, fork, &mut copy, NOW).await.unwrap();
    assert_eq!((pages, fork.session.event_seq), (vec![200, 1], 2));
    assert_eq!(world.gap_free(&new.id).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_waits_for_the_copy_of_the_history() {
    let mut world = World::new().await;
    let origin = world.session().await;
    world.accept(&origin, "copied").await;
    let (new, event) = (world.new_session(), world.sample.event());
    let fork = NewFork { origin: &origin, session: &new, event_id: &event, before_seq: u64::MAX };
    let (store, tenant, id) = (world.store.clone(), world.tenant, origin.clone());
    let runtime = tokio::runtime::Handle::current();
    let mut deletion = None;
    let mut copy = |entries: &[MessageWithParts]| {
        assert_eq!(entries.len(), 1);
        let (store, id) = (store.clone(), id.clone());
        let deleting = runtime.spawn(async move { store.delete_session(tenant, &id).await });
        let waiting = "select count(*) from pg_stat_activity
                        where datname = current_database() and wait_event_type = 'Lock'";
        tokio::task::block_in_place(|| {
            while runtime.block_on(world.number(waiting)) == 0 {
                assert!(!deleting.is_finished(), "the deletion does not wait");
            }
        });
        deletion = Some(deleting);
        vec![]
    };
    world.store.fork_session(world.tenant, fork, &mut copy, NOW).await.unwrap();
    deletion.unwrap().await.unwrap().unwrap();
    assert!(world.store.get_session(world.tenant, &new.id).await.is_ok());
    let gone = world.store.get_session(world.tenant, &origin).await;
    assert!(matches!(gone, Err(Error::NotFound(Entity::Session))));
}

#[tokio::test]
async fn the_branch_of_a_session_is_stored_with_its_event() {
    let mut world = World::new().await;
    let running = world.running().await;
    for (number, branch) in [(1, Some("feature/x")), (2, None)] {
        let branch = branch.map(ToOwned::to_owned);
        let change = world.change(Event::BranchUpdated(branch.clone()));
        let written =
            world.store.append(&running.write(number), &[change], 0, Progress::None, NOW).await.unwrap();
        assert_eq!(written.events[0].kind, "vcs.branch.updated");
        let session = world.store.get_session(world.tenant, &running.session).await.unwrap();
        assert_eq!(session.branch, branch);
    }
}

#[tokio::test]
async fn the_oldest_snapshot_is_found() {
    let mut world = World::new().await;
    let running = world.running().await;
    let prompt = world.sample.user(&running.session);
    let step = world.sample.assistant(&running.session, &prompt.id);
    let mut changes =
        vec![world.change(Event::MessageUpdated(Box::new(Message::Assistant(Box::new(step.clone())))))];
    for snapshot in [None, Some("first"), Some("second")] {
        let body = Body::StepStart(StepStart { snapshot: snapshot.map(ToOwned::to_owned) });
        let part = Part { body, ..world.sample.text(&running.session, &step.id, "") };
        changes.push(world.change(Event::PartUpdated { part: Box::new(part), at: NOW }));
    }
    let find =
        async |world: &World, tenant| world.store.find_first_state(tenant, &running.session).await.unwrap();
    assert_eq!(find(&world, world.tenant).await, None);
    world.store.append(&running.write(1), &changes, 0, Progress::None, NOW).await.unwrap();
    assert_eq!(find(&world, world.tenant).await.as_deref(), Some("first"));
    let other = world.sample.tenant();
    assert_eq!(find(&world, other).await, None);
}
