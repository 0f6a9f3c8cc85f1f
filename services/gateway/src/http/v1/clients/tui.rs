//! Sends commands to the terminal clients that are subscribed to a directory with the same key. The sender does not learn
//! whether any client is subscribed.

use crate::{
    app::{gateway::Gateway, projects::manage, sessions::read},
    http::{
        callers::caller::Caller,
        input::extractors::Body,
        refusal::{RequestPart, Result},
    },
    streams::notices::ClientCommand,
};
use axum::{Json, extract::State};
use domain::ids::SessionId;
use serde::Deserialize;
use serde_json::json;

/// Bytes of one command: a few pages of text. Every gateway forwards it to every subscribed client. HTTP answers 400 to a longer one.
const BYTES_MAX: usize = 64 * 1024;
/// Older names of commands, which some programs still send.
const OLDER_NAMES: [(&str, &str); 13] = [
    ("session_new", "session.new"),
    ("session_share", "session.share"),
    ("session_interrupt", "session.interrupt"),
    ("session_compact", "session.compact"),
    ("messages_page_up", "session.page.up"),
    ("messages_page_down", "session.page.down"),
    ("messages_line_up", "session.line.up"),
    ("messages_line_down", "session.line.down"),
    ("messages_half_page_up", "session.half.page.up"),
    ("messages_half_page_down", "session.half.page.down"),
    ("messages_first", "session.first"),
    ("messages_last", "session.last"),
    ("agent_cycle", "agent.cycle"),
];

type Answer = Result<Json<bool>>;

/// A command, as clients get it.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", content = "properties")]
pub(in crate::http) enum Command {
    #[serde(rename = "tui.prompt.append")]
    Append(Append),
    #[serde(rename = "tui.command.execute")]
    Execute(Execute),
    #[serde(rename = "tui.toast.show")]
    Toast(Toast),
    #[serde(rename = "tui.session.select")]
    Select(Select),
}

#[derive(Debug, Deserialize)]
pub(in crate::http) struct Append {
    text: String,
}

#[derive(Debug, Deserialize)]
pub(in crate::http) struct Execute {
    command: String,
}

#[derive(Debug, Deserialize)]
pub(in crate::http) struct Toast {
    #[serde(default)]
    title: Option<String>,
    message: String,
    variant: Variant,
    /// Milliseconds.
    #[serde(default)]
    duration: Option<std::num::NonZeroU32>,
}

#[derive(Debug, Clone, Copy, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
enum Variant {
    Info,
    Success,
    Warning,
    Error,
}

#[derive(Debug, Deserialize)]
pub(in crate::http) struct Select {
    #[serde(rename = "sessionID")]
    session_id: SessionId,
}

pub(in crate::http) async fn append_prompt(
    State(gateway): State<Gateway>,
    caller: Caller,
    Body(append): Body<Append>,
) -> Answer {
    send(&gateway, &caller, Command::Append(append)).await
}

pub(in crate::http) async fn execute_command(
    State(gateway): State<Gateway>,
    caller: Caller,
    Body(execute): Body<Execute>,
) -> Answer {
    send(&gateway, &caller, Command::Execute(execute)).await
}

pub(in crate::http) async fn show_toast(
    State(gateway): State<Gateway>,
    caller: Caller,
    Body(toast): Body<Toast>,
) -> Answer {
    send(&gateway, &caller, Command::Toast(toast)).await
}

pub(in crate::http) async fn select_session(
    State(gateway): State<Gateway>,
    caller: Caller,
    Body(select): Body<Select>,
) -> Answer {
    send(&gateway, &caller, Command::Select(select)).await
}

pub(in crate::http) async fn publish(
    State(gateway): State<Gateway>,
    caller: Caller,
    Body(command): Body<Command>,
) -> Answer {
    send(&gateway, &caller, command).await
}

pub(in crate::http) async fn submit_prompt(State(gateway): State<Gateway>, caller: Caller) -> Answer {
    execute_named(&gateway, &caller, "prompt.submit").await
}

pub(in crate::http) async fn clear_prompt(State(gateway): State<Gateway>, caller: Caller) -> Answer {
    execute_named(&gateway, &caller, "prompt.clear").await
}

pub(in crate::http) async fn open_help(State(gateway): State<Gateway>, caller: Caller) -> Answer {
    execute_named(&gateway, &caller, "help.show").await
}

pub(in crate::http) async fn open_sessions(State(gateway): State<Gateway>, caller: Caller) -> Answer {
    execute_named(&gateway, &caller, "session.list").await
}

pub(in crate::http) async fn open_themes(State(gateway): State<Gateway>, caller: Caller) -> Answer {
    execute_named(&gateway, &caller, "theme.switch").await
}

pub(in crate::http) async fn open_models(State(gateway): State<Gateway>, caller: Caller) -> Answer {
    execute_named(&gateway, &caller, "model.list").await
}

async fn execute_named(gateway: &Gateway, caller: &Caller, command: &str) -> Answer {
    send(gateway, caller, Command::Execute(Execute { command: command.to_owned() })).await
}

/// Sends a command to the clients of the caller's directory.
async fn send(gateway: &Gateway, caller: &Caller, command: Command) -> Answer {
    if let Command::Select(Select { session_id }) = &command {
        read::get(gateway, &caller.principal, session_id).await?;
    }
    let command = command.for_clients();
    if command.properties.to_string().len() > BYTES_MAX {
        let message = format!("a command for terminal clients must have at most {BYTES_MAX} bytes");
        return Err(RequestPart::Body.unreadable(message));
    }
    manage::command_clients(gateway, &caller.principal, caller.directory(gateway).await?, &command).await?;
    Ok(Json(true))
}

impl Command {
    fn for_clients(self) -> ClientCommand {
        let (kind, properties) = match self {
            Self::Append(Append { text }) => ("tui.prompt.append", json!({"text": text})),
            Self::Execute(Execute { command }) => {
                let newer = OLDER_NAMES.iter().find(|(older, _)| *older == command);
                let command = newer.map_or(command.as_str(), |(_, newer)| newer);
                ("tui.command.execute", json!({"command": command}))
            }
            Self::Toast(Toast { title, message, variant, duration }) => {
                let mut toast = json!({"message": message, "variant": variant});
                if let Some(title) = title {
                    toast["title"] = title.into();
                }
                if let Some(duration) = duration {
                    toast["duration"] = duration.get().into();
                }
                ("tui.toast.show", toast)
            }
            Self::Select(Select { session_id }) => ("tui.session.select", json!({"sessionID": session_id})),
        };
        ClientCommand { kind, properties }
    }
}
