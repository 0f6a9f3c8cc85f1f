//! Event streams of a directory and of a tenant. Each frame carries a cursor, which a client may return as `Last-Event-ID`. A client
//! of a whole tenant without a cursor, such as the TUI, first gets the current state, which replaces whatever a cut stream lost. Deltas
//! always continue the text that the client has (`texts`).

mod states;

use super::{
    frame::{FrameScope, HEARTBEAT, sse_frame},
    legacy::{self, Shapes, ShapesQuery},
    texts::{ClientTexts, Continuation},
    view::{StreamForm, View, Wrapping},
};
use crate::{
    app::{
        events::subscribe::{self, JoinedFeed},
        gateway::Gateway,
    },
    auth::principal::Principal,
    errors::error::Error,
    http::{
        callers::caller::Caller,
        input::extractors::Query,
        refusal::Result,
        sse::{EVENT_STREAM, UNBUFFERED, last_event_id},
        v1::shape,
    },
    memory::{room::StreamRoom, taken_room::HeldRoom},
    state::now,
    streams::{
        backlog::{BacklogPage, BacklogRange},
        bounded::queue,
        cursor::{self, TenantCursor},
        event::Fragment,
        notices::{ALL_DISPOSED, DISPOSED},
        open_parts::TextChange,
        progress::Progress,
        update::{Content, Interest, Update, UpdateScope},
    },
};
use axum::{
    body::Body,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use domain::{event::StoredEvent, ids::SessionId, limits};
use serde_json::{Value, json};
use std::{borrow::Cow, collections::HashMap, convert::Infallible, pin::pin, sync::Arc, time::Duration};
use store::{log::feed::Horizon, tenant::worktrees::SessionArea};
use tokio::{
    sync::broadcast::error::RecvError,
    time::{Instant, sleep},
};

/// Sessions that a resumed stream catches up on. Beyond that it gets the current state.
const RESUMED_SESSIONS_MAX: usize = 1_000;

/// The events of the caller's directory.
pub(in crate::http) async fn of_directory(
    State(gateway): State<Gateway>,
    caller: Caller,
    Query(query): Query<ShapesQuery>,
    headers: HeaderMap,
) -> Result<Response> {
    let form = StreamForm { wrapping: Wrapping::Bare, shapes: query.shapes };
    let view = View::of_directory(&gateway, &caller, form).await?;
    begin(gateway, caller, view, &headers).await
}

/// The events of all directories of the tenant, or of the one that the caller names. Each event names its directory.
pub(in crate::http) async fn of_tenant(
    State(gateway): State<Gateway>,
    caller: Caller,
    Query(query): Query<ShapesQuery>,
    headers: HeaderMap,
) -> Result<Response> {
    let form = StreamForm { wrapping: Wrapping::WithDirectory, shapes: query.shapes };
    let view = View::of_caller(&gateway, &caller, form).await?;
    begin(gateway, caller, view, &headers).await
}

/// As [`of_tenant`], with events in the form of the newer API.
pub(in crate::http) async fn of_tenant_natively(
    State(gateway): State<Gateway>,
    caller: Caller,
    headers: HeaderMap,
) -> Result<Response> {
    let form = StreamForm { wrapping: Wrapping::Native, shapes: Shapes::Current };
    let view = View::of_caller(&gateway, &caller, form).await?;
    begin(gateway, caller, view, &headers).await
}

async fn begin(gateway: Gateway, caller: Caller, view: View, headers: &HeaderMap) -> Result<Response> {
    let cursor = last_event_id(headers).and_then(|text| cursor::parse_tenant(text).ok().flatten());
    let room = gateway.begin_stream(&caller.principal, &caller.taken).await?;
    let (frames, receiver) = queue::channel(room.queues());
    let stream = Stream {
        gateway,
        principal: caller.principal,
        room,
        held: None,
        view,
        frames,
        seen: HashMap::new(),
        texts: ClientTexts::default(),
        cursor: Arc::default(),
    };
    // Boxed: a future keeps a second place for each value that it is called with.
    tokio::spawn(Box::new(stream).run(cursor));
    Ok((EVENT_STREAM, UNBUFFERED, Body::from_stream(receiver)).into_response())
}

struct Stream {
    gateway: Gateway,
    principal: Principal,
    room: StreamRoom,
    /// The room of what is being sent.
    held: Option<HeldRoom>,
    view: View,
    frames: queue::Sender<Frame>,
    /// Positions up to which the client got the events of sessions from Postgres.
    seen: HashMap<SessionId, u64>,
    texts: ClientTexts,
    /// The cursor after everything that was sent.
    cursor: Arc<TenantCursor>,
}

#[derive(Debug)]
enum StreamEnd {
    Left,
    /// Postgres does not respond: the client connects again.
    Failed(Error),
}

impl From<Error> for StreamEnd {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

type Sent = std::result::Result<(), StreamEnd>;
type Frame = std::result::Result<Bytes, Infallible>;

impl Stream {
    async fn run(mut self: Box<Self>, cursor: Option<TenantCursor>) {
        if let Err(StreamEnd::Failed(error)) = self.follow(cursor).await {
            tracing::debug!(error = &error as &dyn std::error::Error, "a stream ended early");
        }
    }

    async fn follow(&mut self, cursor: Option<TenantCursor>) -> Sent {
        let joined = Box::pin(subscribe::join_feed(&self.gateway, &self.principal)).await?;
        let JoinedFeed { feed, mut updates } = joined;
        self.texts = ClientTexts::new(Arc::clone(&feed.texts));
        // Boxed: working takes far more memory than waiting, and nearly all streams wait.
        Box::pin(self.catch_up(cursor, feed.horizon())).await?;
        let period = Duration::from_millis(limits::STREAM_HEARTBEAT_MS);
        let (shutdown, frames) = (self.gateway.shutdown().clone(), self.frames.clone());
        // Pinned across all rounds, as in `streams::subscription`.
        let (mut stopping, mut left) = (pin!(shutdown.cancelled()), pin!(frames.closed()));
        let mut beat = pin!(sleep(period));
        loop {
            tokio::select! {
                biased;
                () = &mut stopping => return Ok(()),
                () = &mut left => return Ok(()),
                () = &mut beat => {
                    Box::pin(self.send_heartbeat()).await?;
                    beat.as_mut().reset(Instant::now() + period);
                }
                next = updates.recv() => match next {
                    Ok(update) if !update.concerns(self.principal.reader(), &self.view.interest) => {}
                    Ok(update) => Box::pin(self.forward(&update)).await?,
                    // Too slow for the feed: Postgres has what it lost.
                    Err(RecvError::Lagged(_)) => {
                        updates = updates.resubscribe();
                        self.texts.clear();
                        if !self.is_unknown() {
                            Box::pin(self.resume(feed.horizon())).await?;
                        }
                    }
                    Err(RecvError::Closed) => return Ok(()),
                },
            }
        }
    }

    /// Sends everything written before `now` that the client does not have yet.
    async fn catch_up(&mut self, cursor: Option<TenantCursor>, now: Horizon) -> Sent {
        let cursor = cursor.filter(|cursor| cursor.horizon <= now);
        let resumes = cursor.is_some();
        self.cursor = Arc::new(cursor.unwrap_or_else(|| TenantCursor::at(now)));
        let begins_with_states =
            self.view.form.wrapping == Wrapping::WithDirectory && !resumes && !self.is_unknown();
        // Listed before the client knows that it is connected: the end of each turn that it begins afterwards arrives live.
        let recent = if begins_with_states { self.list_recent().await? } else { vec![] };
        self.send_event("server.connected", json!({}), FrameScope::Stream).await?;
        if self.is_unknown() {
            return Ok(());
        }
        match self.view.form.wrapping {
            Wrapping::Bare | Wrapping::WithDirectory | Wrapping::Native if resumes => self.resume(now).await,
            // `run` would exit at a report that its session is idle, and would print repeated items twice.
            Wrapping::Bare => {
                self.send_notes().await?;
                self.send_requests().await
            }
            Wrapping::Native => self.send_requests().await,
            Wrapping::WithDirectory => self.send_states(recent).await,
        }
    }

    /// Sends an update that concerns the client, unless the client has it.
    async fn forward(&mut self, update: &Update) -> Sent {
        let last_seq =
            update.scope.session().and_then(|session| self.seen.get(session)).copied().unwrap_or(0);
        if matches!(&update.content, Content::Event { event, .. } if event.seq > last_seq) {
            self.held = self.room.take_for_copy(update.bytes(), || self.send_heartbeat()).await?;
        }
        // The cursor moves after the wait: a client that resumes at a heartbeat must still get the update.
        self.cursor = Arc::clone(&update.cursor);
        match &update.content {
            Content::Event { event, .. } if event.seq <= last_seq => Ok(()),
            Content::Event { text, .. } => {
                text.iter().for_each(|change| self.texts.change(change));
                self.send_update(update).await?;
                self.held = None;
                Ok(())
            }
            // The client has later events, which may have ended the part.
            Content::Fragment { after, .. } if *after < last_seq => Ok(()),
            Content::Fragment { fragment, .. } => self.send_fragment(update, fragment).await,
            Content::Notice(notice) => {
                self.send_update(update).await?;
                if notice.kind != ALL_DISPOSED {
                    return Ok(());
                }
                // Clients search for their own directory.
                let (name, scope) = match (&self.view.directory, &self.view.interest) {
                    (Some(client), _) => (&client.own.name, FrameScope::Directory(&client.own)),
                    (None, Interest::Directory(name)) => (name, FrameScope::Named(name)),
                    (None, Interest::All | Interest::Project(_) | Interest::Worktree(_)) => return Ok(()),
                };
                self.send_event(DISPOSED, json!({"directory": name}), scope).await
            }
        }
    }

    /// Sends the new text of a fragment, or all text so far to a client that lacks the text before it.
    async fn send_fragment(&mut self, update: &Update, fragment: &Fragment) -> Sent {
        let (session, scope) = (update.scope.session(), FrameScope::of(update));
        match self.texts.proceed(fragment) {
            Some(Continuation::Text(fresh)) if fresh.len() == fragment.text.len() => {
                self.send_update(update).await
            }
            Some(Continuation::Text(fresh)) => {
                let properties = shape::delta(session, fragment, fresh);
                self.send_event("message.part.delta", properties, scope).await
            }
            Some(Continuation::Part(part)) => {
                let properties = json!({"sessionID": session, "part": part, "time": now()});
                self.send_event("message.part.updated", properties, scope).await
            }
            None => Ok(()),
        }
    }

    /// The sessions to read, or `None` for those of all projects.
    fn area(&self) -> Option<&SessionArea> {
        self.view.directory.as_ref().map(|client| &client.area)
    }

    /// Whether the directory has no project yet, and so nothing to read.
    fn is_unknown(&self) -> bool {
        matches!(self.view.interest, Interest::Directory(_))
    }

    /// Sends everything written since the cursor. The client may already have some of it. Afterwards it has everything before
    /// `now`.
    async fn resume(&mut self, now: Horizon) -> Sent {
        let (interest, since) = (self.view.interest.clone(), (*self.cursor).clone());
        let mut progress = Progress::since(since.clone());
        let range = BacklogRange { room: self.room.clone(), interest, since };
        let mut backlog = subscribe::open_backlog(&self.gateway, range).await?;
        if backlog.len() > RESUMED_SESSIONS_MAX {
            let recent = self.list_recent().await?;
            return self.send_states(recent).await;
        }
        while let Some(BacklogPage { session, directory, events, room }) = backlog.next().await? {
            self.held = room;
            for event in events {
                progress.send(&session, event.seq);
                let seen = self.seen.entry(session.clone()).or_default();
                if event.seq <= *seen {
                    continue;
                }
                *seen = event.seq;
                self.cursor = Arc::clone(progress.cursor());
                let scope = UpdateScope::Session(session.clone(), Arc::clone(&directory));
                let content = Content::Event { event: self.with_live_text(event), text: None };
                self.send_update(&Update::new(scope, content, Arc::clone(&self.cursor))).await?;
            }
            self.held = None;
        }
        progress.reach(now);
        self.cursor = Arc::clone(progress.cursor());
        Ok(())
    }

    /// The event with the text that the feed sent, if it opens a part that is still open.
    fn with_live_text(&mut self, mut event: StoredEvent) -> StoredEvent {
        let change = TextChange::of(&event.kind, event.properties.as_bytes());
        let Some(change) = change else { return event };
        self.texts.change(&change);
        if let TextChange::Open { part, .. } = &change
            && let Some(part) = self.texts.reopen(part)
        {
            let session = &part.session_id;
            event.properties = json!({"sessionID": session, "part": part, "time": now()}).to_string();
        }
        event
    }

    async fn send_update(&self, update: &Update) -> Sent {
        let scope = FrameScope::of(update);
        let encode = || {
            let payloads = shape::payloads(&self.gateway, update);
            payloads.iter().filter_map(|payload| self.encode(payload, scope)).collect()
        };
        let shared = self.view.shared_form(scope).and_then(|form| update.frames(form, encode));
        let Some(frames) = shared else {
            for payload in shape::payloads(&self.gateway, update) {
                self.send(&payload, scope).await?;
            }
            return Ok(());
        };
        for frame in frames {
            self.place(frame.len()).await?.fill(Ok(frame.clone()), self.held.clone());
        }
        Ok(())
    }

    /// Sends an event that is not stored.
    async fn send_event(&self, kind: &str, properties: Value, scope: FrameScope<'_>) -> Sent {
        let id = self.gateway.event_id();
        let payload = json!({"id": id, "type": kind, "properties": properties}).to_string();
        self.send(&payload, scope).await
    }

    async fn send_heartbeat(&self) -> Sent {
        match self.view.form.wrapping {
            Wrapping::Bare | Wrapping::WithDirectory => {
                self.send_event("server.heartbeat", json!({}), FrameScope::Stream).await
            }
            // The newer API has no such event.
            Wrapping::Native => {
                self.place(0).await?.fill(Ok(HEARTBEAT), None);
                Ok(())
            }
        }
    }

    async fn send(&self, payload: &str, scope: FrameScope<'_>) -> Sent {
        let replacement = match self.view.form.shapes {
            Shapes::Older => legacy::in_place_of(payload),
            Shapes::Current => None,
        };
        let Some(replacement) = replacement else { return self.send_frame(payload, scope).await };
        for payload in replacement {
            self.send_frame(&payload, scope).await?;
        }
        Ok(())
    }

    async fn send_frame(&self, payload: &str, scope: FrameScope<'_>) -> Sent {
        let place = self.place(payload.len()).await?;
        if let Some(frame) = self.encode(payload, scope) {
            place.fill(Ok(frame), self.held.clone());
        }
        Ok(())
    }

    /// The frame of an event; `None`: the event cannot be sent in the form of the stream.
    fn encode(&self, payload: &str, scope: FrameScope<'_>) -> Option<Bytes> {
        let scope = self.view.scope(scope);
        let data = match self.view.form.wrapping {
            Wrapping::Bare => Cow::Borrowed(payload),
            Wrapping::WithDirectory => Cow::Owned(scope.wrap(payload)),
            Wrapping::Native => match scope.native(payload) {
                Ok(data) => Cow::Owned(data?),
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "cannot send an event");
                    return None;
                }
            },
        };
        Some(sse_frame(&self.cursor.to_string(), &data))
    }

    /// Waits for a place for a frame, which is made only then.
    async fn place(&self, bytes: usize) -> std::result::Result<queue::QueueSlot<'_, Frame>, StreamEnd> {
        self.frames.reserve(bytes).await.map_err(|queue::Left| StreamEnd::Left)
    }
}
