//! `flotilla export`: a session with its conversation as one JSON object, in the form of `opencode export`.

use super::messages;
use crate::{
    client::{Client, get_session},
    exit::Exit,
    terminal::output::Output,
};
use anyhow::{Context as _, Result};
use rpc::v1::Message;
use serde_json::{Value, json};

/// `flotilla export`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// The session.
    pub(crate) id: String,
}

/// Prints the session.
pub(crate) async fn run(client: &Client, output: &Output, arguments: ExportArgs) -> Result<Exit> {
    let id = get_session(client, &arguments.id).await?.id;
    let info = client.get_json(&format!("/session/{id}"), None).await.context("load the session")?;
    let mut object = to_json(info, &messages::load(client, &id).await?)?;
    if output.is_json() {
        output.json(&object)?;
    } else {
        if let Some(fields) = object.as_object_mut() {
            fields.shift_remove("type");
        }
        output.line(&format!("{object:#}"))?;
    }
    Ok(Exit::Done)
}

/// The object of a session: OpenCode's objects, as the gateway sends them.
///
/// # Errors
/// One of them is no JSON.
pub(crate) fn to_json(info: Value, messages: &[Message]) -> Result<Value> {
    let read = |json: &str| serde_json::from_str::<Value>(json).context("read a message");
    let message = |message: &Message| {
        let parts = message.parts.iter().map(|part| read(&part.json)).collect::<Result<Vec<_>>>()?;
        Ok(json!({"info": read(&message.info_json)?, "parts": parts}))
    };
    let messages = messages.iter().map(message).collect::<Result<Vec<_>>>()?;
    Ok(json!({"type": "export", "info": info, "messages": messages}))
}
