//! OpenCode's JSON of stored objects: adds members that its clients require, and leaves out members that they do not
//! know.

use crate::{
    app::gateway::Gateway,
    streams::{
        event::Fragment,
        update::{Content, Update},
    },
};
use bus::feed::Notice;
use domain::{
    conversation::{batch, message::Message, part::Part},
    event::{self, StoredEvent},
    ids::{SessionId, Timestamp},
    session::Info,
};
use serde_json::{Map, Value, json, value::RawValue};
use store::log::messages::MessageWithParts;

/// The prefix of event kinds that OpenCode's clients do not know.
const FLOTILLA: &str = "flotilla.";
/// Characters of the id in a slug: they distinguish sessions with the same title.
const SLUG_ID_CHARS: usize = 6;
/// Characters of a title in a slug.
const SLUG_CHARS: usize = 40;

/// A session as clients of a directory see it.
pub(in crate::http) fn session(info: &Info, directory: &str) -> Value {
    let mut json = serde_json::to_value(info).unwrap_or_default();
    if let Some(members) = json.as_object_mut() {
        complete(members, directory);
    }
    json
}

pub(super) fn entry(entry: &MessageWithParts) -> Value {
    let at = created_at(&entry.message);
    let parts: Vec<Value> = entry.parts.iter().map(|(_, one)| part(one, at)).collect();
    json!({"info": message(&entry.message), "parts": parts})
}

/// A message without its parts.
pub(super) fn message(message: &Message) -> Value {
    with_known_error(serde_json::to_value(message).unwrap_or_default())
}

/// A part of a message. A call that waits for a person's permission is shown as running since `at`.
pub(super) fn part(part: &Part, at: Timestamp) -> Value {
    let mut json = with_known_error(serde_json::to_value(part).unwrap_or_default());
    show_input(&mut json, &json!(at));
    json
}

/// When a message was created.
pub(super) fn created_at(message: &Message) -> Timestamp {
    match message {
        Message::User(user) => user.time.created,
        Message::Assistant(step) => step.time.created,
    }
}

/// Shows a call with arguments as running since `at` if it has not begun: it waits for a person's permission. OpenCode's TUI asks the
/// person, and shows the arguments of calls that are not `pending` only. While the model writes them, a call has no arguments and
/// stays pending. A batch shows what all its calls would do.
fn show_input(part: &mut Value, at: &Value) {
    let is_batch = part.get("tool").is_some_and(|tool| tool == batch::NAME);
    let Some(state) = part.get_mut("state").and_then(Value::as_object_mut) else { return };
    let has_input = state.get("input").and_then(Value::as_object).is_some_and(|input| !input.is_empty());
    if has_input && state.get("status").is_some_and(|status| status == "pending") {
        state.remove("raw");
        state.insert("status".to_owned(), "running".into());
        state.insert("time".to_owned(), json!({"start": at}));
        if let Some(input) = state.get_mut("input").filter(|_| is_batch) {
            let shown = batch::shown_arguments(input);
            input.as_object_mut().into_iter().for_each(|input| input.extend(shown.clone()));
        }
    }
}

/// The events that clients get for an update; empty for Flotilla's own events.
pub(super) fn payloads(gateway: &Gateway, update: &Update) -> Vec<String> {
    match &update.content {
        Content::Event { event, .. } if event.kind == event::FILES_CHANGED => by_file(event),
        Content::Event { event, .. } => {
            let directory = update.scope.directory().map_or("", |directory| &directory.name);
            let properties = properties(&event.kind, &event.properties, directory);
            let payload = |properties| {
                format!("{{\"id\":\"{}\",\"type\":\"{}\",\"properties\":{properties}}}", event.id, event.kind)
            };
            properties.map(payload).into_iter().collect()
        }
        Content::Fragment { fragment, .. } => {
            let (id, properties) =
                (gateway.event_id(), delta(update.scope.session(), fragment, &fragment.text));
            vec![json!({"id": id, "type": "message.part.delta", "properties": properties}).to_string()]
        }
        Content::Notice(notice) if notice.kind.starts_with(FLOTILLA) => vec![],
        Content::Notice(Notice { id, kind, properties, .. }) => {
            vec![json!({"id": id, "type": kind, "properties": properties}).to_string()]
        }
    }
}

/// One stored event names many files; OpenCode has one event for each file.
fn by_file(event: &StoredEvent) -> Vec<String> {
    let properties: Value = serde_json::from_str(&event.properties).unwrap_or_default();
    let files = properties["files"].as_array().cloned().unwrap_or_default();
    let payload = |(at, file): (usize, Value)| {
        json!({"id": format!("{}_{at}", event.id), "type": event.kind, "properties": file}).to_string()
    };
    files.into_iter().enumerate().map(payload).collect()
}

/// The properties of a fragment with this text.
pub(super) fn delta(session: Option<&SessionId>, fragment: &Fragment, text: &str) -> Value {
    json!({
        "sessionID": session, "messageID": fragment.message_id, "partID": fragment.part_id, "field": "text",
        "delta": text,
    })
}

/// The properties of an event; `None` for Flotilla's own events.
fn properties(kind: &str, properties: &str, directory: &str) -> Option<Box<RawValue>> {
    if kind.starts_with(FLOTILLA) {
        return None;
    }
    let raw = || RawValue::from_string(properties.to_owned()).ok();
    let changed = |change: &dyn Fn(&mut Map<String, Value>)| {
        let mut json: Map<String, Value> = serde_json::from_str(properties).ok()?;
        change(&mut json);
        serde_json::value::to_raw_value(&json).ok()
    };
    match kind {
        event::IDLE => changed(&|json| drop(json.remove("outcome"))),
        "session.created" | "session.updated" | "session.deleted" => changed(&|json| {
            if let Some(info) = json.get_mut("info").and_then(Value::as_object_mut) {
                complete(info, directory);
            }
        }),
        "message.part.updated" if properties.contains("\"pending\"") => changed(&|json| {
            let at = json.get("time").cloned().unwrap_or_default();
            if let Some(part) = json.get_mut("part") {
                show_input(part, &at);
            }
        }),
        "session.error" | "message.updated" | "message.part.updated" if properties.contains("\"error\"") => {
            let json: Value = serde_json::from_str(properties).ok()?;
            let Value::Object(members) = with_known_error(json) else { return None };
            let mended = members.into_iter().map(|(name, value)| match name.as_str() {
                "info" | "part" => (name, with_known_error(value)),
                _ => (name, value),
            });
            serde_json::value::to_raw_value(&mended.collect::<Map<_, _>>()).ok()
        }
        _ => raw(),
    }
}

/// Keeps the members of an error that OpenCode knows for its kind. The provider of a failed call moves to its `metadata`.
fn with_known_error(mut holder: Value) -> Value {
    let Some(error) = holder.get_mut("error") else { return holder };
    let name = error["name"].as_str().unwrap_or_default().to_owned();
    let Some(data) = error.get_mut("data").and_then(Value::as_object_mut) else { return holder };
    let members: &[&str] = match name.as_str() {
        "APIError" => {
            if let Some(provider) = data.remove("providerID") {
                data.insert("metadata".to_owned(), json!({"providerID": provider}));
            }
            data.entry("isRetryable").or_insert(Value::Bool(false));
            &["message", "statusCode", "isRetryable", "metadata"]
        }
        "ProviderAuthError" => &["message", "providerID"],
        "StructuredOutputError" => &["message", "retries"],
        "UnknownError" => &["message", "ref"],
        _ => &["message"],
    };
    data.retain(|fact, _| members.contains(&fact.as_str()));
    holder
}

/// Adds the directory by which the client knows the project, and a readable name for URLs.
fn complete(info: &mut Map<String, Value>, directory: &str) {
    info.insert("directory".to_owned(), directory.into());
    let text = |key: &str| info.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (title, id) = (text("title").to_lowercase(), text("id"));
    let words: Vec<&str> =
        title.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let readable: String = words.join("-").chars().take(SLUG_CHARS).collect();
    let tail = &id[id.len().saturating_sub(SLUG_ID_CHARS)..];
    info.insert("slug".to_owned(), json!(format!("{readable}-{tail}")));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_call_that_waits_for_permission_shows_its_input() {
        let shaped = |state: Value| {
            let updated = json!({"part": {"type": "tool", "state": state}, "time": 7}).to_string();
            let shaped = properties("message.part.updated", &updated, "").unwrap();
            serde_json::from_str::<Value>(shaped.get()).unwrap()["part"]["state"].clone()
        };
        let input = json!({"command": "make"});
        assert_eq!(
            shaped(json!({"status": "pending", "input": input, "raw": ""})),
            json!({"status": "running", "input": input, "time": {"start": 7}})
        );
        let calls =
            json!([{"tool": "bash", "parameters": input}, {"tool": "bash", "parameters": {"command": "ls"}}]);
        let batch = json!({"tool_calls": calls});
        let waiting = json!({"part": {"type": "tool", "tool": "batch", "state": {"status": "pending", "input": batch, "raw": ""}}});
        let shown = properties("message.part.updated", &waiting.to_string(), "").unwrap();
        let shown: Value = serde_json::from_str(shown.get()).unwrap();
        assert_eq!(
            shown["part"]["state"]["input"],
            json!({"tool_calls": calls, "command": "make\nls"}),
            "a batch shows its commands"
        );
        for unchanged in [
            json!({"status": "pending", "input": {}, "raw": ""}),
            json!({"status": "running", "input": {"todos": [{"status": "pending"}]}, "time": {"start": 1}}),
        ] {
            assert_eq!(shaped(unchanged.clone()), unchanged);
        }
    }

    #[test]
    fn errors_keep_only_the_members_of_their_kind() {
        let all = json!({"message": "m", "statusCode": 400, "isRetryable": true, "providerID": "p", "retries": 2, "ref": "r"});
        for (name, want) in [
            (
                "APIError",
                json!({"message": "m", "statusCode": 400, "isRetryable": true, "metadata": {"providerID": "p"}}),
            ),
            ("ProviderAuthError", json!({"message": "m", "providerID": "p"})),
            ("StructuredOutputError", json!({"message": "m", "retries": 2})),
            ("UnknownError", json!({"message": "m", "ref": "r"})),
            ("ContextOverflowError", json!({"message": "m"})),
        ] {
            let error = json!({"name": name, "data": all});
            let shaped = properties("session.error", &json!({"error": error}).to_string(), "").unwrap();
            let shaped: Value = serde_json::from_str(shaped.get()).unwrap();
            assert_eq!(shaped, json!({"error": {"name": name, "data": want}}));
            let info = json!({"info": {"error": error}}).to_string();
            let shaped = properties("message.updated", &info, "").unwrap();
            assert_eq!(serde_json::from_str::<Value>(shaped.get()).unwrap()["info"]["error"]["data"], want);
        }
        let bare = with_known_error(json!({"error": {"name": "APIError", "data": {"message": "m"}}}));
        assert_eq!(bare["error"]["data"]["isRetryable"], false, "OpenCode requires it");
        let tool = json!({"state": {"error": "a text"}});
        assert_eq!(with_known_error(tool.clone()), tool);
    }
}
