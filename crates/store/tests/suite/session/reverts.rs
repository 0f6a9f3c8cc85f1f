//! Reverting a session: its tree stays idle meanwhile, an interrupted revert is detected, and the next prompt completes
//! it.

use crate::world::{World, idle};
use domain::{
    conversation::message::{FileDiff, Message},
    event::Event,
    ids::{MessageId, SessionId},
    session::{Changes, Outcome, Revert, Source},
};
use store::{
    error::{Entity, Error},
    log::{change::ChangeBody, record::Progress},
    session::{
        inputs::Reply,
        reverts::{Hold, HoldRelease, RevertResult},
        tree::children::{Dispatch, NewChild},
    },
};
use testkit::sample::NOW;

pub(crate) fn back_to(message: &MessageId) -> Revert {
    Revert { message_id: message.clone(), part_id: None, snapshot: Some("s".to_owned()), diff: None }
}

fn diff(file: &str) -> Vec<FileDiff> {
    vec![FileDiff { file: Some(file.to_owned()), additions: 2, deletions: 1, ..FileDiff::default() }]
}

impl World {
    /// Creates an idle session with two prompts, each with an answer.
    pub(crate) async fn talk(&mut self) -> (SessionId, Vec<MessageId>) {
        let session = self.session().await;
        let worker = self.worker().await;
        let mut messages = vec![];
        for (number, text) in [(1, "first"), (2, "second")] {
            let prompt = self.accept(&session, text).await.message_id;
            let mut fence = self.take(&session, worker).await.unwrap().fence;
            let answer = self.sample.assistant(&session, &prompt);
            let part = self.sample.text(&session, &answer.id, "said");
            messages.extend([prompt, answer.id.clone()]);
            let events = [
                Event::MessageUpdated(Box::new(Message::Assistant(Box::new(answer)))),
                Event::PartUpdated { part: Box::new(part), at: NOW },
            ];
            let changes = events.map(|event| self.change(event));
            fence.write_seq = 1;
            self.store.append(&fence, &changes, number, Progress::Made, NOW).await.unwrap();
            fence.write_seq = 2;
            self.store.park(&fence, &[], number, &idle(Outcome::Done, None), NOW).await.unwrap();
        }
        (session, messages)
    }

    pub(crate) async fn held(&self, session: &SessionId) -> Result<Hold, Error> {
        self.store.hold_session(self.tenant, session).await
    }

    pub(crate) async fn end(&mut self, hold: &Hold, revert: Option<Revert>) -> Result<Vec<String>, Error> {
        let ids = [self.sample.event(), self.sample.event()];
        let finished = RevertResult { revert, diff: Some(diff("a")) };
        let (_, events) = self.store.finish_revert(hold, finished, ids, NOW).await?;
        Ok(events.into_iter().map(|event| event.kind).collect())
    }

    async fn refusal(&mut self, session: &SessionId) -> String {
        let prompt = self.prompt(session, "meanwhile");
        self.store.accept_prompt(self.tenant, &prompt, NOW).await.unwrap_err().to_string()
    }

    pub(crate) async fn messages(&self, session: &SessionId) -> Vec<MessageId> {
        let talk = self.store.load_conversation(self.tenant, session, 0).await.unwrap();
        talk.iter().map(|entry| entry.message.id().clone()).collect()
    }

    /// Simulates that the gateway holding it died long ago.
    async fn forget_hold(&self) {
        self.sql("update session_run set held_until = held_until - interval '1 hour'").await;
    }
}

#[tokio::test]
async fn a_held_session_refuses_inputs_and_the_next_prompt_completes_a_revert() {
    let mut world = World::new().await;
    let (session, messages) = world.talk().await;
    let hold = world.held(&session).await.unwrap();
    assert_eq!((hold.epoch, &hold.root, &hold.revert, hold.is_unfinished), (3, &session, &None, false));
    assert_eq!(world.refusal(&session).await, Error::Busy.to_string());
    assert!(matches!(world.held(&session).await, Err(Error::Busy)), "one at a time");
    let revert = back_to(&messages[2]);
    world.store.intend_revert(&hold, &revert).await.unwrap();
    let kinds = world.end(&hold, Some(revert.clone())).await.unwrap();
    assert_eq!(kinds, ["session.updated", "session.diff"]);
    let info = world.store.get_session(world.tenant, &session).await.unwrap().info;
    assert_eq!(info.summary, Some(Changes { additions: 2, deletions: 1, files: 1 }));
    assert_eq!(
        (info.revert, world.messages(&session).await),
        (Some(revert), messages.clone()),
        "kept until then"
    );

    let accepted = world.accept(&session, "third").await;
    let kinds: Vec<&str> = accepted.events.iter().map(|event| event.kind.as_str()).collect();
    let gone = ["message.removed", "message.removed", "session.updated"];
    assert_eq!(kinds, [&gone[..], &["message.updated", "message.part.updated"]].concat());
    let want = [&messages[..2], std::slice::from_ref(&accepted.message_id)].concat();
    assert_eq!(world.messages(&session).await, want);
    assert_eq!(world.store.get_session(world.tenant, &session).await.unwrap().info.revert, None);
    let next = world.accept(&session, "fourth").await.events;
    assert_eq!(next.len(), 2, "once");
    world.gap_free(&session).await;
}

#[tokio::test]
async fn a_note_completes_a_revert_and_a_part_can_be_reverted_alone() {
    let mut world = World::new().await;
    let (session, messages) = world.talk().await;
    let talk = world.store.load_conversation(world.tenant, &session, 0).await.unwrap();
    let part_id = Some(talk[1].parts[0].1.id.clone());
    let hold = world.held(&session).await.unwrap();
    world.end(&hold, Some(Revert { part_id, ..back_to(&messages[1]) })).await.unwrap();
    let note = store::session::inputs::Prompt { reply: Reply::None, ..world.prompt(&session, "note") };
    let accepted = world.store.accept_prompt(world.tenant, &note, NOW).await.unwrap();
    assert!(!accepted.runnable);
    let talk = world.store.load_conversation(world.tenant, &session, 0).await.unwrap();
    let left: Vec<_> = talk.iter().map(|entry| (entry.message.id(), entry.parts.len())).collect();
    assert_eq!(left, [(&messages[0], 1), (&messages[1], 0), (&note.id, 1)]);
    world.gap_free(&session).await;
}

#[tokio::test]
async fn the_revert_of_a_dead_gateway_is_known_and_precedes_prompts() {
    let mut world = World::new().await;
    let (session, messages) = world.talk().await;
    let hold = world.held(&session).await.unwrap();
    let revert = back_to(&messages[0]);
    world.store.intend_revert(&hold, &revert).await.unwrap();
    world.forget_hold().await;
    assert_eq!(world.refusal(&session).await, Error::RevertUnfinished.to_string());
    let again = world.held(&session).await.unwrap();
    assert_eq!((again.epoch, &again.revert, again.is_unfinished), (hold.epoch + 1, &Some(revert), true));
    assert!(matches!(world.end(&hold, None).await, Err(Error::Busy)), "the earlier hold has ended");
    assert!(matches!(world.store.intend_revert(&hold, &back_to(&messages[2])).await, Err(Error::Busy)));
    world.store.release_hold(&hold, HoldRelease::Unchanged).await.unwrap();
    assert_eq!(world.refusal(&session).await, Error::Busy.to_string(), "the later hold is kept");
    world.store.release_hold(&again, HoldRelease::Unfinished).await.unwrap();
    assert_eq!(world.refusal(&session).await, Error::RevertUnfinished.to_string());
    let last = world.held(&session).await.unwrap();
    world.end(&last, None).await.unwrap();
    world.accept(&session, "goes on").await;
    assert_eq!(world.messages(&session).await.len(), 5, "nothing was removed");
}

#[tokio::test]
async fn a_revert_without_writes_restores_the_previous_state() {
    let mut world = World::new().await;
    let (session, messages) = world.talk().await;
    let hold = world.held(&session).await.unwrap();
    world.end(&hold, Some(back_to(&messages[2]))).await.unwrap();
    let hold = world.held(&session).await.unwrap();
    world.store.intend_revert(&hold, &back_to(&messages[0])).await.unwrap();
    world.store.release_hold(&hold, HoldRelease::Unchanged).await.unwrap();
    let info = world.store.get_session(world.tenant, &session).await.unwrap().info;
    assert_eq!(info.revert, Some(back_to(&messages[2])));
    world.accept(&session, "third").await;
    assert_eq!(world.messages(&session).await.len(), 3);
}

#[tokio::test]
async fn a_busy_tree_cannot_be_reverted_and_a_held_tree_cannot_start() {
    let mut world = World::new().await;
    let mut parent = world.actor().await;
    let (call, mut child) = world.child(&mut parent).await;
    for session in [parent.session().clone(), child.session().clone()] {
        assert!(matches!(world.held(&session).await, Err(Error::Busy)));
    }
    let end = crate::family::finished(child.session(), &call, "x");
    world.park_as(&mut child, 1, &end).await;
    assert!(
        matches!(world.held(child.session()).await, Err(Error::Busy)),
        "its parent works in the same files"
    );
    world.park_as(&mut parent, 2, &idle(Outcome::Done, None)).await;
    let hold = world.held(child.session()).await.unwrap();
    assert_eq!((&hold.root, &hold.workspace), (parent.session(), parent.session()));
    for session in [parent.session().clone(), child.session().clone()] {
        assert_eq!(world.refusal(&session).await, Error::Busy.to_string());
    }
    world.store.release_hold(&hold, HoldRelease::Unchanged).await.unwrap();
    world.accept(&parent.session().clone(), "goes on").await;
    let stranger = world.session().await;
    let other = world.sample.tenant();
    let hidden = world.store.hold_session(other, &stranger).await;
    assert!(matches!(hidden, Err(Error::NotFound(Entity::Session))));
}

#[tokio::test]
async fn a_hold_lasts_while_it_is_renewed_and_a_lost_hold_changes_nothing() {
    let mut world = World::new().await;
    let mut parent = world.actor().await;
    let (call, mut child) = world.child(&mut parent).await;
    let end = crate::family::finished(child.session(), &call, "x");
    world.park_as(&mut child, 1, &end).await;
    world.park_as(&mut parent, 2, &idle(Outcome::Done, None)).await;
    let (root, below) = (parent.session().clone(), child.session().clone());
    let hold = world.held(&root).await.unwrap();
    let nearly =
        "update session_run set held_until = now() + interval '1 minute' where held_until is not null";
    world.sql(nearly).await;
    world.store.renew_hold(&hold).await.unwrap();
    let ends = "select count(*) from session_run where held_until between now() + interval '5 seconds' and now() + interval '10 seconds'";
    assert_eq!(world.number(ends).await, 2, "the whole tree is free, from now on");

    // One row is already free: a session of the tree may have started.
    world.sql(&format!("update session_run set held_until = now() where session_id = '{below}'")).await;
    assert!(matches!(world.store.renew_hold(&hold).await, Err(Error::Busy)));
    world.forget_hold().await;
    assert!(matches!(world.store.renew_hold(&hold).await, Err(Error::Busy)));
    let revert = back_to(&world.messages(&root).await[0]);
    assert!(
        matches!(world.store.intend_revert(&hold, &revert).await, Err(Error::Busy)),
        "there is no hold now"
    );
    assert!(matches!(world.end(&hold, None).await, Err(Error::Busy)));

    // A hold on another session of the tree does not raise the epoch of the first session.
    let later = world.held(&below).await.unwrap();
    assert!(matches!(world.store.renew_hold(&hold).await, Err(Error::Busy)));
    assert!(matches!(world.store.intend_revert(&hold, &revert).await, Err(Error::Busy)));
    assert!(matches!(world.end(&hold, None).await, Err(Error::Busy)));
    world.store.release_hold(&hold, HoldRelease::Unfinished).await.unwrap();
    assert_eq!(world.refusal(&root).await, Error::Busy.to_string(), "it ends only its own hold");
    world.store.renew_hold(&later).await.unwrap();
    world.store.release_hold(&later, HoldRelease::Unchanged).await.unwrap();
    assert!(matches!(world.store.renew_hold(&later).await, Err(Error::Busy)), "the hold was released");
    world.accept(&root, "goes on").await;
}

#[tokio::test]
async fn a_session_shows_the_size_of_its_changes() {
    let mut world = World::new().await;
    let running = world.running().await;
    let changes = Changes { additions: 3, deletions: 2, files: 1 };
    let change =
        store::log::change::Change { id: world.sample.event(), body: ChangeBody::FileSummary(changes) };
    let write = running.write(1);
    let written = world.store.append(&write, &[change], 0, Progress::None, NOW).await.unwrap();
    assert_eq!(written.events[0].kind, "session.updated");
    assert!(written.events[0].properties.contains(r#""summary":{"additions":3,"deletions":2,"files":1}"#));
    let session = world.store.get_session(world.tenant, &running.session).await.unwrap();
    assert_eq!(session.info.summary, Some(changes));
}

#[tokio::test]
async fn a_hold_of_a_forked_child_is_about_its_own_files() {
    let mut world = World::new().await;
    let mut parent = world.actor().await;
    let (call, changes) = world.call(parent.session());
    let forked = NewChild { own_source: Some(Source::default()), ..world.new_child(&call) };
    world.store.dispatch_child(&parent.next(), &changes, &forked, Dispatch::New, NOW).await.unwrap();
    let mut child = world.take_as_actor(&forked.prompt.session_id).await;
    world.sql(&format!("update session set workspace_opening = 3 where id = '{}'", child.session())).await;
    let end = crate::family::finished(child.session(), &call, "x");
    world.park_as(&mut child, 1, &end).await;
    world.park_as(&mut parent, 2, &idle(Outcome::Done, None)).await;
    let hold = world.held(child.session()).await.unwrap();
    assert_eq!((&hold.root, &hold.workspace), (parent.session(), child.session()));
    assert_eq!(hold.workspace_opening, 3);
    assert_eq!(world.refusal(parent.session()).await, Error::Busy.to_string(), "it holds the whole tree");
}
