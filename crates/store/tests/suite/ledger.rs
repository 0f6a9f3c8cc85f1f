//! The ledger: the cost of model calls, and the permanence of its entries.

use crate::world::World;
use domain::{
    conversation::message::Message,
    event::Event,
    money::{Tokens, UsdPicos},
};
use store::log::{
    change::{Change, ChangeBody},
    record::{Progress, WriteReceipt},
};
use testkit::sample::NOW;

fn tokens(input: u64) -> Tokens {
    Tokens { input, ..Tokens::default() }
}

/// The cost of a session's tree.
async fn spent(world: &World, root: &domain::ids::SessionId) -> UsdPicos {
    world.store.get_budget(world.tenant, root).await.unwrap().spent
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

    let closed = [Change { id: world.sample.event(), body: ChangeBody::Spend(vec![entry]) }];
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
