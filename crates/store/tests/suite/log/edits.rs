//! People's changes to a conversation: allowed only while it is idle, and reported to all clients.

use crate::{session::reverts::back_to, world::World};
use domain::ids::SessionId;
use store::{
    error::{Entity, Error},
    log::{change::Note, edits::Edit},
};
use testkit::sample::NOW;

impl World {
    async fn edit(&mut self, session: &SessionId, edit: &Edit) -> Result<Vec<String>, Error> {
        let event = self.sample.event();
        let events = self.store.edit(self.tenant, session, edit, &event, NOW).await?;
        Ok(events.into_iter().map(|event| event.kind).collect())
    }
}

#[tokio::test]
async fn changes_of_people_are_stored_and_announced_once() {
    let mut world = World::new().await;
    let (session, messages) = world.talk().await;
    let (question, answer) = (messages[0].clone(), messages[1].clone());
    let message = world.store.get_message(world.tenant, &session, &answer).await.unwrap();
    let part = message.parts[0].1.id.clone();
    let text = Edit::Text(answer.clone(), part.clone(), "other".to_owned());
    assert_eq!(world.edit(&session, &text).await.unwrap(), ["message.part.updated"]);
    let changed = world.store.get_message(world.tenant, &session, &answer).await.unwrap();
    let changed = serde_json::to_value(&changed.parts[0].1).unwrap();
    assert_eq!((&changed["text"], &changed["id"]), (&"other".into(), &part.as_str().into()));
    let branch = Edit::Branch("main".to_owned());
    assert_eq!(world.edit(&session, &branch).await.unwrap(), ["vcs.branch.updated"]);
    let stored = world.store.get_session(world.tenant, &session).await.unwrap();
    assert_eq!(stored.branch.as_deref(), Some("main"));
    for (edit, kind) in [
        (Edit::RemovePart(answer.clone(), part.clone()), "message.part.removed"),
        (Edit::RemoveMessage(question.clone()), "message.removed"),
    ] {
        assert_eq!(world.edit(&session, &edit).await.unwrap(), [kind]);
        assert!(matches!(world.edit(&session, &edit).await, Err(Error::NotFound(_))), "{kind} once");
    }
    assert!(matches!(world.edit(&session, &text).await, Err(Error::NotFound(Entity::Part))));
    assert_eq!(world.messages(&session).await, messages[1..]);
    let stranger = world.sample.tenant();
    world.store.create_tenant(stranger, "other").await.unwrap();
    let (own, event) = (Edit::RemoveMessage(answer), world.sample.event());
    let refused = world.store.edit(stranger, &session, &own, &event, NOW).await;
    assert!(matches!(refused, Err(Error::NotFound(Entity::Session))));
    world.gap_free(&session).await;
}

#[tokio::test]
async fn a_session_remembers_its_workspace_until_a_person_restarts_it() {
    let mut world = World::new().await;
    let (session, _) = world.talk().await;
    let has_workspace =
        async |world: &World| world.store.get_session(world.tenant, &session).await.unwrap().has_workspace;
    assert!(!has_workspace(&world).await);
    let stranger = world.sample.tenant();
    world.store.create_tenant(stranger, "other").await.unwrap();
    world.store.note_workspace(stranger, &session).await.unwrap();
    assert!(!has_workspace(&world).await, "only its tenant can note it");
    for _ in 0..2 {
        world.store.note_workspace(world.tenant, &session).await.unwrap();
        assert!(has_workspace(&world).await);
    }
    let message = world.sample.user(&session);
    let text = world.sample.text(&session, &message.id, "a note");
    let note = Note { message: Box::new(message), text: Box::new(text) };
    let kinds = world.edit(&session, &Edit::RestartWorkspace(note)).await.unwrap();
    assert_eq!(kinds, ["flotilla.workspace.restarted", "message.updated", "message.part.updated"]);
    assert!(!has_workspace(&world).await);
    let restarted = world.store.get_session(world.tenant, &session).await.unwrap();
    assert_eq!(restarted.workspace_opening, 1, "copies of the earlier files do not count");
    let hold = world.held(&session).await.unwrap();
    assert_eq!(hold.workspace_opening, 1);
    world.gap_free(&session).await;
}

#[tokio::test]
async fn a_busy_session_cannot_be_edited() {
    let mut world = World::new().await;
    let (session, messages) = world.talk().await;
    let edit = Edit::RemoveMessage(messages[0].clone());
    let hold = world.held(&session).await.unwrap();
    assert!(matches!(world.edit(&session, &edit).await, Err(Error::Busy)), "held");
    world.end(&hold, None).await.unwrap();
    world.accept(&session, "more").await;
    assert!(matches!(world.edit(&session, &edit).await, Err(Error::Busy)), "a prompt waits");
    let worker = world.worker().await;
    world.take(&session, worker).await.unwrap();
    assert!(matches!(world.edit(&session, &edit).await, Err(Error::Busy)), "a loop works");
}

#[tokio::test]
async fn reverted_messages_are_removed_on_request() {
    let mut world = World::new().await;
    let (session, messages) = world.talk().await;
    assert!(world.edit(&session, &Edit::CommitRevert).await.unwrap().is_empty());
    let hold = world.held(&session).await.unwrap();
    world.end(&hold, Some(back_to(&messages[2]))).await.unwrap();
    let kinds = world.edit(&session, &Edit::CommitRevert).await.unwrap();
    assert_eq!(kinds, ["message.removed", "message.removed", "session.updated"]);
    assert_eq!(world.messages(&session).await, messages[..2]);
    assert!(world.edit(&session, &Edit::CommitRevert).await.unwrap().is_empty(), "once");
    world.gap_free(&session).await;
}
