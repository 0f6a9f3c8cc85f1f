//! Sessions: created once for each key, listed without a gap, deleted with all of their rows.

use crate::world::World;
use domain::{
    event::Event,
    ids::{ProjectId, Timestamp},
    session::Phase,
};
use store::{
    Page,
    error::{Entity, Error},
    log::record::Progress,
    rows::session_row::Session,
    session::{
        creation::{IdempotencyKey, NewSession},
        forks::NewFork,
        sessions::{Filter, Patch},
        tree::children::{Dispatch, DispatchOutcome},
    },
    tenant::worktrees::SessionArea,
};
use testkit::sample::NOW;

fn key(name: &str) -> IdempotencyKey {
    IdempotencyKey { name: name.to_owned(), body_sha256: None }
}

#[tokio::test]
async fn a_single_statement_needs_no_transaction() {
    let mut world = World::new().await;
    let session = world.session().await;
    world.store.note_workspace(world.tenant, &session).await.unwrap();
    let newest = world.newest_statement().await;
    assert!(newest.starts_with("update session set has_workspace"), "no transaction has to end: {newest}");
    world.store.get_session(world.tenant, &session).await.unwrap();
    let newest = world.newest_statement().await;
    assert!(newest.starts_with("select s.id"), "no transaction has to end: {newest}");
}

#[tokio::test]
async fn a_new_session_is_idle_and_has_one_event() {
    let mut world = World::new().await;
    let (new, event) = (world.new_session(), world.sample.event());
    let (session, events) = world.store.create_session(world.tenant, &new, &event, NOW).await.unwrap();
    assert_eq!((&session.info.id, &session.info.project_id), (&new.id, &new.project_id));
    assert_eq!(
        (session.info.title.as_str(), session.phase, session.queue_position),
        ("A session", Phase::Idle, 0)
    );
    assert_eq!((session.epoch, session.event_seq), (0, 1));
    assert_eq!(
        (events[0].seq, events[0].id.as_str(), events[0].kind.as_str()),
        (1, event.as_str(), "session.created")
    );
    assert_eq!(events, world.store.list_events(world.tenant, &new.id, 0, 10).await.unwrap().events);
    assert_eq!(world.store.get_session(world.tenant, &new.id).await.unwrap(), session);
    let unknown = world.sample.session();
    assert!(matches!(
        world.store.get_session(world.tenant, &unknown).await,
        Err(Error::NotFound(Entity::Session))
    ));
}

#[tokio::test]
async fn a_repeated_key_gives_the_same_session() {
    let mut world = World::new().await;
    let (mut new, event) = (world.new_session(), world.sample.event());
    new.key = Some(key("key"));
    let (first, events) = world.store.create_session(world.tenant, &new, &event, NOW).await.unwrap();
    assert_eq!(events.len(), 1);
    let (mut again, event) = (world.new_session(), world.sample.event());
    again.key.clone_from(&new.key);
    assert_eq!(world.store.create_session(world.tenant, &again, &event, NOW).await.unwrap(), (first, vec![]));
    assert_eq!(world.number("select count(*) from session").await, 1);
}

#[tokio::test]
async fn a_key_that_named_something_else_is_refused() {
    let mut world = World::new().await;
    let bodies = [None, Some([1; 32]), Some([2; 32])];
    for (number, mine) in bodies.into_iter().enumerate() {
        let (mut new, event) = (world.new_session(), world.sample.event());
        new.key = Some(IdempotencyKey { body_sha256: mine, ..key(&number.to_string()) });
        world.store.create_session(world.tenant, &new, &event, NOW).await.unwrap();
        for theirs in bodies {
            let key = IdempotencyKey { body_sha256: theirs, ..key(&number.to_string()) };
            let (again, event) =
                (NewSession { key: Some(key.clone()), ..world.new_session() }, world.sample.event());
            let found = world.store.find_keyed_session(world.tenant, &key).await;
            let creation = world.store.create_session(world.tenant, &again, &event, NOW).await;
            let forked = world
                .store
                .fork_session(
                    world.tenant,
                    NewFork { origin: &new.id, session: &again, event_id: &event, before_seq: 0 },
                    &mut |_| vec![],
                    NOW,
                )
                .await;
            if mine == theirs {
                let sessions = [found.unwrap().unwrap(), creation.unwrap().0, forked.unwrap().session];
                assert_eq!(sessions.map(|session| session.info.id), [(); 3].map(|()| new.id.clone()));
            } else {
                assert!(matches!(found, Err(Error::Conflict)), "{mine:?} and {theirs:?}");
                assert!(matches!((creation, forked), (Err(Error::Conflict), Err(Error::Conflict))));
            }
        }
    }
    let stranger = world.sample.tenant();
    assert_eq!(world.store.find_keyed_session(stranger, &key("0")).await.unwrap(), None);
    assert_eq!(world.store.find_keyed_session(world.tenant, &key("unused")).await.unwrap(), None);
}

#[tokio::test]
async fn a_caller_cannot_take_the_name_of_a_child() {
    let mut world = World::new().await;
    let mut parent = world.actor().await;
    let (call, changes) = world.call(parent.session());
    let name = Some(key(&format!("task:{}", call.part_id)));
    let (mut early, event) = (world.new_session(), world.sample.event());
    early.key.clone_from(&name);
    let (early, _) = world.store.create_session(world.tenant, &early, &event, NOW).await.unwrap();
    let child = world.new_child(&call);
    let dispatched =
        world.store.dispatch_child(&parent.next(), &changes, &child, Dispatch::New, NOW).await.unwrap();
    assert!(matches!(dispatched, DispatchOutcome::Dispatched { .. }), "{dispatched:?}");
    let (mut late, event) = (world.new_session(), world.sample.event());
    late.key = name;
    let (late, _) = world.store.create_session(world.tenant, &late, &event, NOW).await.unwrap();
    assert_eq!(late, early, "the caller gets its session, not the child");
}

#[tokio::test]
async fn a_list_shows_the_same_queue_positions_as_the_sessions() {
    let mut world = World::new().await;
    let mut queued = vec![];
    for at in 0..12 {
        let session = world.session().await;
        if at % 4 != 3 {
            let class = at % 3;
            world
                .sql(&format!("update session_run set class = {class} where session_id = '{session}'"))
                .await;
            world.accept(&session, "begin").await;
            queued.push(session);
        }
    }
    let parent = queued[4].clone();
    world.sql(&format!("update session set parent_id = '{parent}' where id <> '{parent}'")).await;
    // Several sessions were created at the same moment.
    world.sql("update session_run set queued_at = date_trunc('minute', queued_at) where class = 1").await;
    let worker = world.worker().await;
    world.take(&queued[0], worker).await.unwrap();
    let filter = Filter { waiting: true, ..Filter::default() };
    let whole = world.store.list_sessions(world.tenant, &Filter::default(), &Page::default()).await.unwrap();
    let waiting = world.store.list_sessions(world.tenant, &filter, &Page::default()).await.unwrap();
    let children = world.store.list_children(world.tenant, &parent, &Page::default()).await.unwrap();
    assert_eq!((whole.len(), waiting.len(), children.len()), (12, 8, 11));
    let page = Page { limit: 3, cursor: None };
    let first = world.store.list_sessions(world.tenant, &filter, &page).await.unwrap();
    assert_eq!(first, waiting[..3], "a page does not change them");
    for session in whole.into_iter().chain(waiting).chain(children) {
        assert_eq!(world.store.get_session(world.tenant, &session.info.id).await.unwrap(), session);
    }
}

#[tokio::test]
async fn eight_concurrent_calls_with_one_key_create_one_session() {
    let mut world = World::new().await;
    let news: Vec<_> = (0..8)
        .map(|_| {
            let mut new = world.new_session();
            new.key = Some(key("key"));
            (new, world.sample.event())
        })
        .collect();
    let creations = news.iter().map(|(new, event)| world.store.create_session(world.tenant, new, event, NOW));
    let creations = futures::future::try_join_all(creations).await.unwrap();
    assert_eq!(creations.iter().filter(|(_, events)| !events.is_empty()).count(), 1);
    assert!(creations.iter().all(|(session, _)| session.info.id == creations[0].0.info.id));
}

#[tokio::test]
async fn an_unknown_project_has_no_sessions() {
    let mut world = World::new().await;
    for key in [None, Some(key("key"))] {
        let (mut new, event) = (world.new_session(), world.sample.event());
        (new.project_id, new.key) = (world.sample.project(), key);
        let result = world.store.create_session(world.tenant, &new, &event, NOW).await;
        assert!(matches!(result, Err(Error::NotFound(Entity::Project))), "{result:?}");
    }
}

/// Walks with cursors made as the API makes them: from the milliseconds that clients see.
async fn walk(world: &World, filter: &Filter, limit: u32) -> Vec<String> {
    let (mut ids, mut cursor) = (vec![], None);
    loop {
        let page = Page { limit, cursor };
        let sessions = world.store.list_sessions(world.tenant, filter, &page).await.unwrap();
        let Some(last) = sessions.last() else { return ids };
        cursor = Some(format!("{}.{}", last.info.time.updated.0, last.info.id));
        assert!(ids.len() < 100, "the walk does not end at {cursor:?}");
        ids.extend(sessions.iter().map(|Session { info, .. }| info.id.to_string()));
    }
}

#[tokio::test]
async fn lists_are_complete_and_show_the_last_updated_first() {
    let mut world = World::new().await;
    let mut ids = vec![];
    for _ in 0..7 {
        ids.push(world.session().await.to_string());
    }
    let whole = walk(&world, &Filter::default(), 50).await;
    for limit in [1, 3, 7] {
        assert_eq!(walk(&world, &Filter::default(), limit).await, whole);
    }
    assert!(ids.iter().all(|id| whole.contains(id)) && whole.len() == 7);

    let (id, event) = (ids[3].parse().unwrap(), world.sample.event());
    world.sql("update session set updated_at = updated_at - interval '1 minute'").await;
    world.store.update_session(world.tenant, &id, &Patch::default(), &event, NOW).await.unwrap();
    assert_eq!(walk(&world, &Filter::default(), 2).await[0], ids[3]);
    world.sql("update session set updated_at = updated_at - interval '1 minute'").await;
    world.accept(&ids[5].parse().unwrap(), "a prompt").await;
    assert_eq!(walk(&world, &Filter::default(), 2).await[0], ids[5]);
    // Some sessions share their moment.
    world.sql("update session set updated_at = '2026-11-01T00:00:00.123Z'").await;
    let mut walked = walk(&world, &Filter::default(), 2).await;
    walked.sort();
    ids.sort();
    assert_eq!(walked, ids);
}

#[tokio::test]
async fn times_of_update_are_whole_milliseconds() {
    let mut world = World::new().await;
    let running = world.running().await;
    let uneven = "select count(*) from session where extract(microseconds from updated_at)::int % 1000 <> 0";
    assert_eq!(world.number(uneven).await, 0, "made");
    let event = world.sample.event();
    world.store.update_session(world.tenant, &running.session, &Patch::default(), &event, NOW).await.unwrap();
    assert_eq!(world.number(uneven).await, 0, "changed");
    let spend = world.spend(domain::money::Tokens::default(), 1);
    world.store.append(&running.write(1), &[spend], 0, Progress::Made, NOW).await.unwrap();
    assert_eq!(world.number(uneven).await, 0, "spent");
    world.park(&running.write(2)).await.unwrap();
    assert_eq!(world.number(uneven).await, 0, "parked");
}

#[tokio::test]
async fn a_filter_leaves_out_archived_ones_other_projects_and_other_parents() {
    let mut world = World::new().await;
    let (parent, child, archived) = (world.session().await, world.session().await, world.session().await);
    world.sql(&format!("update session set parent_id = '{parent}' where id = '{child}'")).await;
    let (event, patch) =
        (world.sample.event(), Patch { title: None, archived: Some(true), ..Patch::default() });
    world.store.update_session(world.tenant, &archived, &patch, &event, NOW).await.unwrap();
    let other = world.sample.project();
    world
        .store
        .create_project(world.tenant, &other, "other", &domain::session::Source::default())
        .await
        .unwrap();

    let of_project = |project: ProjectId| Filter::from(SessionArea::from(project));
    assert_eq!(walk(&world, &of_project(world.project.clone()), 10).await.len(), 2);
    assert_eq!(walk(&world, &of_project(other), 10).await.len(), 0);
    assert_eq!(walk(&world, &Filter { archived: true, ..Filter::default() }, 10).await.len(), 3);
    let count = async |filter: Filter| walk(&world, &Filter { archived: true, ..filter }, 10).await.len();
    assert_eq!(count(Filter { only_roots: true, ..Filter::default() }).await, 2);
    assert_eq!(count(Filter { search: Some("no such title".to_owned()), ..Filter::default() }).await, 0);
    assert_eq!(count(Filter { search: Some("a SESSION".to_owned()), ..Filter::default() }).await, 3);
    let (then, later) = (Timestamp(0), Timestamp(i64::from(i32::MAX) * 1_000_000));
    assert_eq!(count(Filter { since: Some(then), ..Filter::default() }).await, 3);
    assert_eq!(count(Filter { since: Some(later), ..Filter::default() }).await, 0);
    let children = world.store.list_children(world.tenant, &parent, &Page::default()).await.unwrap();
    assert_eq!(children.iter().map(|child| &child.info.id).collect::<Vec<_>>(), [&child]);
}

#[tokio::test]
async fn children_are_listed_oldest_first_despite_changes_between_pages() {
    let mut world = World::new().await;
    let parent = world.session().await;
    let mut want = vec![];
    for second in 0..6 {
        let child = world.session().await;
        // Two sessions share each moment, and the latest created is updated first.
        world.sql(&format!(
            "update session set parent_id = '{parent}', created_at = timestamptz '2026-01-01' + interval '{} s',
                    updated_at = timestamptz '2026-02-01' - interval '{second} s' where id = '{child}'",
            second / 2
        )).await;
        want.push(((second / 2), child.to_string()));
    }
    want.sort();
    let mut ids = vec![];
    let mut page = Page { limit: 1, cursor: None };
    loop {
        let children = world.store.list_children(world.tenant, &parent, &page).await.unwrap();
        let Some(child) = children.last() else { break };
        ids.push(child.info.id.to_string());
        page.cursor = Some(format!("{}.{}", child.info.time.created.0, child.info.id));
        world.sql(&format!("update session set updated_at = now() where id = '{}'", child.info.id)).await;
    }
    assert_eq!(ids, want.into_iter().map(|(_, id)| id).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_change_keeps_omitted_fields() {
    let mut world = World::new().await;
    let id = world.session().await;
    for (title, archived, want_title, want_archived) in [
        (Some("Renamed"), None, "Renamed", false),
        (None, Some(true), "Renamed", true),
        (None, None, "Renamed", true),
        (Some("Back"), Some(false), "Back", false),
    ] {
        let (patch, event) =
            (Patch { title: title.map(str::to_owned), archived, ..Patch::default() }, world.sample.event());
        let (session, events) =
            world.store.update_session(world.tenant, &id, &patch, &event, NOW).await.unwrap();
        assert_eq!(
            (session.info.title.as_str(), session.info.time.archived.is_some()),
            (want_title, want_archived)
        );
        assert_eq!(events.iter().map(|event| event.kind.as_str()).collect::<Vec<_>>(), ["session.updated"]);
    }
    assert_eq!(world.gap_free(&id).await, 5);
    let before = world.store.get_session(world.tenant, &id).await.unwrap();
    let model =
        domain::conversation::message::ModelRef { provider_id: "p".to_owned(), model_id: "m".to_owned() };
    let chosen = Patch { agent: Some("plan".to_owned()), model: Some(model.clone()), ..Patch::default() };
    let event = world.sample.event();
    let (after, _) = world.store.update_session(world.tenant, &id, &chosen, &event, NOW).await.unwrap();
    assert_eq!((after.info.agent.as_str(), &after.info.model), ("plan", &model.into()));
    assert_eq!((before.chosen.model, after.chosen.agent, after.chosen.model), (false, true, true));
    assert_eq!(after.info.title, before.info.title);
    let (unknown, event) = (world.sample.session(), world.sample.event());
    let result = world.store.update_session(world.tenant, &unknown, &Patch::default(), &event, NOW).await;
    assert!(matches!(result, Err(Error::NotFound(Entity::Session))));
}

#[tokio::test]
async fn a_deleted_session_leaves_no_row_and_fences_its_loop() {
    let mut world = World::new().await;
    let running = world.running().await;
    let child = world.session().await;
    world.sql(&format!("update session set parent_id = '{}' where id = '{child}'", running.session)).await;
    world.exec(&running.session).await;
    world.store.delete_session(world.tenant, &running.session).await.unwrap();
    world.remove_rows(world.tenant).await;
    for table in ["session", "session_run", "session_input", "session_event", "message", "part", "tool_exec"]
    {
        assert_eq!(world.number(&format!("select count(*) from {table}")).await, 0, "{table}");
    }
    assert!(matches!(world.append(&running.write(1)).await, Err(Error::Fenced)));
    let again = world.store.delete_session(world.tenant, &running.session).await;
    assert!(matches!(again, Err(Error::NotFound(Entity::Session))));
}

#[tokio::test]
async fn the_newest_todo_list_is_returned() {
    let mut world = World::new().await;
    let mut actor = world.actor().await;
    let (tenant, session) = (world.tenant, actor.session().clone());
    assert_eq!(world.store.get_todos(tenant, &session).await.unwrap(), serde_json::json!([]));
    for content in ["first", "second"] {
        let todos = serde_json::json!([{"content": content}]);
        let (fence, change) = (actor.next(), world.change(Event::TodoUpdated(todos.clone())));
        world.store.append(&fence, &[change], 0, Progress::None, NOW).await.unwrap();
        assert_eq!(world.store.get_todos(tenant, &session).await.unwrap(), todos);
    }
    let other = world.sample.tenant();
    assert!(matches!(world.store.get_todos(other, &session).await, Err(Error::NotFound(_))));
}
