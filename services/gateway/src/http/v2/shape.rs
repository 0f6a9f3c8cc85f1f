//! Sessions, messages and requests in the shapes of OpenCode's newer API.

use domain::{
    conversation::{
        message::{Assistant, Message, ModelChoice},
        part::{Body, Part, Tool, ToolState, attached::File},
        request::{Request, RequestBody},
    },
    session::Info,
};
use serde_json::{Map, Value, json};
use store::log::messages::MessageWithParts;

/// The members that a session of the newer API keeps.
const SESSION_MEMBERS: [&str; 10] =
    ["id", "parentID", "projectID", "agent", "model", "cost", "tokens", "time", "title", "revert"];

/// A session in the directory of a client.
pub(super) fn session(info: &Info, directory: &str) -> Value {
    let mut json = serde_json::to_value(info).unwrap_or_default();
    if let Some(members) = json.as_object_mut() {
        members.retain(|name, _| SESSION_MEMBERS.contains(&name.as_str()));
        members.insert("location".to_owned(), json!({"directory": directory}));
    }
    json
}

/// The prompt that the client sent, without the texts that were added for the model.
pub(super) fn prompt(parts: &[(u64, Part)]) -> Value {
    let bodies = || parts.iter().map(|(_, part)| &part.body);
    let text = |body: &Body| {
        let Body::Text(text) = body else { return None };
        (text.synthetic != Some(true)).then(|| text.text.clone())
    };
    let mut prompt = json!({"text": bodies().filter_map(text).collect::<Vec<_>>().join("\n")});
    let files = bodies().filter_map(|body| if let Body::File(one) = body { Some(file(one)) } else { None });
    let agents = bodies().filter_map(|body| {
        if let Body::Agent(agent) = body { Some(json!({"name": agent.name})) } else { None }
    });
    let (files, agents) = (files.collect::<Vec<_>>(), agents.collect::<Vec<_>>());
    for (name, list) in [("files", files), ("agents", agents)] {
        if !list.is_empty() {
            prompt[name] = list.into();
        }
    }
    prompt
}

fn file(file: &File) -> Value {
    let mut json = json!({"uri": file.url, "mime": file.mime});
    if let Some(name) = &file.filename {
        json["name"] = name.as_str().into();
    }
    json
}

/// The texts of a message that has only synthetic ones, or notes that no model sees.
pub(super) fn synthetic(parts: &[(u64, Part)]) -> Option<String> {
    let mut texts = vec![];
    for (_, part) in parts {
        let Body::Text(text) = &part.body else { return None };
        if text.synthetic != Some(true) && text.ignored != Some(true) {
            return None;
        }
        texts.push(text.text.as_str());
    }
    Some(texts.join("\n"))
}

/// Why a message requests a compaction; `None`: it does not.
pub(super) fn reason(parts: &[(u64, Part)]) -> Option<&'static str> {
    parts.iter().find_map(|(_, part)| {
        let Body::Compaction(compaction) = &part.body else { return None };
        Some(if compaction.auto { "auto" } else { "manual" })
    })
}

/// A message; `None` for a request for a compaction, which its summary represents.
pub(super) fn message(entry: &MessageWithParts) -> Option<Value> {
    let mut json = match &entry.message {
        Message::User(_) if reason(&entry.parts).is_some() => return None,
        Message::User(user) => match synthetic(&entry.parts) {
            Some(text) => json!({"type": "synthetic", "sessionID": user.session_id, "text": text}),
            None => {
                let mut prompt = prompt(&entry.parts);
                prompt["type"] = "user".into();
                prompt
            }
        },
        Message::Assistant(step) if step.is_summary() => {
            let texts = entry.parts.iter().filter_map(|(_, part)| {
                if let Body::Text(text) = &part.body { Some(text.text.as_str()) } else { None }
            });
            let summary = texts.collect::<Vec<_>>().join("\n");
            // The reason is in the request, which is a separate message.
            json!({"type": "compaction", "reason": "auto", "summary": summary, "recent": ""})
        }
        Message::Assistant(step) => assistant(step, &entry.parts),
    };
    let (created, completed) = match &entry.message {
        Message::User(user) => (user.time.created, None),
        Message::Assistant(step) => (step.time.created, step.time.completed.filter(|_| !step.is_summary())),
    };
    json["id"] = entry.message.id().as_str().into();
    json["time"] = json!({"created": created});
    if let Some(completed) = completed {
        json["time"]["completed"] = json!(completed);
    }
    Some(json)
}

/// A model in the form of the newer API.
pub(super) fn model(choice: &ModelChoice) -> Value {
    let mut json = json!({"id": choice.model.model_id, "providerID": choice.model.provider_id});
    if let Some(variant) = &choice.variant {
        json["variant"] = variant.as_str().into();
    }
    json
}

/// An error of any kind.
pub(super) fn failure(message: &str) -> Value {
    json!({"type": "unknown", "message": message})
}

fn assistant(step: &Assistant, parts: &[(u64, Part)]) -> Value {
    let content: Vec<Value> = parts.iter().filter_map(|(_, part)| content(step, part)).collect();
    let mut json = json!({
        "type": "assistant", "agent": step.agent, "model": model(&step.model), "content": content,
        "cost": step.cost.dollars(), "tokens": step.tokens,
    });
    let mut snapshot = Map::new();
    for (_, part) in parts {
        match &part.body {
            Body::StepStart(start) => {
                snapshot.extend(start.snapshot.iter().map(|state| ("start".to_owned(), json!(state))))
            }
            Body::Snapshot(begin) => drop(snapshot.entry("start").or_insert(json!(begin.snapshot))),
            Body::StepFinish(end) => {
                snapshot.extend(end.snapshot.iter().map(|state| ("end".to_owned(), json!(state))))
            }
            Body::Patch(patch) => drop(snapshot.insert("files".to_owned(), json!(patch.files))),
            Body::Text(_)
            | Body::Reasoning(_)
            | Body::File(_)
            | Body::Tool(_)
            | Body::Agent(_)
            | Body::Subtask(_)
            | Body::Retry(_)
            | Body::Compaction(_) => {}
        }
    }
    if !snapshot.is_empty() {
        json["snapshot"] = snapshot.into();
    }
    if let Some(finish) = &step.finish {
        json["finish"] = finish.as_str().into();
    }
    if let Some(error) = &step.error {
        json["error"] = failure(&error.data.message);
    }
    json
}

fn content(step: &Assistant, part: &Part) -> Option<Value> {
    match &part.body {
        Body::Text(text) => Some(json!({"type": "text", "id": part.id, "text": text.text})),
        Body::Reasoning(thought) => {
            let mut time = json!({"created": thought.time.start});
            if let Some(end) = thought.time.end {
                time["completed"] = json!(end);
            }
            Some(json!({"type": "reasoning", "id": part.id, "text": thought.text, "time": time}))
        }
        Body::Tool(tool) => {
            let time = match &tool.state {
                ToolState::Pending { .. } => json!({"created": step.time.created}),
                ToolState::Running { time, .. } => json!({"created": time.start, "ran": time.start}),
                ToolState::Completed { time, .. } => {
                    json!({"created": time.start, "ran": time.start, "completed": time.end})
                }
                ToolState::Error { time, .. } => json!({"created": time.start, "completed": time.end}),
            };
            Some(json!({
                "type": "tool", "id": tool.call_id, "name": tool.tool, "state": tool_state(tool), "time": time,
            }))
        }
        Body::File(_)
        | Body::StepStart(_)
        | Body::StepFinish(_)
        | Body::Snapshot(_)
        | Body::Patch(_)
        | Body::Agent(_)
        | Body::Subtask(_)
        | Body::Retry(_)
        | Body::Compaction(_) => None,
    }
}

fn tool_state(tool: &Tool) -> Value {
    let input = input(&tool.state);
    match &tool.state {
        ToolState::Pending { raw, .. } => json!({"status": "pending", "input": raw}),
        ToolState::Running { metadata, .. } => {
            json!({"status": "running", "input": input, "structured": {}, "content": output_so_far(metadata.as_ref())})
        }
        ToolState::Completed { output, metadata, attachments, .. } => {
            let files = attachments
                .iter()
                .filter_map(|part| if let Body::File(one) = &part.body { Some(file(one)) } else { None });
            json!({
                "status": "completed", "input": input, "structured": metadata, "content": text_content(output),
                "attachments": files.collect::<Vec<_>>(),
            })
        }
        ToolState::Error { error, metadata, .. } => json!({
            "status": "error", "input": input, "structured": {}, "content": output_so_far(metadata.as_ref()),
            "error": failure(error),
        }),
    }
}

/// The arguments of a call; empty unless they are an object.
pub(super) fn input(state: &ToolState) -> Value {
    Some(state.input()).filter(|input| input.is_object()).cloned().unwrap_or_else(|| json!({}))
}

/// A text as the content of a tool call.
pub(super) fn text_content(text: &str) -> Value {
    json!([{"type": "text", "text": text}])
}

/// The output of a running tool call so far.
pub(super) fn output_so_far(metadata: Option<&Map<String, Value>>) -> Value {
    let output = metadata.and_then(|metadata| metadata.get("output")).and_then(Value::as_str);
    output.map_or_else(|| json!([]), text_content)
}

/// A request to people.
pub(super) fn request(request: &Request) -> Value {
    let RequestBody::Permission { permission, patterns, always, metadata } = &request.body else {
        return request.to_json();
    };
    json!({
        "id": request.id.as_str(), "sessionID": request.session_id, "action": permission, "resources": patterns,
        "save": always, "metadata": metadata,
        "source": {"type": "tool", "messageID": request.message_id, "callID": request.call_id},
    })
}
