//! The log of a session in the newer API. Nearly every stored event contains everything that its counterpart needs; only the agent
//! and model of a step, and the text of a prompt, are looked up. Positions are those of the log, so they have gaps.

use super::shape;
use crate::{
    app::{
        events::{
            log::EventLog,
            subscribe::{self, SessionStream},
        },
        gateway::Gateway,
        history::messages,
    },
    auth::principal::Principal,
    errors::{error::Error, invalid::Invalid},
    http::{
        callers::caller::Caller,
        input::{
            extractors::{Path, Query},
            ids::session_id,
        },
        refusal::{Refusal, RequestPart, Result},
        sse::{UNBUFFERED, last_event_id},
    },
    streams::{cursor::Start, event::StreamEvent, subscription::Item},
};
use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{
        IntoResponse as _, Response,
        sse::{Event, Sse},
    },
};
use domain::{
    conversation::{
        message::{Assistant, Message},
        part::{Body, Part, Tool, ToolState},
    },
    ids::{MessageId, SessionId},
    limits,
};
use futures::stream::unfold;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{collections::HashMap, convert::Infallible};
use store::log::messages::MessageWithParts;

/// Events of a page if the client sets no limit.
const PAGE_DEFAULT: usize = 100;
/// Bytes of stored events after which a page ends.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct LogQuery {
    after: u64,
    limit: Option<usize>,
}

/// One page of the log.
pub(in crate::http) async fn history(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
    Query(query): Query<LogQuery>,
) -> Result<Json<Value>> {
    let session = session_id(&session)?;
    gateway.take_page_room(&caller.principal, &caller.taken).await?;
    let mut log = EventLog::open(&gateway, &caller.principal, &session, query.after).await?;
    let limit = query.limit.unwrap_or(PAGE_DEFAULT).clamp(1, limits::PAGE_MAX as usize);
    let mut translator = Translator::new(gateway, caller.principal, session);
    let (mut data, mut bytes) = (vec![], 0);
    while let Some(events) = log.next().await? {
        for event in events {
            let is_full = bytes > PAGE_BYTES_MAX;
            bytes += event.properties.len();
            let Some(translated) = translator.translate(&event.into()).await else { continue };
            if is_full || data.len() == limit {
                return Ok(Json(json!({"data": data, "hasMore": true})));
            }
            data.push(translated);
        }
    }
    Ok(Json(json!({"data": data, "hasMore": false})))
}

/// The log after a position, and then live events, until the client disconnects.
pub(in crate::http) async fn follow(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
    Query(query): Query<LogQuery>,
    headers: HeaderMap,
) -> Result<Response> {
    let session = session_id(&session)?;
    let resumed = last_event_id(&headers).and_then(|id| id.parse().ok());
    let start = Start::After(resumed.unwrap_or(query.after));
    let stream =
        SessionStream { session: session.clone(), start, until_idle_after: None, taken: caller.taken };
    let items = subscribe::follow_session(&gateway, &caller.principal, stream).await.map_err(to_refusal)?;
    let translator = Translator::new(gateway, caller.principal, session);
    let frames = unfold((items, translator), async |(mut items, mut translator)| {
        // A failed stream simply ends: the client connects again.
        while let Some(Ok(item)) = items.recv().await {
            let frame = match item {
                Item::Event(event) => {
                    let Some(translated) = translator.translate(&event).await else { continue };
                    let kind = translated["type"].as_str().unwrap_or_default();
                    Event::default().id(event.seq.to_string()).event(kind).data(translated.to_string())
                }
                Item::Heartbeat(_) => Event::default().comment("heartbeat"),
                Item::Fragment(_) | Item::Notice(_) => continue,
            };
            return Some((Ok::<_, Infallible>(frame), (items, translator)));
        }
        None
    });
    Ok((UNBUFFERED, Sse::new(frames)).into_response())
}

/// To OpenCode, a position ahead of the log is an ordinary mistake in the query.
fn to_refusal(error: Error) -> Refusal {
    match error {
        Error::Invalid { mistake: Invalid::Cursor, message } => RequestPart::Query.unreadable(message),
        error => error.into(),
    }
}

/// Translates stored events to those of the newer API.
struct Translator {
    gateway: Gateway,
    principal: Principal,
    session: SessionId,
    /// The steps that were read.
    steps: HashMap<MessageId, Assistant>,
}

/// The kind of an event, and its data.
type Translation = (&'static str, Value);

impl Translator {
    fn new(gateway: Gateway, principal: Principal, session: SessionId) -> Self {
        Self { gateway, principal, session, steps: HashMap::new() }
    }

    /// The same event in the newer API; `None` if it has none.
    async fn translate(&mut self, event: &StreamEvent) -> Option<Value> {
        let mut properties: Value = serde_json::from_slice(&event.properties).ok()?;
        let (kind, mut data) = match event.kind.as_str() {
            "message.updated" => {
                self.message(event.seq, serde_json::from_value(properties["info"].take()).ok()?).await?
            }
            "message.part.updated" => {
                self.part(serde_json::from_value(properties["part"].take()).ok()?).await?
            }
            _ => return None,
        };
        data["timestamp"] = json!(event.at);
        data["sessionID"] = json!(self.session);
        Some(json!({
            "id": event.id, "type": format!("session.next.{kind}"), "data": data,
            "durable": {"aggregateID": self.session, "seq": event.seq, "version": 1},
        }))
    }

    async fn message(&mut self, seq: u64, message: Message) -> Option<Translation> {
        match message {
            Message::User(user) => {
                // Only the first event of a prompt has a counterpart.
                let entry = self.entry(&user.id).await.filter(|entry| entry.seq == seq)?;
                let of_message = |mut data: Value| {
                    data["messageID"] = json!(user.id);
                    data
                };
                Some(match (shape::reason(&entry.parts), shape::synthetic(&entry.parts)) {
                    (Some(reason), _) => ("compaction.started", of_message(json!({"reason": reason}))),
                    (None, Some(text)) => ("synthetic", of_message(json!({"text": text}))),
                    (None, None) => {
                        let prompt = shape::prompt(&entry.parts);
                        ("prompted", of_message(json!({"prompt": prompt, "delivery": "steer"})))
                    }
                })
            }
            Message::Assistant(step) => {
                let failed = step.error.as_ref().filter(|_| step.time.completed.is_some());
                let failure = failed.map(|error| {
                    let error = shape::failure(&error.data.message);
                    ("step.failed", json!({"assistantMessageID": step.id, "error": error}))
                });
                self.steps.insert(step.id.clone(), *step);
                failure
            }
        }
    }

    async fn entry(&self, message: &MessageId) -> Option<MessageWithParts> {
        messages::get_stored(&self.gateway, &self.principal, &self.session, message).await.ok()
    }

    async fn step(&mut self, message: &MessageId) -> Option<&Assistant> {
        if !self.steps.contains_key(message)
            && let Some(Message::Assistant(step)) = self.entry(message).await.map(|entry| entry.message)
        {
            self.steps.insert(message.clone(), *step);
        }
        self.steps.get(message)
    }

    async fn part(&mut self, part: Part) -> Option<Translation> {
        // The parts of a prompt come with its message.
        let step = self.step(&part.message_id).await?;
        if step.is_summary() {
            let (request, Body::Text(text)) = (step.parent_id.clone(), &part.body) else { return None };
            text.time?.end?;
            let reason = self.entry(&request).await.and_then(|entry| shape::reason(&entry.parts));
            let data = json!({"messageID": request, "reason": reason.unwrap_or("auto"), "text": text.text, "recent": ""});
            return Some(("compaction.ended", data));
        }
        let (kind, mut data) = match &part.body {
            Body::StepStart(start) => {
                let mut data = json!({"agent": step.agent, "model": shape::model(&step.model)});
                if let Some(state) = &start.snapshot {
                    data["snapshot"] = state.as_str().into();
                }
                ("step.started", data)
            }
            Body::StepFinish(finish) => {
                let (cost, tokens) = (finish.cost.dollars(), finish.tokens);
                let mut data = json!({"finish": finish.reason, "cost": cost, "tokens": tokens});
                if let Some(state) = &finish.snapshot {
                    data["snapshot"] = state.as_str().into();
                }
                ("step.ended", data)
            }
            Body::Text(text) => match text.time?.end {
                None => ("text.started", json!({"textID": part.id})),
                Some(_) => ("text.ended", json!({"textID": part.id, "text": text.text})),
            },
            Body::Reasoning(thought) => match thought.time.end {
                None => ("reasoning.started", json!({"reasoningID": part.id})),
                Some(_) => ("reasoning.ended", json!({"reasoningID": part.id, "text": thought.text})),
            },
            Body::Tool(tool) => call(tool),
            Body::Retry(retry) => {
                let error = &retry.error.data;
                let is_retryable = error.is_retryable.unwrap_or(true);
                let error = json!({"message": error.message, "isRetryable": is_retryable});
                return Some(("retried", json!({"attempt": retry.attempt, "error": error})));
            }
            Body::File(_)
            | Body::Snapshot(_)
            | Body::Patch(_)
            | Body::Agent(_)
            | Body::Subtask(_)
            | Body::Compaction(_) => return None,
        };
        data["assistantMessageID"] = json!(part.message_id);
        Some((kind, data))
    }
}

/// Whether a running call has only begun. A command begins with an empty output.
fn has_shown_nothing(metadata: Option<&Map<String, Value>>) -> bool {
    metadata.is_none_or(|metadata| metadata.get("output").is_some_and(|output| output == ""))
}

fn call(tool: &Tool) -> Translation {
    let (id, provider) = (&tool.call_id, json!({"executed": false}));
    match &tool.state {
        ToolState::Pending { .. } => ("tool.input.started", json!({"callID": id, "name": tool.tool})),
        ToolState::Running { metadata, .. } if has_shown_nothing(metadata.as_ref()) => {
            let input = shape::input(&tool.state);
            ("tool.called", json!({"callID": id, "tool": tool.tool, "input": input, "provider": provider}))
        }
        ToolState::Running { metadata, .. } => {
            let content = shape::output_so_far(metadata.as_ref());
            ("tool.progress", json!({"callID": id, "structured": {}, "content": content}))
        }
        ToolState::Completed { output, metadata, .. } => {
            let content = shape::text_content(output);
            let data =
                json!({"callID": id, "structured": metadata, "content": content, "provider": provider});
            ("tool.success", data)
        }
        ToolState::Error { error, .. } => {
            ("tool.failed", json!({"callID": id, "error": shape::failure(error), "provider": provider}))
        }
    }
}
