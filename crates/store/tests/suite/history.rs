//! Sessions that begin with the history of another one.

use crate::world::World;
use domain::{event::Event, message::Message, permission::Rules};
use store::error::Error;
use testkit::sample::NOW;

#[tokio::test]
async fn a_fork_has_the_rules_of_its_origin_and_the_history_it_is_given() {
    let mut world = World::new().await;
    let origin = world.new_session();
    let event = world.sample.event();
    world.store.create_session(world.tenant, &origin, &event, NOW).await.unwrap();
    let rights = r#"[[{"permission":"bash","pattern":"*","action":"deny"}],[]]"#;
    world.sql(&format!("update session set rights = '{rights}' where id = '{}'", origin.id)).await;
    let new = store::sessions::NewSession { rules: Rules::default(), ..world.new_session() };
    let user = world.sample.user(&new.id);
    let part = world.sample.text(&new.id, &user.id, "said before");
    let events = [
        Event::MessageUpdated(Box::new(Message::User(user.clone()))),
        Event::PartUpdated { part: Box::new(part), at: NOW },
    ];
    let history = events.map(|event| world.change(event));
    let event = world.sample.event();
    let forked =
        world.store.fork_session(world.tenant, (&origin.id, &new), &event, &history, NOW).await.unwrap();
    let kinds: Vec<&str> = forked.1.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["session.created", "message.updated", "message.part.updated"]);
    assert_eq!(world.gap_free(&new.id).await, 3);
    let talk = world.store.load_conversation(world.tenant, &new.id, 0).await.unwrap();
    assert_eq!((talk.len(), talk[0].message.id(), talk[0].parts.len()), (1, &user.id, 1));
    let of = |session: &store::sessions::Session| session.rights.clone();
    let known = world.store.get_session(world.tenant, &origin.id).await.unwrap();
    assert_eq!((of(&forked.0), of(&forked.0).len()), (of(&known), 2));
    let (other, missing, event) = (world.sample.tenant(), world.new_session(), world.sample.event());
    let hidden = world.store.fork_session(other, (&origin.id, &missing), &event, &[], NOW).await;
    assert!(matches!(hidden, Err(Error::NotFound("session"))));
}
