//! Children: created once for each call, and answering it once.

use crate::{
    family::{answer, finished, waiting},
    world::{World, idle},
};
use domain::{
    conversation::{
        message::Message,
        part::{Body, ToolState},
    },
    limits::SUBTASKS_PER_TREE_MAX,
    policy::permission::{Rule, Rules, Verdict},
    session::{Class, FilesCopy, Origin, Outcome, Phase, Source, image::Image},
    wait::Reason,
};
use serde_json::{Value, json};
use sqlx::Executor as _;
use store::{
    error::Error,
    log::record::{Fence, Progress},
    rows::session_row::ParentCall,
    session::{
        mailbox::Kind,
        park::ParkOutcome,
        tree::{
            answers::ChildAnswer,
            children::{Dispatch, DispatchOutcome, NewChild},
            family::Descendant,
        },
    },
};
use testkit::sample::NOW;

#[tokio::test]
async fn a_repeated_answer_wakes_its_parent_once() {
    let mut world = World::new().await;
    let mut parent = world.actor().await;
    let (call, mut child) = world.child(&mut parent).await;
    let parked = world.park_as(&mut parent, 1, &waiting(Reason::Children, None)).await;
    assert!(matches!(parked, ParkOutcome::Parked(_)), "{parked:?}");

    let (end, fence) = (finished(child.session(), &call, "forty-two"), child.next());
    let first = world.store.park(&fence, &[], 1, &end, NOW).await.unwrap();
    let again = world.store.park(&fence, &[], 1, &end, NOW).await.unwrap();
    assert_eq!(again, first);
    let inputs = world.store.list_inputs(world.tenant, parent.session(), 1).await.unwrap();
    let want = answer(child.session(), &call, "forty-two");
    assert_eq!(inputs.len(), 1);
    assert_eq!((inputs[0].seq, inputs[0].kind), (2, Kind::Child));
    assert_eq!(inputs[0].body, Some(serde_json::to_value(&want).unwrap()));
    let state = world.store.get_session(world.tenant, parent.session()).await.unwrap();
    assert_eq!((state.phase, state.waiting_reason, state.queue_position), (Phase::Runnable, None, 1));

    let successor = world.take_as_actor(parent.session()).await;
    let other = domain::ids::PartId::make(&mut world.sample.ids, NOW);
    let answers = world.store.list_answers(world.tenant, successor.session(), &[&call.part_id, &other]).await;
    assert_eq!(answers.unwrap(), [want]);
    assert_eq!(world.store.list_answers(world.tenant, successor.session(), &[&other]).await.unwrap(), []);
}

#[tokio::test]
async fn an_answer_finds_a_running_parent_in_its_mailbox() {
    let mut world = World::new().await;
    let mut parent = world.actor().await;
    let (call, mut child) = world.child(&mut parent).await;
    let end = finished(child.session(), &call, "forty-two");
    world.park_as(&mut child, 1, &end).await;
    let state = world.store.get_session(world.tenant, parent.session()).await.unwrap();
    assert_eq!((state.phase, state.epoch), (Phase::Running, 1));
    let written = world.append(&parent.next()).await.unwrap();
    assert_eq!((written.input_seq, written.cancel_seq), (2, 0));
    let parked = world.park_as(&mut parent, 1, &waiting(Reason::Children, None)).await;
    assert_eq!(parked, ParkOutcome::NewInput);
}

#[tokio::test]
async fn an_answer_to_an_ended_call_is_dropped() {
    let mut world = World::new().await;
    let mut parent = world.actor().await;
    let (call, mut child) = world.child(&mut parent).await;
    let end = world.end_of(&call);
    world.store.append(&parent.next(), &[end], 1, Progress::Made, NOW).await.unwrap();
    let parked = world.park_as(&mut parent, 1, &idle(Outcome::Done, None)).await;
    assert!(matches!(parked, ParkOutcome::Parked(_)), "{parked:?}");

    let end = finished(child.session(), &call, "forty-two");
    let parked = world.park_as(&mut child, 1, &end).await;
    assert!(matches!(parked, ParkOutcome::Parked(_)), "{parked:?}");
    assert_eq!(world.inputs(parent.session()).await, [""; 0]);
    let state = world.store.get_session(world.tenant, parent.session()).await.unwrap();
    assert_eq!(state.phase, Phase::Idle, "it is not woken");
    assert_eq!(world.store.list_answers(world.tenant, parent.session(), &[&call.part_id]).await.unwrap(), []);
}

#[tokio::test]
async fn a_repeated_dispatch_creates_one_child() {
    let mut world = World::new().await;
    let mut parent = world.actor().await;
    world.sql("update session_run set class = 2").await;
    let (call, changes) = world.call(parent.session());
    let child = world.new_child(&call);
    let fence = parent.next();
    let dispatch =
        async || world.store.dispatch_child(&fence, &changes, &child, Dispatch::New, NOW).await.unwrap();
    let (first, second) = tokio::join!(dispatch(), dispatch());
    let third = dispatch().await;
    let mut own = vec![];
    for dispatched in [first, second, third] {
        let DispatchOutcome::Dispatched { parent: written, child: events } = dispatched else {
            panic!("{dispatched:?}")
        };
        assert_eq!(written.events.iter().map(|event| event.seq).collect::<Vec<_>>(), [4, 5]);
        own.extend(events);
    }
    let kinds: Vec<_> = own.iter().map(|event| (event.seq, event.kind.as_str())).collect();
    let announced = [(1, "session.created"), (2, "session.updated")];
    assert_eq!(kinds, [&announced[..], &[(3, "message.updated"), (4, "message.part.updated")]].concat());

    let id = &child.prompt.session_id;
    let state = world.store.get_session(world.tenant, id).await.unwrap();
    assert_eq!((state.root_id, state.depth, state.call), (parent.session().clone(), 1, Some(call)));
    assert_eq!(
        (state.class, state.phase, state.permissions),
        (Class::Batch, Phase::Runnable, child.permissions)
    );
    assert_eq!(state.info.parent_id.as_ref(), Some(parent.session()));
    assert_eq!((state.info.agent.as_str(), state.info.title.as_str()), ("explore", child.title.as_str()));
    let of_parent = world.store.get_session(world.tenant, parent.session()).await.unwrap();
    assert_eq!(state.source, of_parent.source);
    assert_eq!(world.store.list_inputs(world.tenant, id, 0).await.unwrap().len(), 1);
    assert_eq!((world.gap_free(id).await, world.gap_free(parent.session()).await), (4, 5));
    assert_eq!(world.number("select count(*) from session").await, 2);
}

#[tokio::test]
async fn a_stale_loop_cannot_create_a_child() {
    let mut world = World::new().await;
    let parent = world.running().await;
    world.store.forget_worker(parent.worker).await.unwrap();
    world.take_as_actor(&parent.session).await;
    let result = world.try_dispatch(&parent.write(1), None).await;
    assert!(matches!(result, Err(Error::Fenced)), "{result:?}");
    assert_eq!(world.number("select count(*) from session").await, 1);
    assert_eq!(world.gap_free(&parent.session).await, 3);
}

#[tokio::test]
async fn a_tree_has_a_size_limit_and_a_refusal_writes_nothing() {
    let mut world = World::new().await;
    let mut parent = world.actor().await;
    // The tree grows at another branch: the limit counts the whole tree.
    let (_, mut branch) = world.child(&mut parent).await;
    let (root, below) = (parent.session(), branch.session());
    let grow = format!(
        "insert into session (tenant_id, id, project_id, parent_id, root_id, depth, title, agent, provider_id, model_id, source)
         select tenant_id, 'ses_grown' || n, project_id, '{below}', '{root}', 2, '', 'general', '', '', source
           from session, generate_series(2, {SUBTASKS_PER_TREE_MAX}) n where id = '{root}'"
    );
    world.sql(&grow).await;
    for actor in [&mut parent, &mut branch] {
        let head = world.gap_free(actor.session()).await;
        let fence = actor.next();
        let (refused, _) = world.try_dispatch(&fence, None).await.unwrap();
        assert_eq!(refused, DispatchOutcome::TooMany);
        assert_eq!(world.gap_free(actor.session()).await, head);
    }
    world.sql("delete from session where id = 'ses_grown2'").await;
    let (outcome, _) = world.try_dispatch(&parent.fence.clone(), None).await.unwrap();
    assert!(
        matches!(outcome, DispatchOutcome::Dispatched { .. }),
        "the number of the refused write is free: {outcome:?}"
    );
}

/// Two loops of one tree see room for one more child. Only one of them gets it.
#[tokio::test]
async fn concurrent_dispatches_cannot_exceed_the_limit() {
    let mut world = World::new().await;
    let mut parent = world.actor().await;
    let (_, first) = world.child(&mut parent).await;
    let (_, second) = world.child(&mut parent).await;
    let (root, below) = (parent.session().clone(), first.session());
    let room = SUBTASKS_PER_TREE_MAX - 1;
    let grow = format!(
        "insert into session (tenant_id, id, project_id, parent_id, root_id, depth, title, agent, provider_id, model_id, source)
         select tenant_id, 'ses_grown' || n, project_id, '{below}', '{root}', 2, '', 'general', '', '', source
           from session, generate_series(3, {room}) n where id = '{root}'"
    );
    world.sql(&grow).await;
    let mut dispatches = vec![];
    for mut actor in [first, second] {
        let (call, changes) = world.call(actor.session());
        dispatches.push((actor.next(), world.new_child(&call), changes));
    }
    // Both start before either has ended.
    let mut held = world.hold(&root).await;
    let dispatch = dispatches
        .iter()
        .map(|(fence, child, changes)| world.store.dispatch_child(fence, changes, child, Dispatch::New, NOW));
    let release = async {
        world.blocked(2).await;
        held.execute("commit").await.unwrap();
    };
    let (outcomes, ()) = tokio::join!(futures::future::try_join_all(dispatch), release);
    let refused =
        outcomes.unwrap().into_iter().filter(|outcome| *outcome == DispatchOutcome::TooMany).count();
    assert_eq!(refused, 1);
    let count = format!("select count(*) from session where root_id = '{root}'");
    assert_eq!(world.number(&count).await, SUBTASKS_PER_TREE_MAX);
}

#[tokio::test]
async fn only_its_parent_can_resume_an_idle_child() {
    let mut world = World::new().await;
    let mut parent = world.actor().await;
    let (call, mut child) = world.child(&mut parent).await;
    let id = child.session().clone();
    let refused = async |world: &mut World, fence: &Fence, id| {
        let (outcome, _) = world.try_dispatch(fence, Some(id)).await.unwrap();
        assert_eq!(outcome, DispatchOutcome::NotFree);
    };
    let fence = parent.next();
    refused(&mut world, &fence, &id).await;
    let end = finished(&id, &call, "first");
    world.park_as(&mut child, 1, &end).await;

    let mut stranger = world.actor().await;
    refused(&mut world, &stranger.next(), &id).await;
    let unknown = world.sample.session();
    refused(&mut world, &fence, &unknown).await;
    refused(&mut world, &fence, parent.session()).await;

    let (outcome, new) = world.try_dispatch(&fence, Some(&id)).await.unwrap();
    let DispatchOutcome::Dispatched { child: events, .. } = outcome else { panic!("{outcome:?}") };
    let kinds: Vec<_> = events.iter().map(|event| (event.seq, event.kind.as_str())).collect();
    assert_eq!(kinds, [(5, "message.updated"), (6, "message.part.updated")]);
    let state = world.store.get_session(world.tenant, &id).await.unwrap();
    assert_eq!((state.call, state.phase), (Some(new.call.clone()), Phase::Runnable));

    let mut again = world.take_as_actor(&id).await;
    let end = finished(&id, &new.call, "second");
    world.park_as(&mut again, 2, &end).await;
    let calls = [&call.part_id, &new.call.part_id];
    let answers = world.store.list_answers(world.tenant, parent.session(), &calls).await.unwrap();
    assert_eq!(answers, [answer(&id, &call, "first"), answer(&id, &new.call, "second")]);
}

#[tokio::test]
async fn a_resumed_child_has_the_permissions_of_its_new_call() {
    let mut world = World::new().await;
    let mut parent = world.actor().await;
    let (call, mut child) = world.child(&mut parent).await;
    let id = child.session().clone();
    let rights = async |world: &World| world.store.get_session(world.tenant, &id).await.unwrap().permissions;
    let before = rights(&world).await;
    let (newer, changes) = world.call(parent.session());
    let mut new = world.resumed(&id, &newer);
    new.permissions = vec![Rules(vec![Rule::of("bash", Verdict::Deny)])];
    let fence = parent.next();
    let dispatch =
        async || world.store.dispatch_child(&fence, &changes, &new, Dispatch::Resumed, NOW).await.unwrap();
    assert_eq!(dispatch().await, DispatchOutcome::NotFree);
    assert_eq!(rights(&world).await, before, "it still works for the other call");
    world.park_as(&mut child, 1, &finished(&id, &call, "first")).await;
    assert!(matches!(dispatch().await, DispatchOutcome::Dispatched { .. }));
    assert_eq!(rights(&world).await, new.permissions);
}

/// A child that writes to its parent must not lock upwards: a transaction that waits for the child may hold the
/// parent's row.
#[tokio::test]
async fn a_child_that_names_its_parent_does_not_wait_for_it() {
    let mut world = World::new().await;
    let mut parent = world.actor().await;
    let (_, mut child) = world.child(&mut parent).await;
    let held = world.hold(parent.session()).await;
    let fence = child.next();
    let dispatch = world.try_dispatch(&fence, Some(parent.session()));
    let (outcome, _) = testkit::within("the refusal", Box::pin(dispatch)).await.unwrap();
    assert_eq!(outcome, DispatchOutcome::NotFree);
    drop(held);
}

/// The metadata of a call's part, while it runs.
async fn shown(world: &World, call: &ParentCall) -> Option<Value> {
    let entry = world.store.get_message(world.tenant, &call.session, &call.message_id).await.unwrap();
    assert!(matches!(entry.message, Message::Assistant(_)));
    let Body::Tool(tool) = &entry.parts[0].1.body else { panic!("{entry:?}") };
    let ToolState::Running { metadata, .. } = &tool.state else { return None };
    metadata.clone().map(Value::Object)
}

#[tokio::test]
async fn a_report_shows_in_the_parents_call_while_it_runs() {
    let mut world = World::new().await;
    let mut parent = world.actor().await;
    let (call, child) = world.child(&mut parent).await;
    let report = async |world: &mut World, fence: &Fence, call, summary: Value| {
        let event = world.sample.event();
        world.store.report_child(fence, call, &summary, &event, NOW).await.unwrap()
    };
    let stored = report(&mut world, &child.fence, &call, json!([{"tool": "read"}])).await.unwrap();
    assert_eq!((stored.seq, stored.epoch, stored.kind.as_str()), (6, 1, "message.part.updated"));
    assert_eq!(shown(&world, &call).await, Some(json!({"summary": [{"tool": "read"}]})));
    report(&mut world, &child.fence, &call, json!([])).await.unwrap();
    assert_eq!(shown(&world, &call).await, Some(json!({"summary": []})), "the newest report is kept");
    world.append(&parent.next()).await.unwrap();

    let stale = Fence { epoch: 0, ..child.fence.clone() };
    assert_eq!(report(&mut world, &stale, &call, json!(["stale"])).await, None);
    let unknown = Fence { session: world.sample.session(), ..child.fence.clone() };
    assert_eq!(report(&mut world, &unknown, &call, json!(["unknown"])).await, None);
    assert_eq!(shown(&world, &call).await, Some(json!({"summary": []})));
    let end = world.end_of(&call);
    world.store.append(&parent.next(), &[end], 1, Progress::Made, NOW).await.unwrap();
    assert_eq!(report(&mut world, &child.fence, &call, json!(["late"])).await, None);
    assert_eq!(shown(&world, &call).await, None, "an ended call stays ended");
    assert_eq!(world.gap_free(parent.session()).await, 9);
    let gone = ParentCall { session: world.sample.session(), ..call.clone() };
    assert_eq!(report(&mut world, &child.fence, &gone, json!([])).await, None);
}

#[tokio::test]
async fn a_parent_learns_that_its_child_was_deleted() {
    let mut world = World::new().await;
    let mut parent = world.actor().await;
    let (call, child) = world.child(&mut parent).await;
    world.park_as(&mut parent, 1, &waiting(Reason::Children, None)).await;
    let parent_id = world.store.delete_session(world.tenant, child.session()).await.unwrap().parent;
    assert_eq!(parent_id.as_ref(), Some(parent.session()));
    let want = ChildAnswer {
        outcome: Outcome::Failed,
        ..answer(child.session(), &call, "The subtask's session was deleted.")
    };
    let answers = world.store.list_answers(world.tenant, parent.session(), &[&call.part_id]).await.unwrap();
    assert_eq!(answers, [want]);
    let state = world.store.get_session(world.tenant, parent.session()).await.unwrap();
    assert_eq!(state.phase, Phase::Runnable);
    let deletion = world.store.delete_session(world.tenant, parent.session()).await.unwrap();
    assert_eq!((deletion.parent, deletion.tombstones.len()), (None, 1));
}

/// A child is deleted or stopped while its parent gives it another call. That call gets the answer.
#[tokio::test]
async fn the_end_of_a_child_answers_its_current_call() {
    let mut world = World::new().await;
    let mut parent = world.actor().await;
    let (_, child) = world.child(&mut parent).await;
    let (newer, changes) = world.call(parent.session());
    world.store.append(&parent.next(), &changes, 0, Progress::None, NOW).await.unwrap();
    let mut held = world.hold(parent.session()).await;
    let resume = async {
        world.blocked(1).await;
        let (part, id) = (&newer.part_id, child.session());
        let sql = format!("update session set parent_part_id = '{part}' where id = '{id}'; commit");
        held.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(sql))).await.unwrap();
    };
    let (deleted, ()) = tokio::join!(world.store.delete_session(world.tenant, child.session()), resume);
    assert_eq!(deleted.unwrap().parent.as_ref(), Some(parent.session()));
    let answers = world.store.list_answers(world.tenant, parent.session(), &[&newer.part_id]).await.unwrap();
    assert_eq!(answers.len(), 1, "the newer call waits forever");
}

#[tokio::test]
async fn descendants_are_listed_nearest_first() {
    let mut world = World::new().await;
    let mut root = world.actor().await;
    let (call, mut first) = world.child(&mut root).await;
    let (_, leaf) = world.dispatch(&mut first).await;
    let end = finished(first.session(), &call, "done");
    world.park_as(&mut first, 1, &end).await;
    let list = async |session| world.store.list_descendants(world.tenant, session).await.unwrap();
    let below = |session: &domain::ids::SessionId, works, epoch| Descendant {
        session: session.clone(),
        works,
        epoch,
    };
    let (near, far) = (below(first.session(), false, 1), below(&leaf, true, 0));
    assert_eq!(list(root.session()).await, [near, far.clone()]);
    assert_eq!(list(first.session()).await, [far]);
    assert_eq!(list(&leaf).await, []);
    let depth = world.store.get_session(world.tenant, &leaf).await.unwrap();
    assert_eq!((depth.depth, &depth.root_id), (2, root.session()));
}

#[tokio::test]
async fn a_forked_child_and_those_below_have_a_workspace_of_their_own() {
    let mut world = World::new().await;
    let mut root = world.actor().await;
    world.store.note_workspace(world.tenant, root.session()).await.unwrap();
    let (reference, layers, env) = ("app@sha256:1".to_owned(), vec![], vec![]);
    let image = Image { reference, credential: None, layers, env };
    world.store.record_image(world.tenant, root.session(), &image).await.unwrap();
    let source = Source { origin: Origin::GitUrl("https://h.org/a".to_owned()), ..Source::default() };
    let copy = FilesCopy { bundle: "b1".to_owned(), commit: "c1".to_owned(), install: None };
    let own = source.copied(root.session(), copy);
    let (call, changes) = world.call(root.session());
    let forked = NewChild { own_source: Some(own.clone()), ..world.new_child(&call) };
    let outcome =
        world.store.dispatch_child(&root.next(), &changes, &forked, Dispatch::New, NOW).await.unwrap();
    assert!(matches!(outcome, DispatchOutcome::Dispatched { .. }), "{outcome:?}");
    let (_, shared) = world.child(&mut root).await;
    let mut child = world.take_as_actor(&forked.prompt.session_id).await;
    let (_, below) = world.child(&mut child).await;

    let get = async |id| world.store.get_session(world.tenant, id).await.unwrap();
    let of_child = get(child.session()).await;
    assert_eq!((&of_child.root_id, &of_child.workspace_id), (root.session(), child.session()));
    assert_eq!((of_child.source.clone(), of_child.has_workspace), (own.clone(), false));
    assert_eq!((of_child.is_forked(), of_child.forked_commit()), (true, Some("c1")));
    let kept = world.store.find_image(world.tenant, child.session()).await.unwrap();
    assert_eq!(kept, Some(image), "a copy has the image of what it was copied from");
    let of_shared = get(shared.session()).await;
    assert_eq!((&of_shared.workspace_id, of_shared.has_workspace), (root.session(), true));
    assert_eq!((of_shared.is_forked(), of_shared.forked_commit()), (false, None));
    world.store.note_workspace(world.tenant, child.session()).await.unwrap();
    let of_below = get(below.session()).await;
    assert_eq!((&of_below.root_id, &of_below.workspace_id), (root.session(), child.session()));
    assert_eq!((of_below.source, of_below.has_workspace), (own, true));

    let listed = world.store.list_opened(None, 10).await.unwrap();
    let listed: Vec<_> = listed.into_iter().map(|opened| opened.session).collect();
    let mut want = vec![root.session().clone(), child.session().clone()];
    want.sort();
    assert_eq!(listed, want, "the sandbox must have both");
}
