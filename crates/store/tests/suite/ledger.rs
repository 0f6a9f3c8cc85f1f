//! The ledger: the cost of model calls, and the permanence of its entries.

use crate::world::World;
use domain::{
    conversation::message::Message,
    event::Event,
    ids::SessionId,
    money::{Tokens, UsdPicos},
};
use sqlx::AssertSqlSafe;
use store::{
    error::Error,
    log::{
        change::{Change, ChangeBody, Charge},
        record::{Fence, Progress, WriteReceipt},
    },
};
use testkit::sample::NOW;

fn tokens(input: u64) -> Tokens {
    Tokens { input, ..Tokens::default() }
}

/// The cost of a session's tree.
async fn spent(world: &World, root: &SessionId) -> UsdPicos {
    world.store.get_budget(world.tenant, root).await.unwrap().spent
}

/// Makes a step, the text of its answer, and the end of the answer with the cost of its call.
fn answer(world: &mut World, session: &SessionId, text: &str, picos: i64) -> [Change; 3] {
    let prompt = world.sample.user(session).id;
    let answer = world.sample.assistant(session, &prompt);
    let part = Box::new(world.sample.text(session, &answer.id, text));
    let entry = World::entry(answer.id.as_str(), tokens(7), picos);
    let message = Box::new(Message::Assistant(Box::new(answer)));
    let whole = ChangeBody::Answer { message: message.clone(), entry: Some(entry) };
    [
        world.change(Event::MessageUpdated(message)),
        world.change(Event::PartUpdated { part, at: NOW }),
        Change { id: world.sample.event(), body: whole },
    ]
}

#[tokio::test]
async fn an_answer_is_charged_at_once_and_only_once() {
    let mut world = World::new().await;
    let running = world.running().await;
    let session = running.session.clone();
    let user = world.sample.user(&session);
    let answer = world.sample.assistant(&session, &user.id);
    let entry = World::entry(answer.id.as_str(), tokens(7), 21);
    let message = Box::new(Message::Assistant(Box::new(answer.clone())));
    let body = ChangeBody::Answer { message: message.clone(), entry: Some(entry.clone()) };
    let answered = [Change { id: world.sample.event(), body }];
    for _ in 0..2 {
        let receipt = world.store.append(&running.write(1), &answered, 0, Progress::None, NOW).await.unwrap();
        assert_eq!(receipt.events[0].kind, Event::MessageUpdated(message.clone()).kind());
    }
    assert_eq!(spent(&world, &session).await, UsdPicos(21));
    let info = world.store.get_session(world.tenant, &session).await.unwrap().info;
    assert_eq!(info.cost, UsdPicos(0), "the session shows a step that is closed");
    let stored = world.store.get_message(world.tenant, &session, &answer.id).await.unwrap();
    assert_eq!(stored.message, *message);

    let closed = [Change { id: world.sample.event(), body: ChangeBody::Spend(Charge::new(vec![entry])) }];
    let mut receipts = vec![];
    for _ in 0..2 {
        receipts.push(world.store.append(&running.write(2), &closed, 0, Progress::Made, NOW).await.unwrap());
    }
    assert_eq!(spent(&world, &session).await, UsdPicos(21));
    let info = world.store.get_session(world.tenant, &session).await.unwrap().info;
    assert_eq!((info.cost, info.tokens), (UsdPicos(21), tokens(7)));
    let shown = Event::SessionUpdated(Box::new(info)).properties_text(&session);
    let shows_session = |receipt: &WriteReceipt| receipt.events[0].properties == shown;
    assert!(receipts.iter().all(shows_session), "{receipts:?}");
}

#[tokio::test]
async fn deletions_refund_nothing() {
    let mut world = World::new().await;
    let mut parent = world.actor().await;
    let (_, mut child) = world.child(&mut parent).await;
    let root = parent.session().clone();
    for (actor, picos) in [(&mut parent, 3), (&mut child, 4)] {
        let (fence, change) = (actor.next(), world.spend(tokens(1), picos));
        world.store.append(&fence, &[change], 0, Progress::None, NOW).await.unwrap();
    }
    assert_eq!(spent(&world, &root).await, UsdPicos(7));
    world.store.delete_session(world.tenant, child.session()).await.unwrap();
    assert_eq!(spent(&world, &root).await, UsdPicos(7), "the cost of the subtask counts");
    world.store.delete_session(world.tenant, &root).await.unwrap();
    let sql = format!("select coalesce(sum(cost_usd_picos), 0)::bigint from ledger where root_id = '{root}'");
    assert_eq!(world.number(&sql).await, 7);
}

#[tokio::test]
async fn a_ledger_entry_keeps_the_data_of_its_call() {
    let mut world = World::new().await;
    let running = world.running().await;
    let spend = world.spend(tokens(9), 27);
    world.store.append(&running.write(1), &[spend], 0, Progress::None, NOW).await.unwrap();
    let sql =
        "select count(*) from ledger where purpose = 'step' and outcome = 'finished' and input_tokens = 9
                    and cost_usd_picos = 27 and cost_max_usd_picos is null and model_id <> ''";
    assert_eq!(world.number(sql).await, 1);
    let other = world.sample.tenant();
    world.store.create_tenant(other, "second").await.unwrap();
    assert!(world.store.get_budget(other, &running.session).await.is_err(), "of another tenant");
}

/// A client writes to the session at the same time.
#[tokio::test]
async fn the_cost_of_an_answer_is_stored_once_behind_the_write_of_a_client() {
    let mut world = World::new().await;
    let running = world.running().await;
    let session = running.session.clone();
    let changes = answer(&mut world, &session, "short", 21);
    let client = world.writing_client(&session).await;
    world.assert_written_behind(client, &running.write(1), &changes).await;
    assert_eq!(world.number("select count(*) from ledger").await, 1);
    assert_eq!(world.number("select sum(cost_usd_picos)::bigint from ledger").await, 21);
}

#[tokio::test]
async fn a_write_without_the_right_fence_stores_no_answer_and_no_cost() {
    let mut world = World::new().await;
    let running = world.running().await;
    let session = running.session.clone();
    world.store.forget_worker(running.worker).await.unwrap();
    let successor = world.worker().await;
    let taken = world.take(&session, successor).await.unwrap();
    let (answered, closed) = (answer(&mut world, &session, "short", 21), [world.spend(tokens(7), 21)]);
    let before = world.gap_free(&session).await;
    for fence in [running.write(1), Fence { write_seq: 2, ..taken.fence.clone() }] {
        for changes in [&answered[..], &closed] {
            let refused = world.store.append(&fence, changes, 0, Progress::None, NOW).await;
            assert!(matches!(refused, Err(Error::Fenced)), "{fence:?}: {refused:?}");
        }
    }
    let stored =
        "select (select count(*) from ledger) + (select count(*) from message where role = 'assistant')";
    assert_eq!((world.number(stored).await, world.gap_free(&session).await), (0, before));
    let info = world.store.get_session(world.tenant, &session).await.unwrap().info;
    assert_eq!((info.cost, info.tokens), (UsdPicos(0), Tokens::default()));
}

/// A client renames the session and spends at the same time.
#[tokio::test]
async fn a_charge_that_waits_for_a_client_adds_to_what_the_client_wrote() {
    let mut world = World::new().await;
    let running = world.running().await;
    let session = running.session.clone();
    let charge = [world.spend(tokens(7), 21)];
    let mut client = world.writing_client(&session).await;
    let renamed = format!(
        "update session set title = 'Renamed', input_tokens = input_tokens + 1, cost_usd_picos = cost_usd_picos + 2
          where id = '{session}'"
    );
    sqlx::raw_sql(AssertSqlSafe(renamed)).execute(&mut client).await.unwrap();
    let fence = running.write(1);
    let write = async { world.store.append(&fence, &charge, 1, Progress::Made, NOW).await.unwrap() };
    let commit = async {
        world.wait_for_lock().await;
        sqlx::raw_sql("commit").execute(&mut client).await.unwrap()
    };
    let (written, _) = tokio::join!(write, commit);
    let info = world.store.get_session(world.tenant, &session).await.unwrap().info;
    assert_eq!((info.title.as_str(), info.cost, info.tokens), ("Renamed", UsdPicos(23), tokens(8)));
    assert_eq!(written.events[0].seq, 5);
    assert_eq!(written.events[0].properties, Event::SessionUpdated(Box::new(info)).properties_text(&session));
}

#[tokio::test]
async fn the_costs_of_loops_that_write_at_the_same_time_add_up() {
    let mut world = World::new().await;
    let mut parent = world.actor().await;
    let (_, mut child) = world.child(&mut parent).await;
    for picos in 1..=10 {
        let of_parent = answer(&mut world, parent.session(), "of the parent", picos);
        let of_child = answer(&mut world, child.session(), "of the child", picos);
        let (parent_fence, child_fence) = (parent.next(), child.next());
        let (first, second) = tokio::join!(
            world.store.append(&parent_fence, &of_parent, 0, Progress::None, NOW),
            world.store.append(&child_fence, &of_child, 0, Progress::None, NOW)
        );
        assert_eq!((first.unwrap().events.len(), second.unwrap().events.len()), (3, 3));
    }
    let budget = world.store.get_budget(world.tenant, parent.session()).await.unwrap();
    assert_eq!(budget.spent, UsdPicos(110));
}

/// A long answer has more bytes than one statement gathers.
#[tokio::test]
async fn an_answer_that_uses_up_the_budget_counts_at_once() {
    let mut world = World::new().await;
    let running = world.running().await;
    let session = running.session.clone();
    world.store.set_budget(world.tenant, &session, Some(UsdPicos(30)), "set:30").await.unwrap();
    for (write_seq, text, picos, spent, is_used_up) in
        [(1, "short".to_owned(), 29, 29, false), (2, "long".repeat(100_000), 1, 30, true)]
    {
        let changes = answer(&mut world, &session, &text, picos);
        for _ in 0..2 {
            world.store.append(&running.write(write_seq), &changes, 0, Progress::None, NOW).await.unwrap();
            let budget = world.store.get_budget(world.tenant, &session).await.unwrap();
            assert_eq!((budget.spent, budget.is_used_up()), (UsdPicos(spent), is_used_up));
        }
    }
}
