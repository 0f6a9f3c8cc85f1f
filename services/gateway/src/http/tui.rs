//! What a program may do at the terminal clients that follow a directory with the same key, such as an editor's extension at the
//! one beside it. They are told, and do it; whether anybody follows is not known.

pub(super) mod control;

use super::{
    caller::Caller,
    error::{Refused, Result},
    input::Body,
};
use crate::state::State;
use axum::{Json, extract::State as Shared};
use domain::ids::SessionId;
use serde::Deserialize;
use serde_json::{Value, json};

/// Bytes of what is told at once: a few pages of text. Every gateway passes it on to every client that follows.
const BYTES_MAX: usize = 64 * 1024;
/// The older words for what clients do, which some programs still send.
const OLDER_WORDS: [(&str, &str); 13] = [
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

type Done = Result<Json<bool>>;

/// What clients are told.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", content = "properties")]
pub(super) enum Order {
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
pub(super) struct Append {
    text: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Execute {
    command: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Toast {
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
pub(super) struct Select {
    #[serde(rename = "sessionID")]
    session_id: SessionId,
}

pub(super) async fn append_prompt(state: Shared<State>, caller: Caller, Body(append): Body<Append>) -> Done {
    tell(&state, &caller, Order::Append(append)).await
}

pub(super) async fn execute_command(
    state: Shared<State>,
    caller: Caller,
    Body(execute): Body<Execute>,
) -> Done {
    tell(&state, &caller, Order::Execute(execute)).await
}

pub(super) async fn show_toast(state: Shared<State>, caller: Caller, Body(toast): Body<Toast>) -> Done {
    tell(&state, &caller, Order::Toast(toast)).await
}

pub(super) async fn select_session(state: Shared<State>, caller: Caller, Body(select): Body<Select>) -> Done {
    tell(&state, &caller, Order::Select(select)).await
}

pub(super) async fn publish(state: Shared<State>, caller: Caller, Body(order): Body<Order>) -> Done {
    tell(&state, &caller, order).await
}

pub(super) async fn submit_prompt(state: Shared<State>, caller: Caller) -> Done {
    execute(&state, &caller, "prompt.submit").await
}

pub(super) async fn clear_prompt(state: Shared<State>, caller: Caller) -> Done {
    execute(&state, &caller, "prompt.clear").await
}

pub(super) async fn open_help(state: Shared<State>, caller: Caller) -> Done {
    execute(&state, &caller, "help.show").await
}

pub(super) async fn open_sessions(state: Shared<State>, caller: Caller) -> Done {
    execute(&state, &caller, "session.list").await
}

pub(super) async fn open_themes(state: Shared<State>, caller: Caller) -> Done {
    execute(&state, &caller, "theme.switch").await
}

pub(super) async fn open_models(state: Shared<State>, caller: Caller) -> Done {
    execute(&state, &caller, "model.list").await
}

async fn execute(state: &State, caller: &Caller, command: &str) -> Done {
    tell(state, caller, Order::Execute(Execute { command: command.to_owned() })).await
}

/// Tells the clients of the caller's directory, which need not be there.
async fn tell(state: &State, caller: &Caller, order: Order) -> Done {
    if let Order::Select(Select { session_id }) = &order {
        state.store.get_session(caller.principal.tenant, session_id).await?;
    }
    let (kind, properties) = order.notice();
    if properties.to_string().len() > BYTES_MAX {
        let message = format!("a terminal client is told at most {BYTES_MAX} bytes at once");
        return Err(Refused::Unreadable("Body", message));
    }
    // Who follows a directory has made its project.
    if let Some(project) = caller.find_project(state).await? {
        state.order(&caller.principal, &project, (kind, &properties));
    }
    Ok(Json(true))
}

impl Order {
    fn notice(self) -> (&'static str, Value) {
        match self {
            Self::Append(Append { text }) => ("tui.prompt.append", json!({"text": text})),
            Self::Execute(Execute { command }) => {
                let newer = OLDER_WORDS.iter().find(|(older, _)| *older == command);
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
        }
    }
}
