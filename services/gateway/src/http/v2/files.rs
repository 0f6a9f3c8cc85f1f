//! Files of a directory, in the newer API.

use super::location;
use crate::{
    app::gateway::Gateway,
    http::{
        callers::caller::Caller,
        input::extractors::{Path, Query},
        refusal::{RequestPart, Result},
        v1::files::read::{self, NameQuery, NodeKind},
    },
};
use axum::{
    Json,
    extract::State,
    http::{HeaderName, header},
    response::IntoResponse,
};
use serde::Deserialize;
use serde_json::{Value, json};

/// The media type of every file: a page must never run a file of a repository as its own.
pub(in crate::http) const FILE: &str = "application/octet-stream";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct ListQuery {
    path: String,
}

/// A path of a file, or one of a directory, which ends with a slash.
fn entry(path: &str) -> Value {
    let (path, kind) = match path.strip_suffix('/') {
        Some(path) => (path, NodeKind::Directory),
        None => (path, NodeKind::File),
    };
    json!({"path": path, "type": kind})
}

/// Files and directories whose path contains the letters of the query, shortest first.
pub(in crate::http) async fn find(
    State(gateway): State<Gateway>,
    caller: Caller,
    Query(query): Query<NameQuery>,
) -> Result<Json<Value>> {
    let paths = read::find_names(&gateway, &caller, &query).await?;
    location::list(&gateway, &caller, paths.iter().map(|path| entry(path)).collect()).await
}

/// The entries of a directory.
pub(in crate::http) async fn list(
    State(gateway): State<Gateway>,
    caller: Caller,
    Query(query): Query<ListQuery>,
) -> Result<Json<Value>> {
    let nodes = read::list_nodes(&gateway, &caller, &query.path).await?;
    let entries = nodes.iter().filter_map(|node| Some(entry(node["path"].as_str()?)));
    location::list(&gateway, &caller, entries.collect()).await
}

/// The bytes of a file.
pub(in crate::http) async fn content(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(path): Path<String>,
) -> Result<impl IntoResponse + use<>> {
    let no_files = || RequestPart::Query.unreadable("no session of this directory has files");
    let files = read::find(&gateway, &caller).await?.ok_or_else(no_files)?;
    let data = files.read(&path).await.map_err(read::of_file)?;
    let headers: [(HeaderName, &str); 2] =
        [(header::CONTENT_TYPE, FILE), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    Ok((headers, data))
}
