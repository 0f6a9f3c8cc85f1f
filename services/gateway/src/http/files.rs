//! Files of a directory: those of the newest session of its project, read through the sandbox. Without a session that works on
//! files there are none.

use super::{
    caller::Caller,
    error::{Refused, Result},
    input::Query,
};
use crate::{grpc::from_sandbox, state::State};
use axum::{Json, extract::State as Shared};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::session::WORKSPACE;
use rpc::v1::{self, FileKind};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use store::{
    Page,
    session::{row::Session, sessions::Filter},
};
use tonic::{Code, Status};

/// Files among which a name is looked for.
const NAMES_MAX: u32 = 10_000;
/// Names that are given when the client does not say how many.
const FOUND_DEFAULT: usize = 100;
/// Lines of files that a search gives.
const MATCHES_MAX: u32 = 200;
/// Bytes of a file that are given.
const FILE_BYTES_MAX: u32 = 10 * 1024 * 1024;

/// The newest session of a directory that was not a subtask.
pub(super) async fn newest(state: &State, caller: &Caller) -> Result<Option<Session>> {
    let Some(project) = caller.find_project(state).await? else { return Ok(None) };
    let filter = Filter { project: Some(project.id), only_roots: true, ..Filter::default() };
    let page = Page { limit: 1, cursor: None };
    Ok(state.store.list_sessions(caller.principal.tenant, &filter, &page).await?.pop())
}

/// Whose files a call reads.
pub(super) async fn reader(state: &State, caller: &Caller) -> Result<Option<v1::Fence>> {
    Ok(newest(state, caller).await?.map(|session| fence(caller, &session)))
}

/// A session, with nobody's epoch: gateways own none.
pub(super) fn fence(caller: &Caller, session: &Session) -> v1::Fence {
    v1::Fence {
        tenant_id: caller.principal.tenant.to_string(),
        session_id: session.info.id.to_string(),
        epoch: 0,
        workspace_session_id: session.root_id.to_string(),
    }
}

/// What was read; nothing where there is no workspace yet.
pub(super) fn found<T: Default>(answer: std::result::Result<tonic::Response<T>, Status>) -> Result<T> {
    match answer {
        Ok(answer) => Ok(answer.into_inner()),
        Err(status) if rpc::status::code_of(&status).as_deref() == Some("workspace_missing") => {
            Ok(T::default())
        }
        Err(status) => Err(refused(status)),
    }
}

/// To OpenCode, a path that names no such file is a mistake in the query.
fn refused(status: Status) -> Refused {
    match status.code() {
        Code::NotFound | Code::FailedPrecondition => no_file(status.message()),
        _ => from_sandbox(status).into(),
    }
}

fn no_file(message: &str) -> Refused {
    Refused::Unreadable("Query", message.to_owned())
}

/// A path of a client, as the sandbox names it.
fn inside(path: &str) -> String {
    let below = path.strip_prefix(WORKSPACE).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let names = below.unwrap_or(path).split('/').filter(|name| !name.is_empty() && *name != ".");
    std::iter::once(WORKSPACE).chain(names).collect::<Vec<_>>().join("/")
}

#[derive(Debug, Deserialize)]
pub(super) struct At {
    path: String,
}

/// The entries of a directory.
pub(super) async fn list(
    Shared(state): Shared<State>,
    caller: Caller,
    Query(at): Query<At>,
) -> Result<Json<Vec<Value>>> {
    let Some(fence) = reader(&state, &caller).await? else { return Ok(Json(vec![])) };
    let path = inside(&at.path);
    let request = v1::ReadLinesRequest {
        fence: Some(fence),
        path: path.clone(),
        lines_max: NAMES_MAX,
        bytes_max: FILE_BYTES_MAX,
        ..Default::default()
    };
    let entries = found(state.sandbox.clone().read_lines(request).await)?;
    if entries.kind() != FileKind::Directory {
        return Ok(Json(vec![]));
    }
    let node = |entry: &String| {
        let (name, is_directory) = (entry.trim_end_matches('/'), entry.ends_with('/'));
        let absolute = format!("{path}/{name}");
        let relative =
            absolute.strip_prefix(WORKSPACE).unwrap_or(&absolute).trim_start_matches('/').to_owned();
        json!({
            "name": name, "path": if is_directory { format!("{relative}/") } else { relative }, "absolute": absolute,
            "type": if is_directory { "directory" } else { "file" }, "ignored": false,
        })
    };
    Ok(Json(entries.lines.iter().map(node).collect()))
}

/// A file: its text, or its bytes where it is none.
pub(super) async fn content(
    Shared(state): Shared<State>,
    caller: Caller,
    Query(at): Query<At>,
) -> Result<Json<Value>> {
    let no_files = || no_file("no session of this directory has files");
    let fence = reader(&state, &caller).await?.ok_or_else(no_files)?;
    let request = v1::ReadFileRequest {
        fence: Some(fence),
        path: inside(&at.path),
        bytes_max: FILE_BYTES_MAX,
        ..Default::default()
    };
    let file = state.sandbox.clone().read_file(request).await.map_err(refused)?.into_inner();
    Ok(Json(match String::from_utf8(file.data) {
        Ok(text) => json!({"type": "text", "content": text}),
        Err(bytes) => {
            let content = STANDARD.encode(bytes.as_bytes());
            let mime = domain::media::of_bytes(bytes.as_bytes()).unwrap_or("application/octet-stream");
            json!({"type": "binary", "content": content, "encoding": "base64", "mimeType": mime})
        }
    }))
}

#[derive(Debug, Deserialize)]
pub(super) struct Named {
    query: String,
    dirs: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    limit: Option<usize>,
}

/// Files and directories whose path has the letters of the query in their order, the shortest first.
pub(super) async fn names(
    Shared(state): Shared<State>,
    caller: Caller,
    Query(asked): Query<Named>,
) -> Result<Json<Vec<String>>> {
    let Some(fence) = reader(&state, &caller).await? else { return Ok(Json(vec![])) };
    let request = v1::GlobFilesRequest {
        fence: Some(fence),
        pattern: "**/*".to_owned(),
        entries_max: NAMES_MAX,
        ..Default::default()
    };
    let files = found(state.sandbox.clone().glob_files(request).await)?;
    let files: BTreeSet<String> = files.entries.into_iter().map(|entry| entry.path).collect();
    let directories: BTreeSet<String> = files.iter().flat_map(|path| above(path)).collect();
    let kind = asked.kind.as_deref();
    let (with_files, with_directories) =
        (kind != Some("directory"), kind != Some("file") && asked.dirs.as_deref() != Some("false"));
    let all =
        files.into_iter().filter(|_| with_files).chain(directories.into_iter().filter(|_| with_directories));
    let mut fitting: Vec<String> = all.filter(|path| fits(path, &asked.query)).collect();
    fitting.sort_by_key(String::len);
    fitting.truncate(asked.limit.unwrap_or(FOUND_DEFAULT));
    Ok(Json(fitting))
}

/// The directories above a file, with their trailing slash.
fn above(path: &str) -> Vec<String> {
    path.match_indices('/').map(|(at, _)| path[..=at].to_owned()).collect()
}

/// Whether the letters of `query` come in `path` in their order, whatever their case.
fn fits(path: &str, query: &str) -> bool {
    let mut letters = path.chars().flat_map(char::to_lowercase);
    query.chars().flat_map(char::to_lowercase).all(|wanted| letters.any(|letter| letter == wanted))
}

#[derive(Debug, Deserialize)]
pub(super) struct Pattern {
    pattern: String,
}

/// Lines that match a regular expression.
pub(super) async fn text(
    Shared(state): Shared<State>,
    caller: Caller,
    Query(asked): Query<Pattern>,
) -> Result<Json<Vec<Value>>> {
    let Some(fence) = reader(&state, &caller).await? else { return Ok(Json(vec![])) };
    let request = v1::GrepFilesRequest {
        fence: Some(fence),
        pattern: asked.pattern,
        matches_max: MATCHES_MAX,
        ..Default::default()
    };
    let lines = found(state.sandbox.clone().grep_files(request).await)?;
    let line = |line: v1::GrepMatch| {
        json!({
            "path": {"text": line.path}, "lines": {"text": format!("{}\n", line.text)}, "line_number": line.line,
            "absolute_offset": 0, "submatches": [],
        })
    };
    Ok(Json(lines.matches.into_iter().map(line).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_their_letters() {
        assert!(fits("src/Main.rs", "smr") && fits("a", ""));
        assert!(!fits("src/main.rs", "rsm"));
        assert_eq!(above("a/b/c.rs"), ["a/", "a/b/"]);
        assert_eq!(above("c.rs"), Vec::<String>::new());
    }

    #[test]
    fn paths_are_below_the_workspace() {
        for (path, want) in [
            (".", "/workspace"),
            ("", "/workspace"),
            ("/workspacer/a/", "/workspace/workspacer/a"),
            ("./a/../b", "/workspace/a/../b"),
            ("/workspace/a", "/workspace/a"),
            ("a/b", "/workspace/a/b"),
            ("/etc/passwd", "/workspace/etc/passwd"),
        ] {
            assert_eq!(inside(path), want);
        }
    }
}
