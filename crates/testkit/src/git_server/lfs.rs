//! The answers of Git LFS: the batch API, and the objects.

use super::state::{Shared, State};
use axum::{
    body::Body,
    http::{HeaderName, Method, StatusCode, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use serde_json::{Value, json};
use std::sync::PoisonError;

/// Before the name of an object, behind the path of its repository.
const OBJECTS: &str = "/info/lfs/objects/";
/// Before the name of an object in a store of its own.
const STORE: &str = "/store/";
/// The last part of the path at which a client says that it has sent an object.
const VERIFY: &str = "verify";
/// The header that opens such a store.
const KEY: &str = "x-store-key";
const TYPE: &str = "application/vnd.git-lfs+json";

/// Answers a request to a store, which knows no login. `None`: it is none.
pub(super) fn answer_store(shared: &Shared, parts: &Parts, body: &[u8]) -> Option<Response> {
    let oid = parts.uri.path().strip_prefix(STORE)?;
    let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    let store = state.lfs_store.as_ref()?;
    let key = parts.headers.get(KEY).and_then(|value| value.to_str().ok());
    if key != Some(store.key.as_str()) || parts.headers.contains_key(header::AUTHORIZATION) {
        return Some((StatusCode::FORBIDDEN, "this needs the key, and nothing else").into_response());
    }
    if parts.method == Method::PUT {
        // A store does not know for which repository it keeps an object, so all have it.
        for objects in state.lfs.values_mut() {
            objects.insert(oid.to_owned(), body.to_owned());
        }
        return Some(StatusCode::OK.into_response());
    }
    let found = state.lfs.values().find_map(|objects| objects.get(oid));
    Some(object(found))
}

/// Answers a request of Git LFS to a repository. `None`: it is none.
pub(super) fn answer(shared: &Shared, parts: &Parts, body: &[u8]) -> Option<Response> {
    let (repository, name) = parts.uri.path().rsplit_once(OBJECTS)?;
    let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    let State { lfs, lfs_store, .. } = &mut *state;
    let Some(objects) = lfs.get_mut(repository.trim_start_matches('/')) else {
        return Some((StatusCode::NOT_FOUND, "no Git LFS").into_response());
    };
    let is_typed = |name: HeaderName| parts.headers.get(name).is_some_and(|value| value == TYPE);
    if name == VERIFY {
        let object: Value = serde_json::from_slice(body).expect("a message of Git LFS");
        let found = objects.get(object["oid"].as_str().expect("a name"));
        let is_there =
            found.is_some_and(|content| object["size"] == content.len()) && is_typed(header::ACCEPT);
        let status = if is_there { StatusCode::OK } else { StatusCode::NOT_FOUND };
        return Some(status.into_response());
    }
    if name != "batch" {
        if parts.method == Method::PUT {
            objects.insert(name.to_owned(), body.to_owned());
        }
        return Some(object(objects.get(name)));
    }
    let request: Value = serde_json::from_slice(body).expect("a message of Git LFS");
    let is_upload = request["operation"] == "upload";
    let is_known = is_upload || request["operation"] == "download";
    if !is_typed(header::ACCEPT) || !is_typed(header::CONTENT_TYPE) || !is_known {
        return Some(StatusCode::UNPROCESSABLE_ENTITY.into_response());
    }
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let answers: Vec<Value> = request["objects"]
        .as_array()
        .expect("objects")
        .iter()
        .map(|asked| {
            let (oid, size) = (asked["oid"].as_str().expect("a name"), &asked["size"]);
            let is_there = objects.contains_key(oid);
            if !is_there && !is_upload {
                return json!({"oid": oid, "size": size, "error": {"code": 404, "message": "no such object"}});
            }
            let place = match &*lfs_store {
                Some(store) => json!({
                    "href": format!("{}{STORE}{oid}", store.url), "header": {KEY: store.key}, "expires_in": 600,
                }),
                None => json!({"href": format!("https://{host}{repository}{OBJECTS}{oid}")}),
            };
            if !is_upload {
                return json!({"oid": oid, "size": size, "actions": {"download": place}});
            }
            if is_there {
                return json!({"oid": oid, "size": size});
            }
            let verify = json!({"href": format!("https://{host}{repository}{OBJECTS}{VERIFY}")});
            json!({"oid": oid, "size": size, "actions": {"upload": place, "verify": verify}})
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
