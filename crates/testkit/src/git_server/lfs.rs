//! The answers of Git LFS: the batch API, and the objects.

use super::state::Shared;
use axum::{
    body::Body,
    http::{HeaderName, StatusCode, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use serde_json::{Value, json};
use std::sync::PoisonError;

/// Before the name of an object, behind the path of its repository.
const OBJECTS: &str = "/info/lfs/objects/";
/// Before the name of an object in a store of its own.
const STORE: &str = "/store/";
/// The header that opens such a store.
const KEY: &str = "x-store-key";
const TYPE: &str = "application/vnd.git-lfs+json";

/// Answers a request to a store, which knows no login. `None`: it is none.
pub(super) fn answer_store(shared: &Shared, parts: &Parts) -> Option<Response> {
    let oid = parts.uri.path().strip_prefix(STORE)?;
    let state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    let store = state.lfs_store.as_ref()?;
    let key = parts.headers.get(KEY).and_then(|value| value.to_str().ok());
    if key != Some(store.key.as_str()) || parts.headers.contains_key(header::AUTHORIZATION) {
        return Some((StatusCode::FORBIDDEN, "this needs the key, and nothing else").into_response());
    }
    let found = state.lfs.values().find_map(|objects| objects.get(oid));
    Some(object(found))
}

/// Answers a request of Git LFS to a repository. `None`: it is none.
pub(super) fn answer(shared: &Shared, parts: &Parts, body: &[u8]) -> Option<Response> {
    let (repository, name) = parts.uri.path().rsplit_once(OBJECTS)?;
    let state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(objects) = state.lfs.get(repository.trim_start_matches('/')) else {
        return Some((StatusCode::NOT_FOUND, "no Git LFS").into_response());
    };
    if name != "batch" {
        return Some(object(objects.get(name)));
    }
    let is_typed = |name: HeaderName| parts.headers.get(name).is_some_and(|value| value == TYPE);
    let request: Value = serde_json::from_slice(body).expect("a message of Git LFS");
    if !is_typed(header::ACCEPT) || !is_typed(header::CONTENT_TYPE) || request["operation"] != "download" {
        return Some(StatusCode::UNPROCESSABLE_ENTITY.into_response());
    }
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let answers: Vec<Value> = request["objects"]
        .as_array()
        .expect("objects")
        .iter()
        .map(|asked| {
            let (oid, size) = (asked["oid"].as_str().expect("a name"), &asked["size"]);
            if !objects.contains_key(oid) {
                return json!({"oid": oid, "size": size, "error": {"code": 404, "message": "no such object"}});
            }
            let download = match &state.lfs_store {
                Some(store) => json!({
                    "href": format!("{}{STORE}{oid}", store.url), "header": {KEY: store.key}, "expires_in": 600,
                }),
                None => json!({"href": format!("https://{host}{repository}{OBJECTS}{oid}")}),
            };
            json!({"oid": oid, "size": size, "actions": {"download": download}})
        })
        .collect();
    let answer = json!({"transfer": "basic", "objects": answers, "hash_algo": "sha256"});
    Some(([(header::CONTENT_TYPE, TYPE)], answer.to_string()).into_response())
}

fn object(content: Option<&Vec<u8>>) -> Response {
    match content {
        Some(content) => Body::from(content.clone()).into_response(),
        None => (StatusCode::NOT_FOUND, "no such object").into_response(),
    }
}
