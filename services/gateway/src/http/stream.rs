//! Event streams of OpenCode's kind: of a directory, and of all a tenant has. Each frame carries where to resume, which a client
//! may give back as `Last-Event-ID`. A client of all directories that gives nothing, as the TUI, is first told the state of
//! what goes on, so whatever a cut stream swallowed is made good.

use super::{
    caller::Caller,
    error::Result,
    frame::Where,
    input::Query,
    older::{self, Asked, Shapes},
    shape,
};
use crate::{
    auth::Principal,
    feed::{
        self,
        past::Past,
        subscriber::CURSOR,
        texts::Texts,
        told::{Directory, Place, Told, What},
    },
    messages,
    notices::{ALL_DISPOSED, DISPOSED},
    state::{State, now},
};
use axum::{
    extract::State as Shared,
    http::{HeaderMap, HeaderName, HeaderValue, header},
    response::{
        IntoResponse as _, Response,
        sse::{Event, Sse},
    },
};
use domain::{
    ids::{EventId, PartId, ProjectId, SessionId, TenantId, Timestamp},
    limits,
    message::Message,
    part::{Body, Part},
};
use serde_json::{Value, json};
use std::{collections::HashMap, convert::Infallible, pin::pin, sync::Arc, time::Duration};
use store::{
    Page,
    log::feed::{Horizon, Window},
    people::requests::RequestScope,
};
use tokio::{
    sync::{broadcast::error::RecvError, mpsc},
    time::{Instant, sleep},
};
use tokio_stream::wrappers::ReceiverStream;

/// What a client gives back to resume.
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Headers of a stream: nobody on its way may keep it or change it.
pub(super) const UNBUFFERED: [(HeaderName, HeaderValue); 3] = [
    (header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform")),
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
];
/// Sessions whose state a new stream tells.
const TOLD_SESSIONS_MAX: u32 = 20;
/// How long ago the last change of such a session may be; milliseconds. A client that was away for longer starts anew.
const TOLD_WITHIN_MS: i64 = 10 * 60 * 1_000;
/// Messages of a turn that are told.
const TOLD_MESSAGES_MAX: u32 = 50;
/// Sessions that a resumed stream catches up on, beyond which it tells states instead.
const RESUMED_SESSIONS_MAX: usize = 1_000;

/// What happens in the directory of the caller.
pub(super) async fn of_directory(
    Shared(state): Shared<State>,
    caller: Caller,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Result<Response> {
    let directory = caller.project(&state).await?.into();
    Ok(begin(state, caller.principal, (Some(directory), false, asked.shapes), &headers))
}

/// What happens in all directories of the caller's tenant, or in the one that it names; each event says where.
pub(super) async fn of_tenant(
    Shared(state): Shared<State>,
    caller: Caller,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Result<Response> {
    let directory = match &caller.directory {
        Some(_) => Some(caller.project(&state).await?.into()),
        None => None,
    };
    Ok(begin(state, caller.principal, (directory, true, asked.shapes), &headers))
}

fn begin(
    state: State,
    Principal { tenant, name: reader, .. }: Principal,
    (directory, wrapped, shapes): (Option<Directory>, bool, Shapes),
    headers: &HeaderMap,
) -> Response {
    let (frames, receiver) = mpsc::channel(limits::SUBSCRIBER_QUEUE_MAX);
    let cursor = headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok()).and_then(parse);
    let stream = Stream {
        state,
        tenant,
        reader,
        directory,
        wrapped,
        shapes,
        frames,
        seen: HashMap::new(),
        have: HashMap::new(),
        horizon: 0,
        texts: None,
    };
    tokio::spawn(stream.run(cursor));
    (UNBUFFERED, Sse::new(ReceiverStream::new(receiver))).into_response()
}

fn parse(text: &str) -> Option<Horizon> {
    text.strip_prefix(CURSOR)?.parse().ok()
}

struct Stream {
    state: State,
    tenant: TenantId,
    /// The name of the client's key.
    reader: String,
    /// `None`: all.
    directory: Option<Directory>,
    /// Whether each event says where it happened.
    wrapped: bool,
    shapes: Shapes,
    frames: mpsc::Sender<std::result::Result<Event, Infallible>>,
    /// Positions up to which sessions were told from Postgres.
    seen: HashMap<SessionId, u64>,
    /// Bytes of the parts whose text so far was told.
    have: HashMap<PartId, u64>,
    horizon: Horizon,
    texts: Option<Arc<Texts>>,
}

/// Why a stream ends.
#[derive(Debug)]
enum End {
    /// The client left.
    Left,
    /// Postgres does not answer: the client comes again.
    Store(store::error::Error),
}

impl From<store::error::Error> for End {
    fn from(error: store::error::Error) -> Self {
        Self::Store(error)
    }
}

impl Stream {
    async fn run(mut self, cursor: Option<Horizon>) {
        if let Err(End::Store(error)) = self.follow(cursor).await {
            tracing::debug!(error = &error as &dyn std::error::Error, "a stream ends early");
        }
    }

    async fn follow(&mut self, cursor: Option<Horizon>) -> std::result::Result<(), End> {
        let feeds = self.state.feeds.clone();
        let (feed, mut told) = Box::pin(feeds.join(&self.state, self.tenant)).await;
        self.horizon = feed.horizon();
        self.texts = Some(Arc::clone(&feed.texts));
        // Whatever a stream does takes far more room than waiting, as nearly all of them do at any time: it is given back at once.
        Box::pin(self.catch_up(cursor)).await?;
        let period = Duration::from_millis(limits::STREAM_HEARTBEAT_MS);
        let (shutdown, frames) = (self.state.shutdown.clone(), self.frames.clone());
        // Over all rounds, as in `events`.
        let (mut stopping, mut left) = (pin!(shutdown.cancelled()), pin!(frames.closed()));
        let mut beat = pin!(sleep(period));
        loop {
            tokio::select! {
                biased;
                () = &mut stopping => return Ok(()),
                () = &mut left => return Ok(()),
                () = &mut beat => {
                    self.tell("server.heartbeat", json!({}), Where::Stream).await?;
                    beat.as_mut().reset(Instant::now() + period);
                }
                next = told.recv() => match next {
                    Ok(told) => Box::pin(self.forward(&told)).await?,
                    // Too slow for what happened: what counts is what is so now.
                    Err(RecvError::Lagged(_)) => {
                        told = told.resubscribe();
                        Box::pin(self.tell_states()).await?;
                    }
                    Err(RecvError::Closed) => return Ok(()),
                },
            }
        }
    }

    /// Tells what a client does not know yet.
    async fn catch_up(&mut self, cursor: Option<Horizon>) -> std::result::Result<(), End> {
        self.tell("server.connected", json!({}), Where::Stream).await?;
        match cursor.filter(|cursor| *cursor <= self.horizon) {
            Some(cursor) => {
                // A client that is cut off in between begins again where it began.
                let now = std::mem::replace(&mut self.horizon, cursor);
                self.resume(cursor).await?;
                self.horizon = now;
                Ok(())
            }
            // `run` subscribes to a directory and prompts then: it would end when told that its session is idle, and print
            // twice what is told twice.
            None if !self.wrapped => self.tell_requests().await,
            None => self.tell_states().await,
        }
    }

    async fn forward(&mut self, told: &Told) -> std::result::Result<(), End> {
        if !told.is_for(&self.reader, self.project()) {
            return Ok(());
        }
        self.horizon = told.horizon;
        match &told.what {
            What::Event(event) => {
                let seen = told.place.session().and_then(|session| self.seen.get(session));
                if seen.is_some_and(|seen| event.seq <= *seen) {
                    return Ok(());
                }
                if event.kind == "message.part.updated" {
                    // The part tells its own text from here on.
                    self.have.retain(|part, _| !event.properties.contains(part.as_str()));
                }
            }
            What::Delta(delta) => {
                if let Some(have) =
                    delta.part_id.parse().ok().and_then(|part: PartId| self.have.get_mut(&part))
                {
                    let known =
                        have.checked_sub(delta.offset_bytes).and_then(|known| usize::try_from(known).ok());
                    let Some(fresh) =
                        known.and_then(|known| delta.text.get(known..)).filter(|it| !it.is_empty())
                    else {
                        return Ok(());
                    };
                    *have += fresh.len() as u64;
                    let properties = shape::delta(told.place.session(), delta, fresh);
                    return self.tell("message.part.delta", properties, Where::of(told)).await;
                }
            }
            What::Notice(_) => {}
        }
        for payload in shape::payloads(&self.state, told) {
            self.send(&payload, Where::of(told)).await?;
        }
        match (&told.what, self.directory.clone()) {
            // Clients look for their own directory.
            (What::Notice(notice), Some(own)) if notice.kind == ALL_DISPOSED => {
                self.tell(DISPOSED, json!({"directory": own.name}), Where::Directory(&own)).await
            }
            _ => Ok(()),
        }
    }

    fn project(&self) -> Option<&ProjectId> {
        self.directory.as_ref().map(|directory| &directory.project)
    }

    /// Tells everything that was written since the cursor; some of it may have been told before.
    async fn resume(&mut self, cursor: Horizon) -> std::result::Result<(), End> {
        let mut past = Past::since(&self.state, self.tenant, self.project(), cursor).await?;
        if past.len() > RESUMED_SESSIONS_MAX {
            return self.tell_states().await;
        }
        while let Some(feed::past::Page { session, project, events }) = past.next(&self.state).await? {
            for event in events {
                self.seen.insert(session.clone(), event.seq);
                let place = Place::Session(session.clone(), Arc::clone(&project));
                let told = Told { place, what: What::Event(event), horizon: cursor };
                for payload in shape::payloads(&self.state, &told) {
                    self.send(&payload, Where::of(&told)).await?;
                }
            }
        }
        Ok(())
    }

    /// Tells the state of the sessions that work, and of those that did lately, as the events that would have led to it.
    async fn tell_states(&mut self) -> std::result::Result<(), End> {
        let since = Some(Timestamp(now().0 - TOLD_WITHIN_MS));
        let (state, tenant) = (self.state.clone(), self.tenant);
        let recent = state
            .store
            .list_recent(tenant, self.project(), Window { since, limit: TOLD_SESSIONS_MAX })
            .await?;
        for session in recent.into_iter().rev() {
            match self.tell_state(&session.session, session.is_active).await {
                // Deleted meanwhile.
                Err(End::Store(store::error::Error::NotFound(_))) => {}
                told => told?,
            }
        }
        self.tell_requests().await
    }

    /// Tells what people are asked and have not answered.
    async fn tell_requests(&mut self) -> std::result::Result<(), End> {
        let (state, tenant) = (self.state.clone(), self.tenant);
        let page = Page { limit: limits::PAGE_MAX, cursor: None };
        let project = self.project().cloned();
        let whose = project.as_ref().map_or(RequestScope::Tenant, RequestScope::Project);
        for (prefix, kind) in [("per", "permission.asked"), ("que", "question.asked")] {
            for known in state.store.list_requests(tenant, whose, prefix, &page).await? {
                match self.directory(&known.request.session_id).await {
                    Ok(directory) => {
                        self.tell(kind, known.request.to_json(), Where::Directory(&directory)).await?
                    }
                    // Deleted meanwhile.
                    Err(store::error::Error::NotFound(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Where a session is.
    async fn directory(&self, session: &SessionId) -> std::result::Result<Directory, store::error::Error> {
        let project = self.state.store.get_session(self.tenant, session).await?.info.project_id;
        let name = self.state.store.get_project(self.tenant, &project).await?.name;
        Ok(Directory { project, name })
    }

    async fn tell_state(&mut self, session: &SessionId, is_active: bool) -> std::result::Result<(), End> {
        let (state, tenant) = (self.state.clone(), self.tenant);
        // Before what is told: what comes later than this is told once more.
        let head = state.store.get_head(tenant, session).await?;
        let info = state.store.get_session(tenant, session).await?.info;
        let name = state.store.get_project(tenant, &info.project_id).await?.name;
        let told_at = Directory { project: info.project_id.clone(), name };
        let place = Where::Directory(&told_at);
        let page = Page { limit: TOLD_MESSAGES_MAX, cursor: None };
        let found = messages::list(&state, tenant, session, (page, false)).await;
        let said = found.map(|found| found.said).unwrap_or_default();
        let turn = said.iter().rposition(|said| matches!(said.0.message, Message::User(_))).unwrap_or(0);
        self.tell(
            "session.updated",
            json!({"sessionID": session, "info": shape::session(&info, &told_at.name)}),
            place,
        )
        .await?;
        for said in &said[turn..] {
            let message = json!({"sessionID": session, "info": shape::message(&said.0.message)});
            self.tell("message.updated", message, place).await?;
            for (_, part) in &said.0.parts {
                let part = self.heard(part);
                if let Some(text) = messages::open_text(&part) {
                    self.have.insert(part.id.clone(), text.len() as u64);
                }
                let properties = json!({"sessionID": session, "part": shape::part(&part), "time": now()});
                self.tell("message.part.updated", properties, place).await?;
            }
        }
        let todos = state.store.get_todos(tenant, session).await?;
        if !todos.is_null() {
            self.tell("todo.updated", json!({"sessionID": session, "todos": todos}), place).await?;
        }
        let status = if is_active { "busy" } else { "idle" };
        self.tell("session.status", json!({"sessionID": session, "status": {"type": status}}), place).await?;
        if !is_active {
            self.tell("session.idle", json!({"sessionID": session}), place).await?;
        }
        self.seen.insert(session.clone(), head.seq);
        Ok(())
    }

    /// The part with what the feed told of it, where that is more than what is stored.
    fn heard(&self, part: &Part) -> Part {
        let mut part = part.clone();
        let heard = self.texts.as_ref().and_then(|texts| texts.get(&part.id)).unwrap_or_default();
        match &mut part.body {
            Body::Text(open) if heard.len() > open.text.len() => open.text = heard,
            Body::Reasoning(open) if heard.len() > open.text.len() => open.text = heard,
            _ => {}
        }
        part
    }

    /// Tells something that stands in no log.
    async fn tell(
        &mut self,
        kind: &str,
        properties: Value,
        place: Where<'_>,
    ) -> std::result::Result<(), End> {
        let id = self.state.id(EventId::make);
        let payload = json!({"id": id, "type": kind, "properties": properties}).to_string();
        self.send(&payload, place).await
    }

    async fn send(&self, payload: &str, place: Where<'_>) -> std::result::Result<(), End> {
        let older = if self.shapes == Shapes::Older { older::instead(payload) } else { None };
        let Some(older) = older else { return self.send_frame(payload, place).await };
        for payload in older {
            self.send_frame(&payload, place).await?;
        }
        Ok(())
    }

    async fn send_frame(&self, payload: &str, place: Where<'_>) -> std::result::Result<(), End> {
        let frame = Event::default().id(format!("{CURSOR}{}", self.horizon));
        let frame = if self.wrapped { frame.data(place.wrap(payload)) } else { frame.data(payload) };
        self.frames.send(Ok(frame)).await.map_err(|_| End::Left)
    }
}
