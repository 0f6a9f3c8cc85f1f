//! Messages: prompts of every kind, and the conversation.
// Continues in app::prompts::accept.

use super::{sessions, shape};
use crate::{
    app::{
        gateway::Gateway,
        history::messages::{self, Extent},
        page::PageRequest,
        prompts::{
            accept::{self, Receipt},
            no_files,
            request::{PromptPart, PromptRequest},
            turn::{self, TurnAnswers},
        },
    },
    errors::invalid::Invalid,
    http::{
        callers::caller::Caller,
        input::{
            extractors::{Body, Path, Query},
            ids::{message_id, session_id},
            prompt::{self, Model, Part, Prompt},
        },
        refusal::Result,
    },
};
use axum::{
    Json,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use domain::{
    conversation::{
        command,
        message::ModelRef,
        part::{self, attached::Compaction},
    },
    ids::SessionId,
    limits,
    session::WORKSPACE,
    text::without_nul,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Pause between the end of a turn and the response to OpenCode's own programs. `run --attach` prints events from another
/// connection, and exits as soon as the response arrives, whether or not it has printed everything.
const EVENTS_FIRST: Duration = Duration::from_millis(500);

/// Holds the request until the turn ends, and returns its last answer. The turn continues if the client disconnects.
pub(in crate::http) async fn send(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
    Body(prompt): Body<Prompt>,
) -> Result<Json<Value>> {
    run(&gateway, &caller, &session_id(&session)?, prompt.try_into()?).await
}

/// Responds when the prompt is stored.
pub(in crate::http) async fn send_async(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
    Body(prompt): Body<Prompt>,
) -> Result<StatusCode> {
    accept(&gateway, &caller, &session_id(&session)?, prompt.try_into()?).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct CommandBody {
    #[serde(default, rename = "messageID")]
    message_id: String,
    #[serde(default)]
    agent: String,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    variant: String,
    command: String,
    arguments: String,
    #[serde(default)]
    parts: Vec<Part>,
}

pub(in crate::http) async fn command(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
    Body(body): Body<CommandBody>,
) -> Result<Json<Value>> {
    let mut parts = vec![command_part(&body.command, &body.arguments)];
    for part in body.parts {
        parts.push(part.try_into()?);
    }
    let request = PromptRequest {
        agent: body.agent,
        model: body.model.as_deref().and_then(prompt::model),
        variant: prompt::variant(body.variant),
        parts,
        message_id: prompt::message_id(&body.message_id)?,
        ..PromptRequest::default()
    };
    let session = session_id(&session)?;
    let answer = run(&gateway, &caller, &session, request).await?;
    match unexpanded(&gateway, &caller, &session, &answer.0).await? {
        Some(error) => Err(Invalid::Command.because(error).into()),
        None => Ok(answer),
    }
}

/// The error of a turn whose command could not be expanded, for example because there is no such command.
async fn unexpanded(
    gateway: &Gateway,
    caller: &Caller,
    session: &SessionId,
    answer: &Value,
) -> Result<Option<String>> {
    let info = &answer["info"];
    let (Some(error), Some(prompt)) = (info["error"]["data"]["message"].as_str(), info["parentID"].as_str())
    else {
        return Ok(None);
    };
    // An aborted turn is an answer.
    if info["error"]["name"] != "UnknownError" {
        return Ok(None);
    }
    let prompt = messages::get_stored(gateway, &caller.principal, session, &message_id(prompt)?).await?;
    let texts = prompt.parts.iter().filter_map(|(_, part)| part.body.as_text());
    let mut commands = texts.filter_map(command::CommandRequest::of);
    let is_unexpanded = commands.any(|command| command.progress == command::CommandState::Asked);
    Ok(is_unexpanded.then(|| error.to_owned()))
}

fn command_part(name: &str, arguments: &str) -> PromptPart {
    let command = domain::conversation::command::CommandRequest {
        name: without_nul(name).into_owned(),
        arguments: without_nul(arguments).into_owned(),
        progress: command::CommandState::Asked,
    };
    part::Body::Text(command.text()).into()
}

#[derive(Debug, Deserialize)]
pub(in crate::http) struct ShellBody {
    #[serde(default, rename = "messageID")]
    message_id: String,
    #[serde(default)]
    agent: String,
    #[serde(default)]
    model: Option<Model>,
    command: String,
}

/// Runs a shell command, without a model.
pub(in crate::http) async fn shell(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
    Body(body): Body<ShellBody>,
) -> Result<Json<Value>> {
    let request = PromptRequest {
        agent: body.agent,
        model: body.model.and_then(Model::chosen),
        parts: vec![part::Body::Text(command::shell(&without_nul(&body.command))).into()],
        message_id: prompt::message_id(&body.message_id)?,
        ..PromptRequest::default()
    };
    run(&gateway, &caller, &session_id(&session)?, request).await
}

#[derive(Debug, Deserialize)]
pub(in crate::http) struct InitBody {
    #[serde(default, rename = "messageID")]
    message_id: String,
    #[serde(flatten)]
    model: Model,
}

/// Runs the command `init`.
pub(in crate::http) async fn init(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
    Body(body): Body<InitBody>,
) -> Result<Json<bool>> {
    let request = PromptRequest {
        model: body.model.chosen(),
        parts: vec![command_part("init", "")],
        message_id: prompt::message_id(&body.message_id)?,
        ..PromptRequest::default()
    };
    run(&gateway, &caller, &session_id(&session)?, request).await.map(|_| Json(true))
}

#[derive(Debug, Deserialize)]
pub(in crate::http) struct SummarizeBody {
    #[serde(flatten)]
    model: Model,
}

pub(in crate::http) async fn summarize(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
    Body(body): Body<SummarizeBody>,
) -> Result<Json<bool>> {
    compact(&gateway, &caller, &session, body.model.chosen()).await.map(|()| Json(true))
}

/// Compacts a session with the given model or the session's own, and waits for the end.
pub(in crate::http) async fn compact(
    gateway: &Gateway,
    caller: &Caller,
    session: &str,
    model: Option<ModelRef>,
) -> Result<()> {
    let compaction = Compaction { auto: false, overflow: None, tail_start_id: None };
    let parts = vec![part::Body::Compaction(compaction).into()];
    let request = PromptRequest { model, parts, ..PromptRequest::default() };
    run(gateway, caller, &session_id(session)?, request).await.map(drop)
}

/// Accepts a prompt. A client names files below the directory by which it knows the project; in the sandbox they are below its
/// workspace.
pub(in crate::http) async fn accept(
    gateway: &Gateway,
    caller: &Caller,
    session: &SessionId,
    mut request: PromptRequest,
) -> Result<Receipt> {
    let is_outside = |url: &str| url.strip_prefix("file://").is_some_and(|path| !path.starts_with(WORKSPACE));
    if request.parts.iter_mut().filter_map(url_mut).any(|url| is_outside(url)) {
        let project = sessions::directory(gateway, caller, session).await?;
        let directories: Vec<&str> =
            caller.directory.as_deref().into_iter().chain([project.as_str()]).collect();
        for url in request.parts.iter_mut().filter_map(url_mut) {
            let path = url.strip_prefix("file://");
            let inside = path.and_then(|path| directories.iter().find_map(|it| below(path, it)));
            if let Some(rest) = inside {
                *url = format!("file://{WORKSPACE}{rest}");
            }
        }
    }
    // A person reads a session in OpenCode's own programs. Another program would take the note for a prompt.
    if caller.is_opencode {
        no_files::tell(gateway, &caller.principal, session).await?;
    }
    let accepted = accept::accept(gateway, &caller.principal, session, request);
    let receipt = caller.visiting(gateway, session, accepted).await?;
    // The request may wait for the end of its turn.
    caller.taken.give_back();
    Ok(receipt)
}

/// The rest of a path below a directory. A client adds the name of a project, which is no path, to its own directory.
fn below<'a>(path: &'a str, directory: &str) -> Option<&'a str> {
    let rest = match path.strip_prefix(directory) {
        Some(rest) => rest,
        None if directory.starts_with('/') => return None,
        None => path
            .split_once(&format!("/{directory}/"))
            .map(|(before, _)| &path[before.len() + 1 + directory.len()..])?,
    };
    Some(rest).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn url_mut(part: &mut PromptPart) -> Option<&mut String> {
    if let part::Body::File(file) = &mut part.body { Some(&mut file.url) } else { None }
}

/// Accepts a prompt, waits for the end of its turn, and returns the answer.
async fn run(
    gateway: &Gateway,
    caller: &Caller,
    session: &SessionId,
    request: PromptRequest,
) -> Result<Json<Value>> {
    let (no_reply, principal) = (request.no_reply, &caller.principal);
    let is_shell = request.parts.iter().any(|part| part.body.as_text().and_then(command::shell_of).is_some());
    let receipt = accept(gateway, caller, session, request).await?;
    if no_reply {
        return Ok(Json(shape::entry(
            &messages::get(gateway, principal, session, &receipt.message_id).await?,
        )));
    }
    let TurnAnswers { last, own } = turn::wait_for_turn(gateway, principal, session, &receipt).await?;
    if caller.is_opencode {
        tokio::time::sleep(EVENTS_FIRST).await;
    }
    // A caller that runs a shell command reads its result, and not that of a prompt that came later.
    let entry = match own.filter(|_| is_shell).or(last) {
        Some(answer) => messages::get(gateway, principal, session, &answer).await?,
        None => messages::get_newest_answer(gateway, principal, session).await?,
    };
    Ok(Json(shape::entry(&entry)))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct ListQuery {
    limit: Option<u32>,
    before: Option<String>,
}

/// The newest messages, or those before a cursor; without a limit as many as fit into one response.
pub(in crate::http) async fn list(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
    Query(query): Query<ListQuery>,
    uri: Uri,
) -> Result<Response> {
    gateway.take_page_room(&caller.principal, &caller.taken).await?;
    let session = session_id(&session)?;
    let cursor = query.before.as_deref().map(read_cursor).transpose()?;
    let limit = query.limit.filter(|limit| *limit > 0);
    let extent = if limit.is_some() { Extent::OnePage } else { Extent::WholeAnswer };
    let limit = Some(limit.unwrap_or(limits::PAGE_MAX).min(limits::PAGE_MAX));
    let page = PageRequest { limit, cursor };
    let list = messages::list(&gateway, &caller.principal, &session, page, extent);
    let list = caller.reading(&gateway, &session, list).await?;
    let headers = list.next.map(|next| next_page(&uri, &next)).unwrap_or_default();
    // Each entry is dropped once its JSON is there.
    let entries: Vec<Value> = list.entries.into_iter().map(|entry| shape::entry(&entry)).collect();
    Ok((headers, Json(entries)).into_response())
}

pub(in crate::http) async fn get(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path((session, message)): Path<(String, String)>,
) -> Result<Json<Value>> {
    gateway.take_page_room(&caller.principal, &caller.taken).await?;
    let (message, session) = (message_id(&message)?, session_id(&session)?);
    Ok(Json(shape::entry(&messages::get(&gateway, &caller.principal, &session, &message).await?)))
}

/// Headers that name the page of older messages.
fn next_page(uri: &Uri, next: &str) -> HeaderMap {
    let cursor = URL_SAFE_NO_PAD.encode(json!({"seq": next}).to_string());
    let others = uri.query().unwrap_or_default().split('&');
    let others = others.filter(|pair| !pair.is_empty() && !pair.starts_with("before="));
    let query: Vec<String> = others.map(str::to_owned).chain([format!("before={cursor}")]).collect();
    let link = format!("<{}?{}>; rel=\"next\"", uri.path(), query.join("&"));
    let header = |text: &str| HeaderValue::from_str(text).ok();
    let named =
        [(header::LINK, header(&link)), (header::HeaderName::from_static("x-next-cursor"), header(&cursor))];
    named.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Reads a cursor of [`next_page`].
fn read_cursor(text: &str) -> Result<String> {
    let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok();
    let json = bytes.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let seq = json.as_ref().and_then(|json| json["seq"].as_str());
    let seq = seq.filter(|seq| seq.parse::<i64>().is_ok_and(|seq| seq >= 0)).map(str::to_owned);
    seq.ok_or_else(|| Invalid::Cursor.because("the cursor is not from this list").into())
}
