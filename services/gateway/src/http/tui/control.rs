//! For a terminal client that follows no events and asks for one order after the other. An order is told to whoever waits for it
//! just then, as to those that follow; none is kept for later.

use super::super::{
    caller::Caller,
    error::{Refused, Result},
    read,
};
use crate::{
    bodies::BODY,
    feed::told::{Told, What},
    state::State,
};
use axum::{
    Json,
    extract::{Request, State as Shared},
};
use serde::de::IgnoredAny;
use serde_json::{Value, json, value::RawValue};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::broadcast::{Receiver, error::RecvError},
    time::timeout,
};
use tonic::Status;

/// How long a client waits before it has to ask again: whether it is still there nobody knows meanwhile.
const LONGEST: Duration = Duration::from_secs(10 * 60);
/// The operations whose orders are told under these names.
const PATHS: [(&str, &str); 4] = [
    ("tui.prompt.append", "/tui/append-prompt"),
    ("tui.command.execute", "/tui/execute-command"),
    ("tui.toast.show", "/tui/show-toast"),
    ("tui.session.select", "/tui/select-session"),
];

/// Waits for the next order.
pub(in crate::http) async fn next(Shared(state): Shared<State>, caller: Caller) -> Result<Json<Value>> {
    let project = caller.project(&state).await?.id;
    let is_for = |told: &Told| told.is_for(&caller.principal.name, Some(&project));
    let waiting = async {
        let (_feed, told) = state.feeds.join(&state, caller.principal.tenant).await;
        timeout(LONGEST, ordered(told, is_for)).await.ok().flatten()
    };
    let order = state.shutdown.run_until_cancelled(waiting).await.flatten();
    let (path, body) = order.ok_or_else(|| Status::unavailable("nothing was ordered; ask again"))?;
    Ok(Json(json!({"path": path, "body": body})))
}

async fn ordered(
    mut told: Receiver<Arc<Told>>,
    is_for: impl Fn(&Told) -> bool,
) -> Option<(&'static str, Box<RawValue>)> {
    loop {
        let next = match told.recv().await {
            Ok(next) => next,
            Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return None,
        };
        let What::Notice(notice) = &next.what else { continue };
        let path = PATHS.iter().find(|(kind, _)| *kind == notice.kind).map(|(_, path)| *path);
        if let Some(path) = path.filter(|_| is_for(&next)) {
            return Some((path, notice.properties.clone()));
        }
    }
}

/// What a client says to an order, which nobody waits for: whoever gave it was answered at once.
pub(in crate::http) async fn response(_: Caller, request: Request) -> Result<Json<bool>> {
    let body = read::body(request, BODY).await?;
    let unreadable = |error| Refused::Unreadable("Body", format!("the body is no JSON: {error}"));
    serde_json::from_slice::<IgnoredAny>(&body).map_err(unreadable)?;
    Ok(Json(true))
}
