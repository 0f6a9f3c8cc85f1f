//! Pushes stand in the log of their session, whatever the session does.

use crate::world::World;
use domain::{
    conversation::part::{Body, NO_REPLY, Text},
    egress::PushReceipt,
    ids::SessionId,
};
use serde_json::{Value, json};
use store::{
    error::{Entity, Error},
    log::change::Note,
    people::pushes::SessionPush,
};
use testkit::sample::NOW;

impl World {
    /// Makes a push with its note.
    fn push(&mut self, session: &SessionId) -> SessionPush {
        let message = self.sample.user(session);
        let mut text = self.sample.text(session, &message.id, "");
        text.body = Body::Text(Text::note("pushed").marked(NO_REPLY, true));
        let receipt = PushReceipt {
            url: "https://h/r".to_owned(),
            branch: "agent/x".to_owned(),
            commit: "c0ffee".to_owned(),
            commits: 1,
            files: 2,
        };
        let note = Note { message: Box::new(message), text: Box::new(text) };
        SessionPush { receipt, by: "ann".to_owned(), note }
    }
}

#[tokio::test]
async fn a_push_is_stored_with_its_person_whatever_the_session_does() {
    const KINDS: [&str; 3] = ["flotilla.session.pushed", "message.updated", "message.part.updated"];
    let mut world = World::new().await;
    let (idle, _) = world.talk().await;
    let running = world.running().await;
    let held = world.session().await;
    world.held(&held).await.unwrap();
    for session in [&idle, &running.session, &held] {
        let (push, id) = (world.push(session), world.sample.event());
        let note = push.note.message.id.clone();
        let events = world.store.record_push(world.tenant, session, push, &id, NOW).await.unwrap();
        assert_eq!(events.iter().map(|event| event.kind.as_str()).collect::<Vec<_>>(), KINDS);
        let told: Value = serde_json::from_str(&events[0].properties).unwrap();
        let push =
            json!({"url": "https://h/r", "branch": "agent/x", "commit": "c0ffee", "commits": 1, "files": 2});
        assert_eq!(told, json!({"sessionID": session, "by": "ann", "push": push}));
        let head = world.gap_free(session).await;
        assert_eq!(events[2].seq, head);
        assert_eq!(world.messages(session).await.last(), Some(&note));
    }
    // The loop keeps its fence, and its next event follows.
    let written = world.append(&running.write(1)).await.unwrap();
    assert_eq!(written.events[0].seq, world.gap_free(&running.session).await);
    assert_eq!(written.events[0].epoch, running.fence.epoch);
}

#[tokio::test]
async fn another_tenant_stores_no_push() {
    let mut world = World::new().await;
    let session = world.session().await;
    let stranger = world.sample.tenant();
    world.store.create_tenant(stranger, "other").await.unwrap();
    let (push, id) = (world.push(&session), world.sample.event());
    let refused = world.store.record_push(stranger, &session, push, &id, NOW).await;
    assert!(matches!(refused, Err(Error::NotFound(Entity::Session))));
    assert_eq!(world.gap_free(&session).await, 1);
}
