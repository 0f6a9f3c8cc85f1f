//! What a new stream tells of the time before it: the state of sessions, notes, and open requests to people.

use super::{Sent, Stream};
use crate::{
    app::{
        events::snapshot::{self, RecentRange, SessionSnapshot},
        prompts::no_files,
    },
    errors::error::Error,
    http::v1::{shape, stream::frame::FrameScope},
    memory::room::PAGE_BYTES,
    state::now,
};
use domain::{
    conversation::request::Id,
    event::Status,
    ids::{SessionId, Timestamp},
};
use serde_json::json;
use store::log::{feed::RecentSession, messages::MessageWithParts};

/// Sessions whose state a new stream gets. It gets no state of the others.
const STATE_SESSIONS_MAX: u32 = 20;
/// Such a session is active, or changed within this time; milliseconds. A client that was away for longer starts
/// again.
const STATE_WITHIN_MS: i64 = 10 * 60 * 1_000;
/// Sessions whose note a stream without a cursor gets have changed within this time; milliseconds. Between its note and its prompt, a session is idle.
const NOTE_WITHIN_MS: i64 = 10_000;
/// Messages of the newest turn that are part of the state. Older ones are not sent.
const STATE_MESSAGES_MAX: u32 = 50;

impl Stream {
    /// Lists the sessions that are active or changed recently.
    pub(super) async fn list_recent(&self) -> Result<Vec<RecentSession>, Error> {
        let since = Timestamp(now().0 - STATE_WITHIN_MS);
        let range = RecentRange { area: self.area().cloned(), since, limit: STATE_SESSIONS_MAX };
        snapshot::list_recent(&self.gateway, &self.principal, &range).await
    }

    /// Sends the state of sessions, as the events that would have led to it, and the open requests. Later events of these sessions than the list says
    /// come once more.
    pub(super) async fn send_states(&mut self, recent: Vec<RecentSession>) -> Sent {
        for recent in recent.into_iter().rev() {
            self.held = Some(self.room.take(PAGE_BYTES).await?);
            let (session, messages_max) = (&recent.session, STATE_MESSAGES_MAX);
            let snapshot = snapshot::find(&self.gateway, &self.principal, session, messages_max).await?;
            if let Some(snapshot) = snapshot {
                self.send_state(snapshot, &recent).await?;
            }
            self.held = None;
        }
        self.send_requests().await
    }

    /// Sends the notes about missing files of sessions with their first prompt, or shortly before it: `run` subscribes while it prompts.
    pub(super) async fn send_notes(&mut self) -> Sent {
        let since = Timestamp(now().0 - NOTE_WITHIN_MS);
        let range = RecentRange { area: self.area().cloned(), since, limit: STATE_SESSIONS_MAX };
        for recent in snapshot::list_recent(&self.gateway, &self.principal, &range).await? {
            self.held = Some(self.room.take(PAGE_BYTES).await?);
            let (session, messages_max) = (&recent.session, STATE_MESSAGES_MAX);
            let found = snapshot::find(&self.gateway, &self.principal, session, messages_max).await?;
            let is_first = |it: &SessionSnapshot| recent.status != Status::Idle || it.turn.len() == 1;
            if let Some(SessionSnapshot { directory, turn, .. }) = found.filter(is_first)
                && let Some(note) = turn.into_iter().next().filter(no_files::is_note)
            {
                // What follows the note arrives live.
                self.seen.extend(note.parts.iter().map(|(seq, _)| (session.clone(), *seq)));
                self.send_message(session, note, FrameScope::Directory(&directory)).await?;
            }
            self.held = None;
        }
        Ok(())
    }

    /// Sends the open requests to people.
    pub(super) async fn send_requests(&mut self) -> Sent {
        let open = snapshot::list_requests(&self.gateway, &self.principal, self.area()).await?;
        for open in open {
            let kind = match open.request.request.id {
                Id::Permission(_) => "permission.asked",
                Id::Question(_) => "question.asked",
            };
            let scope = FrameScope::Directory(&open.directory);
            self.send_event(kind, open.request.request.to_json(), scope).await?;
        }
        Ok(())
    }

    async fn send_state(&mut self, snapshot: SessionSnapshot, recent: &RecentSession) -> Sent {
        let SessionSnapshot { info, directory, turn, todos } = snapshot;
        let (session, scope) = (&info.id, FrameScope::Directory(&directory));
        let updated = json!({"sessionID": session, "info": shape::session(&info, &directory.name)});
        self.send_event("session.updated", updated, scope).await?;
        for entry in turn {
            self.send_message(session, entry, scope).await?;
        }
        if !todos.is_null() {
            self.send_event("todo.updated", json!({"sessionID": session, "todos": todos}), scope).await?;
        }
        // `session.idle` is the end of a turn. A client would count one that ended long ago, or take it for the end of its own.
        self.send_event("session.status", json!({"sessionID": session, "status": recent.status}), scope)
            .await?;
        self.seen.insert(session.clone(), recent.head);
        Ok(())
    }

    async fn send_message(
        &mut self,
        session: &SessionId,
        MessageWithParts { message, parts, .. }: MessageWithParts,
        scope: FrameScope<'_>,
    ) -> Sent {
        let updated = json!({"sessionID": session, "info": shape::message(&message)});
        self.send_event("message.updated", updated, scope).await?;
        let at = shape::created_at(&message);
        for (_, part) in parts {
            let part = self.texts.complete(part);
            let properties = json!({"sessionID": session, "part": shape::part(&part, at), "time": now()});
            self.send_event("message.part.updated", properties, scope).await?;
        }
        Ok(())
    }
}
