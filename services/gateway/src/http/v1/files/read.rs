//! Reads the files of a directory: those of the session that the client last worked with there, else of the newest one. Without a session the
//! directory is empty.

use crate::{
    app::{
        files::directory::{DirectoryFiles, LineMatch, inside},
        gateway::Gateway,
        projects::home,
    },
    errors::{self, error::Error},
    http::{
        callers::caller::Caller,
        input::extractors::Query,
        refusal::{Refusal, RequestPart, Result},
    },
};
use axum::{Json, extract::State};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::session::WORKSPACE;
use rpc::v1::{ErrorCode, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Names that a search returns if the client sets no limit.
const NAMES_DEFAULT: usize = 100;

pub(in crate::http) async fn find(gateway: &Gateway, caller: &Caller) -> Result<Option<DirectoryFiles>> {
    let Some(directory) = caller.find_directory(gateway).await? else { return Ok(None) };
    Ok(DirectoryFiles::find(gateway, &caller.principal, &directory.area()).await?)
}

/// The files in which the caller searches: see [`DirectoryFiles::find_open`].
pub(in crate::http) async fn find_open(gateway: &Gateway, caller: &Caller) -> Result<Option<DirectoryFiles>> {
    let Some(directory) = caller.find_directory(gateway).await? else { return Ok(None) };
    Ok(DirectoryFiles::find_open(gateway, &caller.principal, &directory.area()).await?)
}

/// To OpenCode, a path without such a file is a mistake in the query.
pub(in crate::http) fn of_file(error: Error) -> Refusal {
    match error {
        Error::Sandbox(refusal) if matches!(refusal.kind, ErrorKind::NotFound | ErrorKind::Precondition) => {
            RequestPart::Query.unreadable(refusal.message)
        }
        error => error.into(),
    }
}

/// Whether there is no such file, or no file at all.
fn is_missing(refusal: &errors::refusal::Refusal) -> bool {
    refusal.kind == ErrorKind::NotFound || refusal.code == Some(ErrorCode::WorkspaceMissing)
}

#[derive(Debug, Deserialize)]
pub(in crate::http) struct PathQuery {
    path: String,
}

/// The entries of a directory.
pub(in crate::http) async fn list(
    State(gateway): State<Gateway>,
    caller: Caller,
    Query(query): Query<PathQuery>,
) -> Result<Json<Vec<Value>>> {
    list_nodes(&gateway, &caller, &query.path).await.map(Json)
}

/// The entries of a directory. The `path` of a subdirectory ends with a slash.
pub(in crate::http) async fn list_nodes(
    gateway: &Gateway,
    caller: &Caller,
    path: &str,
) -> Result<Vec<Value>> {
    let Some(directory) = caller.find_directory(gateway).await? else {
        return list_folders(gateway, caller, path).await;
    };
    let files = DirectoryFiles::find(gateway, &caller.principal, &directory.area()).await?;
    let Some(files) = files else { return Ok(vec![]) };
    let entries = files.list(path).await.map_err(of_file)?;
    let path = inside(path);
    let node = |entry: &String| {
        let (name, is_directory) = (entry.trim_end_matches('/'), entry.ends_with('/'));
        let absolute = format!("{path}/{name}");
        let relative =
            absolute.strip_prefix(WORKSPACE).unwrap_or(&absolute).trim_start_matches('/').to_owned();
        json!({
            "name": name, "path": if is_directory { format!("{relative}/") } else { relative }, "absolute": absolute,
            "type": if is_directory { NodeKind::Directory } else { NodeKind::File }, "ignored": false,
        })
    };
    Ok(entries.iter().map(node).collect())
}

/// The folders of a directory without a project: they lead to projects.
async fn list_folders(gateway: &Gateway, caller: &Caller, path: &str) -> Result<Vec<Value>> {
    let own = caller.directory(gateway).await?;
    let names = path.split('/').filter(|name| !name.is_empty() && *name != ".");
    let folder = std::iter::once(own.trim_end_matches('/')).chain(names).collect::<Vec<_>>().join("/");
    let paths = home::paths_below(gateway, &caller.principal, &format!("{folder}/")).await?;
    let folders: BTreeSet<&str> = paths.iter().filter_map(|path| path.split('/').next()).collect();
    let relative = folder[own.trim_end_matches('/').len()..].trim_start_matches('/');
    let node = |name: &str| {
        let path = if relative.is_empty() { format!("{name}/") } else { format!("{relative}/{name}/") };
        json!({
            "name": name, "path": path, "absolute": format!("{folder}/{name}"), "type": NodeKind::Directory,
            "ignored": false,
        })
    };
    Ok(folders.into_iter().map(node).collect())
}

/// A file: its text, or its bytes if it is not valid UTF-8. A missing file has no text, as in OpenCode.
pub(in crate::http) async fn content(
    State(gateway): State<Gateway>,
    caller: Caller,
    Query(query): Query<PathQuery>,
) -> Result<Json<Value>> {
    let read = match find(&gateway, &caller).await? {
        Some(files) => files.read(&query.path).await,
        None => Ok(vec![]),
    };
    let data = match read {
        Err(Error::Sandbox(refusal)) if is_missing(&refusal) => vec![],
        read => read.map_err(of_file)?,
    };
    Ok(Json(match String::from_utf8(data) {
        Ok(text) => json!({"type": "text", "content": text}),
        Err(bytes) => {
            let content = STANDARD.encode(bytes.as_bytes());
            let mime =
                domain::conversation::media::of_bytes(bytes.as_bytes()).unwrap_or("application/octet-stream");
            json!({"type": "binary", "content": content, "encoding": "base64", "mimeType": mime})
        }
    }))
}

#[derive(Debug, Deserialize)]
pub(in crate::http) struct NameQuery {
    query: String,
    dirs: Option<String>,
    #[serde(rename = "type")]
    kind: Option<NodeKind>,
    limit: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::http) enum NodeKind {
    File,
    Directory,
}

/// Files and directories whose path contains the letters of the query in this order, shortest first.
pub(in crate::http) async fn names(
    State(gateway): State<Gateway>,
    caller: Caller,
    Query(query): Query<NameQuery>,
) -> Result<Json<Vec<String>>> {
    find_names(&gateway, &caller, &query).await.map(Json)
}

/// As [`names`]. Paths of directories end with a slash.
pub(in crate::http) async fn find_names(
    gateway: &Gateway,
    caller: &Caller,
    query: &NameQuery,
) -> Result<Vec<String>> {
    let (paths, directories) = match caller.find_directory(gateway).await? {
        Some(directory) => {
            let files = DirectoryFiles::find_open(gateway, &caller.principal, &directory.area()).await?;
            let Some(files) = files else { return Ok(vec![]) };
            let paths: BTreeSet<String> = files.paths().await.map_err(of_file)?.into_iter().collect();
            let directories = paths.iter().flat_map(|path| parents(path)).collect();
            (paths, directories)
        }
        None => {
            let folder = caller.directory(gateway).await?;
            let projects = home::paths_below(gateway, &caller.principal, folder).await?;
            let folders: BTreeSet<String> = projects.into_iter().map(|path| format!("{path}/")).collect();
            (BTreeSet::new(), folders)
        }
    };
    let with_files = query.kind != Some(NodeKind::Directory);
    let with_directories = query.kind != Some(NodeKind::File) && query.dirs.as_deref() != Some("false");
    let all =
        paths.into_iter().filter(|_| with_files).chain(directories.into_iter().filter(|_| with_directories));
    let mut matching: Vec<String> = all.filter(|path| matches(path, &query.query)).collect();
    matching.sort_by_key(String::len);
    matching.truncate(query.limit.unwrap_or(NAMES_DEFAULT));
    Ok(matching)
}

/// The directories above a file, with a trailing slash.
fn parents(path: &str) -> Vec<String> {
    path.match_indices('/').map(|(at, _)| path[..=at].to_owned()).collect()
}

/// Whether `path` contains the letters of `query` in this order, ignoring case.
fn matches(path: &str, query: &str) -> bool {
    let mut letters = path.chars().flat_map(char::to_lowercase);
    query.chars().flat_map(char::to_lowercase).all(|wanted| letters.any(|letter| letter == wanted))
}

#[derive(Debug, Deserialize)]
pub(in crate::http) struct PatternQuery {
    pattern: String,
}

/// Lines that match a regular expression.
pub(in crate::http) async fn text(
    State(gateway): State<Gateway>,
    caller: Caller,
    Query(query): Query<PatternQuery>,
) -> Result<Json<Vec<Value>>> {
    let Some(files) = find_open(&gateway, &caller).await? else { return Ok(Json(vec![])) };
    let line = |LineMatch { path, line, text, offset_bytes, spans }| {
        let spans = spans.into_iter().filter_map(|span| {
            let found = text.get(span.clone())?;
            Some(json!({"match": {"text": found}, "start": span.start, "end": span.end}))
        });
        json!({
            "path": {"text": path}, "line_number": line, "absolute_offset": offset_bytes,
            "submatches": spans.collect::<Vec<_>>(), "lines": {"text": format!("{text}\n")},
        })
    };
    Ok(Json(files.search(query.pattern).await.map_err(of_file)?.into_iter().map(line).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_by_their_letters() {
        assert!(matches("src/Main.rs", "smr") && matches("a", ""));
        assert!(!matches("src/main.rs", "rsm"));
        assert_eq!(parents("a/b/c.rs"), ["a/", "a/b/"]);
        assert_eq!(parents("c.rs"), Vec::<String>::new());
    }
}
