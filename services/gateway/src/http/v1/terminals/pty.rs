//! Terminals. A client names a directory: its terminals are those of its sessions, and a new terminal belongs to the session that the client last
//! worked with there, else to the newest one, which is created if it does not exist.

use super::socket::{self, Socket};
use crate::{
    app::{
        files::visits,
        gateway::Gateway,
        page::PageRequest,
        projects::manage::OpenedDirectory,
        sessions::{
            create::{self, SessionRequest},
            read,
        },
        terminals::{
            host::TerminalHost,
            terminal::{TerminalChange, TerminalRequest, TerminalSize},
            tickets,
        },
    },
    errors::{entity::Entity, error::Error},
    http::{
        callers::caller::{self, Caller},
        input::extractors::{Body, Path, Query},
        refusal::{RequestPart, Result},
    },
};
use axum::{
    Json,
    extract::{FromRequestParts as _, State, WebSocketUpgrade, ws::rejection::WebSocketUpgradeRejection},
    http::{HeaderMap, HeaderName, request::Parts},
    response::Response,
};
use bus::tickets::TICKET_LIFE_S;
use chassis::port;
use domain::ids::{SessionId, pty::PtyId};
use futures::future::try_join_all;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use store::session::sessions::Filter;

/// Sessions of a directory whose terminals are listed: those that the client worked with, then the newest ones. Each is one call to the sandbox.
/// Terminals of further sessions are not in the list.
const SESSIONS_MAX: u32 = 10;
/// A page of another site cannot send this header, so it cannot get a ticket.
const TICKET_HEADER: HeaderName = HeaderName::from_static("x-opencode-ticket");

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct CreateBody {
    command: String,
    args: Vec<String>,
    cwd: String,
    title: String,
    env: HashMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct UpdateBody {
    title: String,
    size: Option<Size>,
}

#[derive(Debug, Deserialize)]
struct Size {
    rows: u32,
    cols: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct ConnectQuery {
    /// Bytes that the client already has; -1: only new output.
    cursor: Option<i64>,
    ticket: Option<String>,
}

/// The shells of every sandbox.
pub(in crate::http) async fn shells(_: Caller) -> Json<Value> {
    let shell = |name: &str| json!({"path": format!("/bin/{name}"), "name": name, "acceptable": true});
    Json(json!([shell("bash"), shell("sh")]))
}

/// The terminals of the directory.
pub(in crate::http) async fn list(
    State(gateway): State<Gateway>,
    caller: Caller,
) -> Result<Json<Vec<Value>>> {
    let sessions = sessions(&gateway, &caller, SESSIONS_MAX).await?;
    let lists = sessions.into_iter().map(|session| {
        let (gateway, principal) = (&gateway, &caller.principal);
        async move {
            let host = TerminalHost::of_session(gateway, principal, &session).await?;
            let terminals = host.list().await?;
            Ok::<_, Error>(terminals.iter().map(|terminal| host.to_json(terminal)).collect::<Vec<_>>())
        }
    });
    Ok(Json(try_join_all(lists).await?.into_iter().flatten().collect()))
}

/// Starts a program at a new terminal.
pub(in crate::http) async fn create(
    State(gateway): State<Gateway>,
    caller: Caller,
    Body(body): Body<CreateBody>,
) -> Result<Json<Value>> {
    let known = sessions(&gateway, &caller, 1).await?.into_iter().next();
    let session = match known {
        Some(session) => session,
        None => {
            let OpenedDirectory { project, worktree, .. } = caller.open_project(&gateway).await?;
            let request = SessionRequest { worktree, ..SessionRequest::of(project.id) };
            create::create(&gateway, &caller.principal, request).await?.info.id
        }
    };
    let host = TerminalHost::of_session(&gateway, &caller.principal, &session).await?;
    let CreateBody { command, args, cwd, title, env } = body;
    let request = TerminalRequest { command, args, directory: host.inside(&cwd), env, title, size: None };
    let terminal = host.create(request).await?;
    Ok(Json(host.to_json(&terminal)))
}

pub(in crate::http) async fn get(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(pty): Path<String>,
) -> Result<Json<Value>> {
    let (host, id) = of_caller(&gateway, &caller, &pty).await?;
    let terminal = host.get(&id).await?;
    Ok(Json(host.to_json(&terminal)))
}

/// Renames or resizes a terminal.
pub(in crate::http) async fn update(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(pty): Path<String>,
    Body(body): Body<UpdateBody>,
) -> Result<Json<Value>> {
    let (host, id) = of_caller(&gateway, &caller, &pty).await?;
    let size = body.size.map(|size| TerminalSize { rows: size.rows, columns: size.cols });
    let terminal = host.update(&id, TerminalChange { title: body.title, size }).await?;
    Ok(Json(host.to_json(&terminal)))
}

pub(in crate::http) async fn delete(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(pty): Path<String>,
) -> Result<Json<bool>> {
    let (host, id) = of_caller(&gateway, &caller, &pty).await?;
    host.delete(&id).await?;
    Ok(Json(true))
}

/// Issues a ticket for one connection, for pages that cannot send a key with it.
pub(in crate::http) async fn connect_token(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(pty): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>> {
    if headers.get(TICKET_HEADER).is_none_or(|value| value != "1") {
        return Err(Error::TerminalForbidden("Invalid PTY connect token request").into());
    }
    let (host, id) = of_caller(&gateway, &caller, &pty).await?;
    host.get(&id).await?;
    let directory = caller.directory.as_deref().unwrap_or_default();
    let ticket = tickets::issue(&gateway, &caller.principal, &id, directory).await?;
    Ok(Json(json!({"ticket": ticket, "expires_in": TICKET_LIFE_S})))
}

/// Connects a client with a key or a ticket.
pub(in crate::http) async fn connect(
    State(gateway): State<Gateway>,
    Path(pty): Path<String>,
    Query(query): Query<ConnectQuery>,
    mut parts: Parts,
    upgrade: std::result::Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response> {
    let (host, id, key) = match &query.ticket {
        Some(ticket) => {
            let directory = caller::directory(&parts)?.unwrap_or_default();
            let redeemed = tickets::redeem(&gateway, ticket, &pty, &directory).await?;
            port::vouch(&parts.extensions);
            (redeemed.host, redeemed.terminal, redeemed.key)
        }
        None => {
            // A browser sends the user's key for any page that connects, so only known pages may connect.
            if gateway.origins().is_foreign(&parts.uri, &parts.headers) {
                return Err(Error::TerminalForbidden("a page of another site needs a ticket").into());
            }
            let caller = Caller::from_request_parts(&mut parts, &gateway).await?;
            let (host, id) = of_caller(&gateway, &caller, &pty).await?;
            (host, id, caller.principal.key())
        }
    };
    let live = key.map(|key| gateway.live_keys().watch(key));
    let from = query.cursor.map_or(Some(0), |cursor| u64::try_from(cursor).ok());
    let output = host.attach(&id, from).await?;
    let no_upgrade = |error: WebSocketUpgradeRejection| RequestPart::Headers.unreadable(error.to_string());
    let upgrade = upgrade.map_err(no_upgrade)?;
    let shutdown = gateway.shutdown().clone();
    let upgrade =
        upgrade.max_frame_size(socket::MESSAGE_BYTES_MAX).max_message_size(socket::MESSAGE_BYTES_MAX);
    Ok(upgrade.on_upgrade(async move |socket| {
        let run = Box::pin(Socket::new(host, id, socket).run(output, shutdown));
        match &live {
            // Without its key, the client sees a connection that ends.
            Some(live) => drop(live.revoked().run_until_cancelled(run).await),
            None => run.await,
        }
    }))
}

/// A terminal of the caller's directory.
async fn of_caller(gateway: &Gateway, caller: &Caller, pty: &str) -> Result<(TerminalHost, PtyId)> {
    let (host, id) = TerminalHost::of_terminal(gateway, &caller.principal, pty).await?;
    let is_inside = caller.find_directory(gateway).await?.is_some_and(|directory| {
        directory.project.id == *host.project()
            && directory.worktree.is_none_or(|worktree| worktree.directory == host.directory())
    });
    if is_inside { Ok((host, id)) } else { Err(Error::NotFound(Entity::Terminal).into()) }
}

/// Sessions of the caller's directory: those that the client worked with, the last one first, then the newest root sessions.
async fn sessions(gateway: &Gateway, caller: &Caller, limit: u32) -> Result<Vec<SessionId>> {
    let Some(directory) = caller.find_directory(gateway).await? else { return Ok(vec![]) };
    let area = directory.area();
    let mut sessions = visits::list(gateway, &caller.principal, &area).await?;
    if sessions.len() < limit as usize {
        let filter = Filter { only_roots: true, ..Filter::from(area) };
        let page = PageRequest { limit: Some(limit), cursor: None };
        let newest = read::list(gateway, &caller.principal, &filter, page).await?;
        sessions.extend(newest.entries.into_iter().map(|view| view.session));
    }
    let mut ids: Vec<SessionId> = vec![];
    for session in sessions {
        if !ids.contains(&session.info.id) {
            ids.push(session.info.id);
        }
    }
    ids.truncate(limit as usize);
    Ok(ids)
}
