//! The log of a session as the newer API tells it. Every event of ours says by itself what it is there; only which agent and
//! model began a step, and what a prompt says, is looked up. Positions are those of our log, so they have gaps.

use super::{
    super::{
        caller::Caller,
        error::{Refused, Result},
        input::Query,
        sessions::id,
        stream,
    },
    shape,
};
use crate::{
    events::{self, From, Wish},
    state::State,
};
use axum::{
    Json,
    extract::{Path, State as Shared},
    http::HeaderMap,
    response::{
        IntoResponse as _, Response,
        sse::{Event, Sse},
    },
};
use domain::{
    event::StoredEvent,
    ids::{MessageId, SessionId, TenantId, Timestamp},
    limits,
    message::{Assistant, Message},
    part::{Body, Part, Tool, ToolState},
};
use futures::stream::unfold;
use rpc::v1::subscribe_response::Item;
use serde::Deserialize;
use serde_json::{Value, json};
use std::{collections::HashMap, convert::Infallible};
use store::log::messages::MessageWithParts;
use tonic::Status;

/// Events of a page when the client does not say how many.
const PAGE_DEFAULT: usize = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct Asked {
    after: u64,
    limit: Option<usize>,
}

/// One page of what is stored.
pub(in crate::http) async fn history(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session): Path<String>,
    Query(asked): Query<Asked>,
) -> Result<Json<Value>> {
    let (tenant, session) = (caller.principal.tenant, id(&session)?);
    state.store.get_head(tenant, &session).await?;
    let limit = asked.limit.unwrap_or(PAGE_DEFAULT).clamp(1, limits::PAGE_MAX as usize);
    let mut teller = Teller::new(state, tenant, session);
    let mut pages = teller.state.store.event_pages(tenant, teller.session.clone(), asked.after);
    let mut told = vec![];
    while let Some(events) = pages.next().await? {
        for event in events {
            told.extend(teller.tell(&event).await);
            if told.len() > limit {
                told.truncate(limit);
                return Ok(Json(json!({"data": told, "hasMore": true})));
            }
        }
    }
    Ok(Json(json!({"data": told, "hasMore": false})))
}

/// Everything after a position, and then what happens, until the client leaves.
pub(in crate::http) async fn follow(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session): Path<String>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Result<Response> {
    let (tenant, session) = (caller.principal.tenant, id(&session)?);
    let resumed = headers.get(stream::LAST_EVENT_ID).and_then(|value| value.to_str().ok()?.parse().ok());
    let from = From::After(resumed.unwrap_or(asked.after));
    let wish = Wish { tenant, session: session.clone(), from, until_idle_after: None };
    let news = events::subscribe(&state, wish).await.map_err(ahead)?;
    let teller = Teller::new(state, tenant, session);
    let frames = unfold((news, teller), async |(mut news, mut teller)| {
        // The end of the stream is all that is said about its failure: the client comes again.
        while let Some(Ok(answer)) = news.recv().await {
            let frame = match answer.item {
                Some(Item::Event(event)) => {
                    let properties = String::from_utf8_lossy(&event.properties_json).into_owned();
                    let (seq, epoch, at) = (event.seq, event.epoch, Timestamp(event.at_ms));
                    let stored = StoredEvent { seq, epoch, id: event.id, kind: event.kind, properties, at };
                    let Some(told) = teller.tell(&stored).await else { continue };
                    let kind = told["type"].as_str().unwrap_or_default();
                    Event::default().id(seq.to_string()).event(kind).data(told.to_string())
                }
                Some(Item::Heartbeat(_)) => Event::default().comment("heartbeat"),
                _ => continue,
            };
            return Some((Ok::<_, Infallible>(frame), (news, teller)));
        }
        None
    });
    Ok((stream::UNBUFFERED, Sse::new(frames)).into_response())
}

/// To OpenCode, a position that is ahead of the log is a mistake in the query like any other.
fn ahead(status: Status) -> Refused {
    match rpc::status::code_of(&status).as_deref() {
        Some("cursor_invalid") => Refused::Unreadable("Query", status.message().to_owned()),
        _ => status.into(),
    }
}

/// Tells events in the newer words.
struct Teller {
    state: State,
    tenant: TenantId,
    session: SessionId,
    /// The steps that were told of.
    steps: HashMap<MessageId, Assistant>,
}

type Told = (&'static str, Value);

impl Teller {
    fn new(state: State, tenant: TenantId, session: SessionId) -> Self {
        Self { state, tenant, session, steps: HashMap::new() }
    }

    /// The event that says the same; `None` where the newer API has none.
    async fn tell(&mut self, event: &StoredEvent) -> Option<Value> {
        let mut properties: Value = serde_json::from_str(&event.properties).ok()?;
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

    async fn message(&mut self, seq: u64, message: Message) -> Option<Told> {
        match message {
            Message::User(user) => {
                // Told once: when it came.
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
                let told = failed.map(|error| {
                    let error = shape::failure(&error.data.message);
                    ("step.failed", json!({"assistantMessageID": step.id, "error": error}))
                });
                self.steps.insert(step.id.clone(), *step);
                told
            }
        }
    }

    async fn entry(&self, message: &MessageId) -> Option<MessageWithParts> {
        self.state.store.get_message(self.tenant, &self.session, message).await.ok()
    }

    async fn step(&mut self, message: &MessageId) -> Option<&Assistant> {
        if !self.steps.contains_key(message)
            && let Some(Message::Assistant(step)) = self.entry(message).await.map(|entry| entry.message)
        {
            self.steps.insert(message.clone(), *step);
        }
        self.steps.get(message)
    }

    async fn part(&mut self, part: Part) -> Option<Told> {
        // Parts of prompts are told with their message.
        let step = self.step(&part.message_id).await?;
        if step.is_summary() {
            let (wish, Body::Text(text)) = (step.parent_id.clone(), &part.body) else { return None };
            text.time?.end?;
            let reason = self.entry(&wish).await.and_then(|entry| shape::reason(&entry.parts));
            let data = json!({"messageID": wish, "reason": reason.unwrap_or("auto"), "text": text.text, "recent": ""});
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
            _ => return None,
        };
        data["assistantMessageID"] = json!(part.message_id);
        Some((kind, data))
    }
}

fn call(tool: &Tool) -> Told {
    let (id, provider) = (&tool.call_id, json!({"executed": false}));
    match &tool.state {
        ToolState::Pending { .. } => ("tool.input.started", json!({"callID": id, "name": tool.tool})),
        ToolState::Running { metadata: None, .. } => {
            let input = shape::input(&tool.state);
            ("tool.called", json!({"callID": id, "tool": tool.tool, "input": input, "provider": provider}))
        }
        ToolState::Running { metadata, .. } => {
            let content = shape::shown(metadata.as_ref());
            ("tool.progress", json!({"callID": id, "structured": {}, "content": content}))
        }
        ToolState::Completed { output, metadata, .. } => {
            let content = shape::said(output);
            let data =
                json!({"callID": id, "structured": metadata, "content": content, "provider": provider});
            ("tool.success", data)
        }
        ToolState::Error { error, .. } => {
            ("tool.failed", json!({"callID": id, "error": shape::failure(error), "provider": provider}))
        }
    }
}
