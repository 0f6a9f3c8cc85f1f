//! Pushes stand in the log of their session, whatever the session does.

use crate::world::World;
use domain::{
    conversation::part::{Body, NO_REPLY, Text},
    egress::PushReceipt,
    ids::SessionId,
    limits, text,
};
use serde_json::{Value, json};
use store::{
    error::{Entity, Error},
    log::change::Note,
    people::pushes::SessionPush,
};
use testkit::sample::NOW;

/// The events of a push and its note.
const KINDS: [&str; 3] = ["flotilla.session.pushed", "message.updated", "message.part.updated"];

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

    /// Stores a push, and returns the kinds of its events.
    async fn record(&mut self, session: &SessionId, push: SessionPush) -> Vec<String> {
        let id = self.sample.event();
        let events = self.store.record_push(self.tenant, session, push, &id, NOW).await.unwrap();
        events.into_iter().map(|event| event.kind).collect()
    }
}

#[tokio::test]
async fn a_push_is_stored_with_its_person_whatever_the_session_does() {
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
async fn a_repeated_push_that_brought_nothing_is_stored_once() {
    let mut world = World::new().await;
    let session = world.session().await;
    let push = world.push(&session);
    assert_eq!(world.record(&session, push).await, KINDS);
    let head = world.gap_free(&session).await;
    let mut again = world.push(&session);
    again.receipt.commits = 0;
    assert!(world.record(&session, again).await.is_empty());
    assert_eq!(world.gap_free(&session).await, head);
    type Change = fn(&mut SessionPush);
    let changes: [(Change, &[&str]); 3] = [
        // Pushes to other branches leave this one as it is.
        (|push| push.receipt.url.push('x'), &[]),
        (|push| push.receipt.branch.push('x'), &[]),
        (|push| push.receipt.commit.push('x'), &KINDS),
    ];
    for (change, want) in changes {
        let mut other = world.push(&session);
        other.receipt.commits = 0;
        change(&mut other);
        assert_eq!(world.record(&session, other).await, KINDS);
        let mut first = world.push(&session);
        first.receipt.commits = 0;
        assert_eq!(world.record(&session, first).await, want);
    }
    let moved = world.push(&session);
    assert_eq!(world.record(&session, moved).await, KINDS, "somebody had moved the branch back");
    world.sql("update session_run set event_seq = event_seq + 1000").await;
    let mut late = world.push(&session);
    late.receipt.commits = 0;
    assert_eq!(world.record(&session, late).await, KINDS, "the push before it is too far away");
}

#[tokio::test]
async fn the_notes_of_pushes_are_bounded_and_the_log_has_each_push() {
    let mut world = World::new().await;
    let session = world.session().await;
    let limit = limits::SESSION_PROMPTS_BYTES_MAX;
    world.sql(&format!("update session_run set prompt_bytes = {limit}")).await;
    let push = world.push(&session);
    assert_eq!(world.record(&session, push).await, KINDS[..1]);
    assert!(world.messages(&session).await.is_empty());
    world.gap_free(&session).await;
    let push = world.push(&session);
    let bytes = text::json_bytes(&push.note.text) as u64;
    world.sql(&format!("update session_run set prompt_bytes = {}", limit - bytes)).await;
    assert_eq!(world.record(&session, push).await, KINDS);
    let counted = world.number("select prompt_bytes from session_run").await;
    assert_eq!(counted, i64::try_from(limit).unwrap());
    world.gap_free(&session).await;
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
