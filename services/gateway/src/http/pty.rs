//! Terminals as OpenCode's clients know them. They name a directory; its terminals are those of the sessions of its project, and
//! a new one is the newest session's, which is made if there is none.

mod socket;

use super::{
    caller::{self, Caller},
    error::{Refused, Result},
    input::Body,
    place,
};
use crate::{auth, grpc, pty::Place, state::State};
use axum::{
    Json,
    extract::{
        FromRequestParts as _, Path, Query, State as Shared, WebSocketUpgrade,
        ws::rejection::WebSocketUpgradeRejection,
    },
    http::{HeaderMap, HeaderName, header, request::Parts},
    response::Response,
};
use bus::tickets::TICKET_LIFE_S;
use domain::ids::{SessionId, TenantId, pty::PtyId};
use futures::future::try_join_all;
use rpc::{
    status::{error, not_found, unavailable},
    v1::{self, session_service_server::SessionService as _},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::HashMap;
use store::{Page, session::sessions::Filter};
use tonic::{Code, Status};

/// Root sessions of a directory whose terminals are listed, the newest first: each is one call to the sandbox.
const SESSIONS_MAX: usize = 10;
/// Sessions among which those are looked for; the rest are subtasks.
const LOOKED_AT_MAX: u32 = 100;
/// Sent by whoever asks for a ticket: a page of another site cannot.
const TICKET_HEADER: HeaderName = HeaderName::from_static("x-opencode-ticket");

/// What a ticket is good for: `{"tenant":"…","pty":"pty_…","directory":"/home/me/project"}`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Claim {
    tenant: TenantId,
    pty: String,
    directory: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct New {
    command: String,
    args: Vec<String>,
    cwd: String,
    title: String,
    env: HashMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Changed {
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
pub(super) struct Connect {
    /// Bytes that the client has; -1: it wants only what comes.
    cursor: Option<i64>,
    ticket: Option<String>,
}

/// What every sandbox has.
pub(super) async fn shells(_: Caller) -> Json<Value> {
    let shell = |name: &str| json!({"path": format!("/bin/{name}"), "name": name, "acceptable": true});
    Json(json!([shell("bash"), shell("sh")]))
}

pub(super) async fn list(Shared(state): Shared<State>, caller: Caller) -> Result<Json<Vec<Value>>> {
    let mut shown = vec![];
    let places = roots(&state, &caller).await?.into_iter().take(SESSIONS_MAX).map(|session| {
        let (state, tenant) = (&state, caller.principal.tenant);
        async move {
            let place = Place::of(state, tenant, &session).await?;
            let listed = place.list().await?;
            Ok::<_, Status>((place, listed))
        }
    });
    for (place, listed) in try_join_all(places).await? {
        shown.extend(listed.iter().map(|terminal| place.shown(terminal)));
    }
    Ok(Json(shown))
}

pub(super) async fn create(
    Shared(state): Shared<State>,
    caller: Caller,
    Body(new): Body<New>,
) -> Result<Json<Value>> {
    let newest = roots(&state, &caller).await?.into_iter().next();
    let session = match newest {
        Some(session) => session,
        None => new_session(&state, &caller).await?,
    };
    let place = Place::of(&state, caller.principal.tenant, &session).await?;
    let New { command, args, cwd, title, env } = new;
    let directory = place.inside(&cwd);
    let request = v1::CreatePtyRequest { command, args, directory, env, title, ..Default::default() };
    let terminal = place.create(request).await?;
    Ok(Json(place.shown(&terminal)))
}

pub(super) async fn get(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(pty): Path<String>,
) -> Result<Json<Value>> {
    let (place, id) = of_caller(&state, &caller, &pty).await?;
    let terminal = place.get(&id).await?;
    Ok(Json(place.shown(&terminal)))
}

pub(super) async fn update(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(pty): Path<String>,
    Body(changed): Body<Changed>,
) -> Result<Json<Value>> {
    let (place, id) = of_caller(&state, &caller, &pty).await?;
    let size = changed.size.map(|size| v1::TerminalSize { rows: size.rows, columns: size.cols });
    let terminal = place.update(&id, changed.title, size).await?;
    Ok(Json(place.shown(&terminal)))
}

pub(super) async fn delete(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(pty): Path<String>,
) -> Result<Json<bool>> {
    let (place, id) = of_caller(&state, &caller, &pty).await?;
    place.delete(&id).await?;
    Ok(Json(true))
}

/// Gives a ticket for one connection, to pages that can send no key with it.
pub(super) async fn connect_token(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(pty): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>> {
    if headers.get(TICKET_HEADER).is_none_or(|value| value != "1") {
        return Err(forbidden("Invalid PTY connect token request").into());
    }
    let (place, id) = of_caller(&state, &caller, &pty).await?;
    place.get(&id).await?;
    let claim = Claim {
        tenant: caller.principal.tenant,
        pty: id.to_string(),
        directory: caller.project_name()?.to_owned(),
    };
    let ticket = auth::random_text();
    let kept = state.bus.put_ticket(&ticket, &json!(claim).to_string()).await;
    kept.map_err(|error| no_tickets(&error))?;
    Ok(Json(json!({"ticket": ticket, "expires_in": TICKET_LIFE_S})))
}

/// The connection itself, for somebody with a key or a ticket.
pub(super) async fn connect(
    Shared(state): Shared<State>,
    Path(pty): Path<String>,
    Query(asked): Query<Connect>,
    mut parts: Parts,
    upgrade: std::result::Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response> {
    let (place, id) = match &asked.ticket {
        Some(ticket) => {
            let claim = state.bus.take_ticket(ticket).await.map_err(|error| no_tickets(&error))?;
            let claim = claim.and_then(|claim| serde_json::from_str::<Claim>(&claim).ok());
            let directory = caller::directory(&parts)?;
            let directory = place::project_name(directory.as_deref())?.to_owned();
            let claim =
                claim.filter(|claim| claim.pty == pty && claim.directory == directory).ok_or_else(|| {
                    forbidden("the ticket is unknown, was used, is too old, or is for another terminal")
                })?;
            Place::of_pty(&state, claim.tenant, &pty).await?
        }
        None => {
            // A browser sends the user's key for whichever page asks it to connect.
            if parts.headers.get(header::ORIGIN).is_some_and(|origin| !super::is_known(origin)) {
                return Err(forbidden("a page of another site needs a ticket").into());
            }
            let caller = Caller::from_request_parts(&mut parts, &state).await?;
            of_caller(&state, &caller, &pty).await?
        }
    };
    let from = asked.cursor.map_or(Some(0), |cursor| u64::try_from(cursor).ok());
    let items = place.attach(&id, from).await?;
    let no_upgrade = |error: WebSocketUpgradeRejection| Refused::Unreadable("Headers", error.to_string());
    let upgrade = upgrade.map_err(no_upgrade)?;
    let shutdown = state.shutdown.clone();
    let upgrade =
        upgrade.max_frame_size(socket::MESSAGE_BYTES_MAX).max_message_size(socket::MESSAGE_BYTES_MAX);
    Ok(upgrade.on_upgrade(move |socket| socket::Socket::new(place, id, socket).run(items, shutdown)))
}

/// A terminal of the caller's directory.
async fn of_caller(state: &State, caller: &Caller, pty: &str) -> Result<(Place, PtyId)> {
    let (place, id) = Place::of_pty(state, caller.principal.tenant, pty).await?;
    let project = caller.find_project(state).await?;
    if project.is_none_or(|project| project.id != *place.project()) {
        return Err(not_found("pty_not_found", "the directory has no such terminal").into());
    }
    Ok((place, id))
}

/// The root sessions of the caller's directory, the newest first.
async fn roots(state: &State, caller: &Caller) -> Result<Vec<SessionId>> {
    let Some(project) = caller.find_project(state).await? else { return Ok(vec![]) };
    let filter = Filter { project: Some(project.id), only_roots: true, ..Filter::default() };
    let page = Page { limit: LOOKED_AT_MAX, cursor: None };
    let sessions = state.store.list_sessions(caller.principal.tenant, &filter, &page).await?;
    Ok(sessions.into_iter().map(|session| session.info.id).collect())
}

async fn new_session(state: &State, caller: &Caller) -> Result<SessionId> {
    let project_id = caller.project(state).await?.id.to_string();
    let request = v1::CreateSessionRequest { project_id, ..Default::default() };
    let made = grpc::Service(state.clone()).create_session(caller.request(request)).await?.into_inner();
    super::sessions::id(&made.session.unwrap_or_default().id)
}

fn forbidden(message: &str) -> Status {
    error(Code::PermissionDenied, "pty_forbidden", message)
}

fn no_tickets(failure: &bus::error::Error) -> Status {
    tracing::warn!(error = failure as &dyn std::error::Error, "Redis has no tickets");
    unavailable("tickets_unavailable", "tickets cannot be had or redeemed now; try again")
}
