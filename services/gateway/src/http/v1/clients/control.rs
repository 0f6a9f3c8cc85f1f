//! Commands for a terminal client that polls for them instead of subscribing to events. A command reaches the clients that are
//! polling at that moment; it is not kept for later.

use crate::{
    app::{
        events::subscribe::{self, JoinedFeed},
        gateway::Gateway,
    },
    http::{
        callers::caller::Caller,
        input::read,
        refusal::{Refusal, RequestPart, Result},
    },
    memory::bodies::BODY,
    streams::{
        bounded::ring::Receiver,
        update::{Content, Interest, Update},
    },
};
use axum::{
    Json,
    extract::{Request, State},
};
use serde::de::IgnoredAny;
use serde_json::{Value, json, value::RawValue};
use std::time::Duration;
use tokio::{sync::broadcast::error::RecvError, time::timeout};

/// Longest poll: the gateway cannot tell whether a polling client still exists. Then HTTP answers 503, and the client polls again.
const POLL_MAX: Duration = Duration::from_secs(10 * 60);
/// The operations that send commands of these kinds.
const PATHS: [(&str, &str); 4] = [
    ("tui.prompt.append", "/tui/append-prompt"),
    ("tui.command.execute", "/tui/execute-command"),
    ("tui.toast.show", "/tui/show-toast"),
    ("tui.session.select", "/tui/select-session"),
];

/// Waits for the next command.
pub(in crate::http) async fn next(State(gateway): State<Gateway>, caller: Caller) -> Result<Json<Value>> {
    let interest = match caller.find_directory(&gateway).await? {
        Some(directory) => directory.interest(),
        None => Interest::Directory(caller.directory(&gateway).await?.to_owned()),
    };
    let reader = caller.principal.reader();
    let concerns = |update: &Update| update.concerns(reader, &interest);
    let JoinedFeed { feed, updates } = subscribe::join_feed(&gateway, &caller.principal).await?;
    let waiting = async { timeout(POLL_MAX, next_command(updates, concerns)).await.ok().flatten() };
    let command = gateway.shutdown().run_until_cancelled(waiting).await.flatten();
    drop(feed);
    let Command { path, body } = command.ok_or(Refusal::NoCommand)?;
    Ok(Json(json!({"path": path, "body": body})))
}

struct Command {
    path: &'static str,
    body: Box<RawValue>,
}

async fn next_command(mut updates: Receiver<Update>, concerns: impl Fn(&Update) -> bool) -> Option<Command> {
    loop {
        let update = match updates.recv().await {
            Ok(update) => update,
            Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return None,
        };
        let Content::Notice(notice) = &update.content else { continue };
        let path = PATHS.iter().find(|(kind, _)| *kind == notice.kind).map(|(_, path)| *path);
        if let Some(path) = path.filter(|_| concerns(&update)) {
            return Some(Command { path, body: notice.properties.clone() });
        }
    }
}

/// Accepts a client's response to a command and drops it: the sender was answered at once.
pub(in crate::http) async fn response(
    State(gateway): State<Gateway>,
    _: Caller,
    request: Request,
) -> Result<Json<bool>> {
    let body = read::json(&gateway, request, BODY).await?;
    let wrong = |error| RequestPart::Body.unreadable(format!("the body is not valid JSON: {error}"));
    serde_json::from_slice::<IgnoredAny>(&body).map_err(wrong)?;
    Ok(Json(true))
}
