//! Sessions: created, listed, changed, reverted, forked, deleted.

use super::shape;
use crate::{
    app::{
        gateway::Gateway,
        history::{
            fork::{self, ForkFiles, ForkRequest},
            revert::{self, RevertPoint},
        },
        page::PageRequest,
        projects::manage::{self, OpenedDirectory},
        sessions::{
            abort,
            change::{self, SessionChange},
            create::{self, SessionRequest},
            output,
            read::{self, SessionView},
        },
    },
    errors::{entity::Entity, error::Error, invalid::Invalid},
    http::{
        callers::{caller::Caller, directory::with_note},
        input::{
            extractors::{Body, Path, Query},
            ids::{message_id, session_id},
            prompt::Model,
        },
        refusal::{RequestPart, Result},
    },
};
use axum::{
    Json,
    extract::State,
    http::{HeaderName, HeaderValue},
    response::{AppendHeaders, IntoResponse as _, Response},
};
use domain::{
    ids::{SessionId, Timestamp},
    limits,
    policy::permission::{self, Rules, Verdict},
    text::json_bytes,
};
use rpc::v1::ErrorKind;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use store::session::sessions::Filter;

/// Sessions in a list without a limit, as in OpenCode.
const LIST_DEFAULT: u32 = 100;
/// Sessions in a list that OpenCode's API does not part into pages. Beyond it: `limit_too_high`.
const LIST_MAX: usize = 2_000;
/// Bytes of such a list as JSON, unless its first page is larger. Beyond it: `limit_too_high`.
const LIST_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The header that names the page after this one.
const NEXT_CURSOR: HeaderName = HeaderName::from_static("x-next-cursor");

/// The name by which clients know where a session works.
pub(in crate::http) async fn directory(
    gateway: &Gateway,
    caller: &Caller,
    session: &SessionId,
) -> Result<String> {
    Ok(read::get(gateway, &caller.principal, session).await?.directory)
}

async fn show(gateway: &Gateway, caller: &Caller, session: &SessionId) -> Result<Json<Value>> {
    let session = read::get(gateway, &caller.principal, session).await?;
    Ok(Json(shape::session(&session.info, &session.directory)))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct ListQuery {
    roots: Option<String>,
    start: Option<i64>,
    search: Option<String>,
    limit: Option<u32>,
}

/// The sessions of the directory, as many as the client asks for. OpenCode's API has no pages here, so this reads page after page itself. A session that
/// changes meanwhile moves to the beginning of the list, and the list may lack it; the client gets the event of the change.
pub(in crate::http) async fn list(
    State(gateway): State<Gateway>,
    caller: Caller,
    Query(query): Query<ListQuery>,
) -> Result<Json<Vec<Value>>> {
    let Some(directory) = caller.find_directory(&gateway).await? else { return Ok(Json(vec![])) };
    let filter = Filter { area: Some(directory.area()), ..filter(query.roots, query.search, query.start) };
    let mut rest = query.limit.filter(|limit| *limit > 0).unwrap_or(LIST_DEFAULT);
    let (mut sessions, mut cursor) = (SessionList::default(), None);
    while rest > 0 {
        let limit = rest.min(limits::PAGE_MAX);
        let page = PageRequest { limit: Some(limit), cursor };
        let list = read::list(&gateway, &caller.principal, &filter, page).await?;
        for SessionView { session, .. } in &list.entries {
            sessions.add(shape::session(&session.info, &session.directory))?;
        }
        (rest, cursor) = (rest - limit, list.next);
        if cursor.is_none() {
            break;
        }
        if rest > 0 && sessions.is_first_page() {
            gateway.take_page_room(&caller.principal, &caller.taken).await?;
        }
    }
    Ok(Json(sessions.entries))
}

/// The sessions of a list without pages, in bounds.
#[derive(Debug, Default)]
struct SessionList {
    entries: Vec<Value>,
    bytes: usize,
}

impl SessionList {
    fn is_first_page(&self) -> bool {
        self.entries.len() <= limits::PAGE_MAX as usize
    }

    /// # Errors
    /// `limit_too_high`.
    fn add(&mut self, session: Value) -> std::result::Result<(), Error> {
        self.bytes += json_bytes(&session);
        self.entries.push(session);
        let is_full = self.entries.len() > LIST_MAX || self.bytes > LIST_BYTES_MAX;
        if self.is_first_page() || !is_full {
            return Ok(());
        }
        let message = format!(
            "there are more sessions than one answer holds ({LIST_MAX} sessions, {LIST_BYTES_MAX} bytes); ask with a lower limit, or read \
             them page by page at /api/session"
        );
        Err(Invalid::LimitTooHigh.because(message))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct GlobalListQuery {
    roots: Option<String>,
    start: Option<i64>,
    search: Option<String>,
    limit: Option<u32>,
    archived: Option<String>,
    /// Only sessions that changed before this time; milliseconds.
    cursor: Option<i64>,
}

/// The sessions of all directories, or of the one that the caller names, with their projects.
pub(in crate::http) async fn list_all(
    State(gateway): State<Gateway>,
    caller: Caller,
    Query(query): Query<GlobalListQuery>,
) -> Result<Response> {
    let area = match &caller.directory {
        Some(_) => match caller.find_directory(&gateway).await? {
            Some(directory) => Some(directory.area()),
            None => return Ok(Json(json!([])).into_response()),
        },
        None => None,
    };
    let filter =
        Filter { area, archived: is_true(query.archived), ..filter(query.roots, query.search, query.start) };
    // The page begins before every session that changed at this time.
    let cursor = query.cursor.map(|before| format!("{before}.ses_0"));
    // The client reads what is beyond one page with the cursor in the header.
    let limit = Some(query.limit.unwrap_or(LIST_DEFAULT).min(limits::PAGE_MAX));
    let page = PageRequest { limit, cursor };
    let list = read::list(&gateway, &caller.principal, &filter, page).await?;
    let last = list.entries.last().map(|view| view.session.info.time.updated.0.into());
    let next = last.filter(|_| list.next.is_some()).map(|next: HeaderValue| [(NEXT_CURSOR, next)]);
    let listed = || list.entries.iter().map(|view| &view.session);
    let ids: Vec<_> = listed().map(|session| &session.info.project_id).collect();
    let projects = manage::find(&gateway, &caller.principal, &ids).await?;
    // A project without sessions can be deleted, so one may be gone with its last session since the list was read.
    let rows = listed().filter_map(|session| Some((session, projects.get(&session.info.project_id)?)));
    let sessions: Vec<Value> = rows
        .map(|(session, project)| {
            let mut session = shape::session(&session.info, &session.directory);
            session["project"] = json!({"id": project.id, "name": project.name, "worktree": project.name});
            session
        })
        .collect();
    Ok((next.map(AppendHeaders), Json(sessions)).into_response())
}

/// The part of a filter that both lists have. No title contains NUL, so a search for it is left out.
fn filter(roots: Option<String>, search: Option<String>, start: Option<i64>) -> Filter {
    Filter {
        only_roots: is_true(roots),
        search: search.filter(|search| !search.contains('\0')),
        since: start.map(Timestamp),
        ..Filter::default()
    }
}

fn is_true(parameter: Option<String>) -> bool {
    parameter.is_some_and(|value| value == "true")
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct CreateBody {
    title: Option<String>,
    agent: Option<String>,
    model: Option<Model>,
    permission: Vec<Rule>,
    /// OpenCode makes a child session for it. Here, only a call of an agent makes one: its parent waits for it.
    #[serde(rename = "parentID")]
    parent_id: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Rule {
    permission: String,
    pattern: String,
    action: String,
}

fn rule(rule: Rule) -> Result<permission::Rule> {
    let action = match rule.action.as_str() {
        "allow" => Verdict::Allow,
        "ask" => Verdict::Ask,
        "deny" => Verdict::Deny,
        other => {
            let message = format!("permission: expected allow, ask or deny, found {other:?}");
            return Err(RequestPart::Body.unreadable(message));
        }
    };
    let pattern = if rule.pattern.is_empty() { "*".to_owned() } else { rule.pattern };
    Ok(permission::Rule { permission: rule.permission, pattern, action, is_approval: false })
}

pub(in crate::http) async fn create(
    State(gateway): State<Gateway>,
    caller: Caller,
    Body(body): Body<CreateBody>,
) -> Result<Response> {
    if body.parent_id.is_some() {
        let message = "only the task tool of an agent makes child sessions; create the session without parentID, or fork one";
        return Err(Invalid::ParentUnsupported.because(message).into());
    }
    let OpenedDirectory { project, worktree, note } = caller.open_project(&gateway).await?;
    let request = SessionRequest {
        title: body.title.unwrap_or_default(),
        agent: body.agent.unwrap_or_default(),
        variant: body.model.as_ref().map(|model| model.variant().to_owned()).unwrap_or_default(),
        model: body.model.and_then(Model::chosen),
        rules: Rules(body.permission.into_iter().map(rule).collect::<Result<_>>()?),
        worktree,
        ..SessionRequest::of(project.id)
    };
    let session = create::create(&gateway, &caller.principal, request).await?;
    let id = &session.info.id;
    let view = caller.visiting(&gateway, id, show(&gateway, &caller, id)).await?;
    Ok((with_note(note.as_deref()), view).into_response())
}

pub(in crate::http) async fn get(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
) -> Result<Json<Value>> {
    show(&gateway, &caller, &session_id(&session)?).await
}

/// The state of each session that is not idle. To a client, a session that waits for a person is busy too.
pub(in crate::http) async fn status(
    State(gateway): State<Gateway>,
    caller: Caller,
) -> Result<Json<Map<String, Value>>> {
    let Some(directory) = caller.find_directory(&gateway).await? else { return Ok(Json(Map::new())) };
    let active = read::list_active(&gateway, &caller.principal, Some(&directory.area())).await?;
    Ok(Json(active.into_iter().map(|it| (it.session.to_string(), json!(it.status))).collect()))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct UpdateBody {
    title: Option<String>,
    time: UpdateTime,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UpdateTime {
    archived: Option<f64>,
}

/// Renames or archives a session.
pub(in crate::http) async fn update(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
    Body(body): Body<UpdateBody>,
) -> Result<Json<Value>> {
    let id = session_id(&session)?;
    let archived = body.time.archived.map(|at| at > 0.0);
    if body.title.is_some() || archived.is_some() {
        let change = SessionChange { title: body.title, archived, ..SessionChange::default() };
        change::update(&gateway, &caller.principal, &id, change).await?;
    }
    show(&gateway, &caller, &id).await
}

pub(in crate::http) async fn delete(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
) -> Result<Json<bool>> {
    change::delete(&gateway, &caller.principal, &session_id(&session)?).await?;
    Ok(Json(true))
}

/// The subtasks of a session.
pub(in crate::http) async fn children(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
) -> Result<Json<Vec<Value>>> {
    let parent = session_id(&session)?;
    let children = read::list_children(&gateway, &caller.principal, &parent, PageRequest::FIRST).await?;
    Ok(Json(children.entries.iter().map(|child| shape::session(&child.info, &child.directory)).collect()))
}

/// The to-do list of a session.
pub(in crate::http) async fn todo(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
) -> Result<Json<Value>> {
    let session = session_id(&session)?;
    // A page reads it when it shows the session.
    let todos = read::get_todos(&gateway, &caller.principal, &session);
    let todos = caller.visiting(&gateway, &session, todos).await?;
    Ok(Json(if todos.is_null() { json!([]) } else { todos }))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct DiffQuery {
    #[serde(rename = "messageID")]
    message: Option<String>,
}

/// The changes of a prompt's turn; empty without a message, as in OpenCode.
pub(in crate::http) async fn diff(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
    Query(query): Query<DiffQuery>,
) -> Result<Json<Value>> {
    let (principal, session) = (&caller.principal, session_id(&session)?);
    let Some(message) = query.message.filter(|message| !message.is_empty()) else {
        read::check(&gateway, principal, &session).await?;
        return Ok(Json(json!([])));
    };
    let diffs = output::diff_message(&gateway, principal, &session, &message_id(&message)?).await?;
    Ok(Json(json!(diffs)))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct PointBody {
    #[serde(rename = "messageID")]
    message: Option<String>,
    #[serde(rename = "partID")]
    part: Option<String>,
}

/// Forks a session before a message.
pub(in crate::http) async fn fork(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
    Body(point): Body<PointBody>,
) -> Result<Json<Value>> {
    let before = point.message.filter(|message| !message.is_empty());
    let request = ForkRequest {
        before: before.as_deref().map(message_id).transpose()?,
        session: session_id(&session)?,
        files: ForkFiles::Default,
        idempotency_key: String::new(),
    };
    let fork = fork::fork(&gateway, &caller.principal, &request).await?;
    show(&gateway, &caller, &fork.info.id).await
}

/// Aborts the turn. Returns true for any id, as OpenCode does: the client only wants nothing to run.
pub(in crate::http) async fn abort(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
) -> Result<Json<bool>> {
    let Ok(session) = session.parse() else { return Ok(Json(true)) };
    match abort::abort(&gateway, &caller.principal, &session).await {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        Ok(_) | Err(_) => Ok(Json(true)),
    }
}

/// Reverts a session to a point.
pub(in crate::http) async fn revert(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
    Body(point): Body<PointBody>,
) -> Result<Json<Value>> {
    let missing = || RequestPart::Body.unreadable("messageID is missing");
    let message = point.message.ok_or_else(missing)?;
    let session = session_id(&session)?;
    let part = point.part.filter(|part| !part.is_empty()).map(|part| part.parse()).transpose();
    let point = RevertPoint {
        message: message_id(&message)?,
        part: part.map_err(|_| Error::NotFound(Entity::Part))?,
    };
    revert::revert(&gateway, &caller.principal, &session, point).await?;
    show(&gateway, &caller, &session).await
}

pub(in crate::http) async fn unrevert(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
) -> Result<Json<Value>> {
    let session = session_id(&session)?;
    revert::unrevert(&gateway, &caller.principal, &session).await?;
    show(&gateway, &caller, &session).await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    /// How many sessions of a size a list takes, and the code with which it refuses the next one.
    fn fill(session: &Value, most: usize) -> (usize, Option<String>) {
        let mut list = SessionList::default();
        let refused = (0..most).find_map(|count| Some((count, list.add(session.clone()).err()?)));
        refused.map_or((most, None), |(count, error)| (count, Some(error.code().to_owned())))
    }

    #[test]
    fn a_list_without_pages_is_refused_beyond_its_bounds_and_never_cut() {
        let refused = Some("limit_too_high".to_owned());
        assert_eq!(fill(&json!({"id": "ses_1"}), LIST_MAX), (LIST_MAX, None));
        assert_eq!(fill(&json!({"id": "ses_1"}), LIST_MAX + 1), (LIST_MAX, refused.clone()));
        // 200 of these are more than the bound, and a client that asks for one page has always got them.
        let large = json!({"title": "x".repeat(LIST_BYTES_MAX / 100)});
        assert_eq!(fill(&large, 200), (200, None));
        assert_eq!(fill(&large, 201), (200, refused));
    }
}
