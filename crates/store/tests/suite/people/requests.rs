//! Requests to people: the first answer counts, and reaches the loop.

use crate::{
    family::{permission, question, waiting},
    world::{World, idle},
};
use domain::{
    conversation::request::{Answer, Id, Request},
    event::Event,
    ids::Timestamp,
    policy::permission::{Rule, Rules, Scope, Verdict},
    session::{Class, Outcome, Phase},
    wait::Reason,
};
use store::{
    Page,
    error::{Entity, Error},
    log::record::Progress,
    people::requests::{AnswerOutcome, NewAnswer, RequestRecord, RequestScope},
};
use testkit::sample::NOW;

async fn open(world: &World, prefix: &str) -> Vec<Request> {
    let list = world
        .store
        .list_requests(world.tenant, RequestScope::Tenant, prefix, &Page::default())
        .await
        .unwrap();
    list.into_iter().map(|record| record.request).collect()
}

async fn reply(world: &mut World, id: &Id, answer: &Answer, by: &str) -> AnswerOutcome {
    let event = world.sample.event();
    world
        .store
        .answer_request(world.tenant, id, NewAnswer { answer, by, epoch: None }, &event, NOW)
        .await
        .unwrap()
}

async fn known(world: &World, request: &Request) -> RequestRecord {
    let (session, parts) = (&request.session_id, [&request.part_id]);
    world.store.list_requests_of(world.tenant, session, &parts).await.unwrap().remove(0)
}

#[tokio::test]
async fn a_request_belongs_to_the_session_that_asked_also_when_it_is_answered() {
    let mut world = World::new().await;
    let (mut first, mut second) = (world.actor().await, world.actor().await);
    let (one, two) = (world.ask(&mut first).await, world.ask(&mut second).await);
    reply(&mut world, &one.id, &Answer::Once, "a key").await;
    for (request, actor) in [(&one, &first), (&two, &second)] {
        let owner = world.store.get_session_of_request(world.tenant, &request.id).await.unwrap();
        assert_eq!(owner, *actor.session());
    }
    let other = domain::ids::TenantId(uuid::Uuid::nil());
    let missing = world.store.get_session_of_request(other, &one.id).await;
    assert!(matches!(missing, Err(Error::NotFound(Entity::Request))), "{missing:?}");
}

#[tokio::test]
async fn open_requests_are_listed_by_kind_session_and_page() {
    let mut world = World::new().await;
    let (mut first, mut second) = (world.actor().await, world.actor().await);
    let (one, two) = (world.ask(&mut first).await, world.ask(&mut second).await);
    let (question, changes) = world.request(second.session(), question());
    world.store.append(&second.next(), &changes, 0, Progress::None, NOW).await.unwrap();
    let three = world.ask(&mut second).await;
    assert_eq!(open(&world, "per").await, [one.clone(), two.clone(), three.clone()]);
    assert_eq!(open(&world, "que").await, std::slice::from_ref(&question));
    let list = async |whose, limit, cursor: Option<&Request>| {
        let page = Page { limit, cursor: cursor.map(|request| request.id.as_str().to_owned()) };
        let list = world.store.list_requests(world.tenant, whose, "per", &page).await.unwrap();
        list.into_iter().map(|record| record.request).collect::<Vec<_>>()
    };
    assert_eq!(list(RequestScope::Tenant, 2, None).await, [one.clone(), two.clone()]);
    assert_eq!(list(RequestScope::Tenant, 2, Some(&two)).await, std::slice::from_ref(&three));
    assert_eq!(list(RequestScope::Session(second.session()), 9, None).await, [two.clone(), three.clone()]);
    let (session, parts) = (second.session(), [&three.part_id, &one.part_id, &question.part_id]);
    let of = world.store.list_requests_of(world.tenant, session, &parts).await.unwrap();
    assert_eq!(of.into_iter().map(|record| record.request).collect::<Vec<_>>(), [three, question]);
}

#[tokio::test]
async fn a_tree_lists_its_requests_at_any_depth_and_no_others() {
    let mut world = World::new().await;
    let (mut root, mut other) = (world.actor().await, world.actor().await);
    let (_, mut child) = world.child(&mut root).await;
    let (_, mut leaf) = world.child(&mut child).await;
    let own = world.ask(&mut root).await;
    let below = world.ask(&mut leaf).await;
    world.ask(&mut other).await;
    let list = async |whose| {
        let list = world.store.list_requests(world.tenant, whose, "per", &Page::default()).await.unwrap();
        list.into_iter().map(|record| record.request).collect::<Vec<_>>()
    };
    assert_eq!(list(RequestScope::Tree(root.session())).await, [own.clone(), below.clone()]);
    assert_eq!(list(RequestScope::Session(root.session())).await, [own]);
    assert_eq!(list(RequestScope::Tree(child.session())).await, std::slice::from_ref(&below));
    assert_eq!(list(RequestScope::Tree(leaf.session())).await, [below]);
}

#[tokio::test]
async fn the_first_answer_counts_and_wakes_the_session() {
    let mut world = World::new().await;
    let mut actor = world.actor().await;
    let request = world.ask(&mut actor).await;
    world.park_as(&mut actor, 1, &waiting(Reason::Permission, None)).await;
    let names: Vec<_> = (0..8).map(|number| format!("person {number}")).collect();
    let events: Vec<_> = names.iter().map(|_| world.sample.event()).collect();
    let rejected = |name: &str| Answer::Reject { message: Some(name.to_owned()) };
    let answers: Vec<_> = names.iter().map(|name| rejected(name)).collect();
    let replies = names.iter().zip(&answers).zip(&events).map(|((name, answer), event)| {
        world.store.answer_request(
            world.tenant,
            &request.id,
            NewAnswer { answer, by: name, epoch: None },
            event,
            NOW,
        )
    });
    let replies = futures::future::try_join_all(replies).await.unwrap();

    let winner = replies.iter().position(|reply| matches!(reply, AnswerOutcome::Accepted { .. })).unwrap();
    let AnswerOutcome::Accepted { session, class, events, runnable } = &replies[winner] else {
        unreachable!()
    };
    assert_eq!((session, *class, *runnable), (actor.session(), Class::Interactive, true));
    assert_eq!(events.iter().map(|event| event.kind.as_str()).collect::<Vec<_>>(), ["permission.replied"]);
    for (number, reply) in replies.iter().enumerate().filter(|(number, _)| *number != winner) {
        let AnswerOutcome::AlreadyAnswered { by, answer, .. } = reply else { panic!("{number}: {reply:?}") };
        assert_eq!((by, answer), (&names[winner], &rejected(&names[winner])));
    }
    assert_eq!(known(&world, &request).await.answer.as_ref(), Some(&answers[winner]));
    assert_eq!(open(&world, "per").await, []);
    assert_eq!(world.inputs(actor.session()).await, ["reply"]);
    assert_eq!(world.gap_free(actor.session()).await, 7);
    let state = world.store.get_session(world.tenant, actor.session()).await.unwrap();
    assert_eq!((state.phase, state.waiting_reason), (Phase::Runnable, None));
}

#[tokio::test]
async fn an_answer_does_not_move_a_session_that_runs_or_is_quarantined() {
    let mut world = World::new().await;
    for (phase, want) in [(2, Phase::Running), (4, Phase::Quarantined)] {
        let mut actor = world.actor().await;
        let (request, changes) = world.request(actor.session(), question());
        world.store.append(&actor.next(), &changes, 0, Progress::None, NOW).await.unwrap();
        world
            .sql(&format!("update session_run set phase = {phase} where session_id = '{}'", actor.session()))
            .await;
        let labels = Answer::Labels { labels: vec![vec!["this one".to_owned()]] };
        let AnswerOutcome::Accepted { events, runnable, .. } =
            reply(&mut world, &request.id, &labels, "ann").await
        else {
            panic!("it is open")
        };
        assert_eq!((events[0].kind.as_str(), runnable), ("question.replied", false));
        let state = world.store.get_session(world.tenant, actor.session()).await.unwrap();
        assert_eq!(state.phase, want);
        assert_eq!(world.inputs(actor.session()).await, ["reply"]);
        assert_eq!(known(&world, &request).await.answer, Some(labels));
    }
}

#[tokio::test]
async fn a_reply_after_the_deadline_is_too_late_and_the_loop_closes_it() {
    let mut world = World::new().await;
    let mut actor = world.actor().await;
    let (mut request, mut changes) = world.request(actor.session(), permission());
    request.expires_at = Some(Timestamp(4_102_444_800_000));
    changes[2] = world.change(Event::RequestAsked(Box::new(request.clone())));
    world.store.append(&actor.next(), &changes, 0, Progress::None, NOW).await.unwrap();
    assert_eq!(open(&world, "per").await, [request.clone()]);
    assert!(!known(&world, &request).await.is_over);

    world.sql("update request set expires_at = to_timestamp(1000)").await;
    assert_eq!(open(&world, "per").await, []);
    assert!(known(&world, &request).await.is_over, "by the clock of Postgres");
    let late = reply(&mut world, &request.id, &Answer::Once, "ann").await;
    let want = AnswerOutcome::AlreadyAnswered {
        by: "its deadline".to_owned(),
        at: Timestamp(1_000_000),
        answer: Answer::Expired,
    };
    assert_eq!(late, want);
    assert_eq!(world.inputs(actor.session()).await, [""; 0]);
    let expired = reply(&mut world, &request.id, &Answer::Expired, "its deadline").await;
    assert!(matches!(expired, AnswerOutcome::Accepted { .. }), "{expired:?}");
    assert_eq!(known(&world, &request).await.answer, Some(Answer::Expired));
    let again = reply(&mut world, &request.id, &Answer::Expired, "its deadline").await;
    assert!(matches!(again, AnswerOutcome::AlreadyAnswered { .. }), "{again:?}");
}

#[tokio::test]
async fn always_is_appended_to_the_rules_and_once_changes_none() {
    let mut world = World::new().await;
    let mut parent = world.actor().await;
    let (_, mut child) = world.child(&mut parent).await;
    let id = child.session().clone();
    let rights = async |world: &World| world.store.get_session(world.tenant, &id).await.unwrap().permissions;
    let before = rights(&world).await;
    assert_eq!(before, [Rules(vec![Rule::of("edit", Verdict::Deny)]), Rules::default()]);
    let once = world.ask(&mut child).await;
    reply(&mut world, &once.id, &Answer::Once, "ann").await;
    assert_eq!(rights(&world).await, before);
    let always = world.ask(&mut child).await;
    reply(&mut world, &always.id, &Answer::Always { scope: Scope::Session }, "ann").await;
    let allow = Rule::approval("bash", "ls *");
    let want = [Rules(vec![Rule::of("edit", Verdict::Deny), allow.clone()]), Rules(vec![allow])];
    assert_eq!(rights(&world).await, want);
    let of_parent = world.store.get_session(world.tenant, parent.session()).await.unwrap().permissions;
    assert_eq!(of_parent, [Rules::default()], "it counts for this session");
}

#[tokio::test]
async fn the_end_of_a_call_closes_its_unanswered_request() {
    let mut world = World::new().await;
    let mut actor = world.actor().await;
    let (answered, unanswered) = (world.ask(&mut actor).await, world.ask(&mut actor).await);
    reply(&mut world, &answered.id, &Answer::Once, "ann").await;
    let closed = |request: &Request| Event::RequestAnswered {
        id: request.id.clone(),
        answer: Answer::Reject { message: None },
    };
    let changes = [&answered, &unanswered].map(closed);
    let changes = changes.map(|event| world.change(event));
    let written = world.store.append(&actor.next(), &changes, 2, Progress::Made, NOW).await.unwrap();
    let matches = written.events.iter().map(|event| event.properties.contains(r#""reply":"once""#));
    assert_eq!(matches.collect::<Vec<_>>(), [true, false], "the log has the answer that counts");
    assert_eq!(known(&world, &answered).await.answer, Some(Answer::Once));
    assert_eq!(known(&world, &unanswered).await.answer, Some(Answer::Reject { message: None }));
    let late = reply(&mut world, &unanswered.id, &Answer::Once, "bob").await;
    let AnswerOutcome::AlreadyAnswered { by, answer, .. } = late else { panic!("{late:?}") };
    assert_eq!((by.as_str(), answer), ("the end of the tool call", Answer::Reject { message: None }));
    assert_eq!(world.inputs(actor.session()).await, ["reply"], "closing wakes no session");
    world.park_as(&mut actor, 2, &idle(Outcome::Done, None)).await;
}

#[tokio::test]
async fn asking_again_is_the_same_request() {
    let mut world = World::new().await;
    let mut actor = world.actor().await;
    let request = world.ask(&mut actor).await;
    reply(&mut world, &request.id, &Answer::Once, "ann").await;
    let again = world.change(Event::RequestAsked(Box::new(request.clone())));
    world.store.append(&actor.next(), &[again], 2, Progress::None, NOW).await.unwrap();
    let known = known(&world, &request).await;
    assert_eq!(known.answer, Some(Answer::Once), "the request is not repeated");
    assert!(!known.is_over, "it has no deadline");
    assert_eq!(open(&world, "per").await, []);
}

#[tokio::test]
async fn an_unknown_request_takes_no_answer() {
    let mut world = World::new().await;
    let session = world.session().await;
    let (request, _) = world.request(&session, permission());
    let event = world.sample.event();
    let result = world
        .store
        .answer_request(
            world.tenant,
            &request.id,
            NewAnswer { answer: &Answer::Once, by: "ann", epoch: None },
            &event,
            NOW,
        )
        .await;
    assert!(matches!(result, Err(Error::NotFound(Entity::Request))), "{result:?}");
}

#[tokio::test]
async fn a_loop_that_was_replaced_answers_no_request() {
    let mut world = World::new().await;
    let running = world.running().await;
    let (request, changes) = world.request(&running.session, permission());
    world.store.append(&running.write(1), &changes, 0, Progress::None, NOW).await.unwrap();
    let event = world.sample.event();
    let answer = |epoch| NewAnswer { answer: &Answer::Expired, by: "the time limit", epoch: Some(epoch) };
    let (store, tenant) = (&world.store, world.tenant);
    let late = store.answer_request(tenant, &request.id, answer(0), &event, NOW).await;
    assert!(matches!(late, Err(Error::Fenced)), "{late:?}");
    assert_eq!(known(&world, &request).await.answer, None);
    let own = store.answer_request(tenant, &request.id, answer(1), &event, NOW).await.unwrap();
    assert!(matches!(own, AnswerOutcome::Accepted { .. }), "{own:?}");
}
