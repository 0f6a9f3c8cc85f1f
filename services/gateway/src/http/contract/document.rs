//! The description of the API: OpenAPI 3.1, generated from the served operations. The tests check every response against it.
//! This file also serves the schema of `.flotilla/config.yaml`.

use super::{
    notation::schema,
    operation::{Operation, ResponseShape, get},
    schemas,
};
use crate::{http::callers::caller::Caller, scope::Scope};
use axum::{
    http::{HeaderMap, HeaderValue, header},
    response::IntoResponse,
};
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
};

/// Information for readers in addition to the operations.
const ABOUT: &str = "OpenCode's HTTP API as Flotilla serves it. A directory is the name of a project: it holds sessions, and their \
    files are in sandboxes. A client authenticates with an API key: as the password of Basic (any user name), as Bearer, or in the \
    query. The header x-flotilla-code of an error has its stable code.";

/// The operations, and the operation that returns their description.
pub(in crate::http) fn with_document(mut operations: Vec<Operation>) -> Vec<Operation> {
    let text = Arc::<OnceLock<String>>::default();
    let served = Arc::clone(&text);
    let handler = async move |_: Caller| serve(served.get().map_or("{}", String::as_str));
    operations.insert(0, get("/doc", handler, "This description").gives("{}"));
    let schema = async |_: Caller| serve(settings::proposal::SCHEMA);
    operations.insert(1, get("/doc/config", schema, "The JSON schema of .flotilla/config.yaml").gives("{}"));
    // Described once, together with itself.
    text.get_or_init(|| document(&operations).to_string());
    operations
}

fn serve(text: &str) -> impl IntoResponse + use<> {
    let json = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    (json, text.to_owned())
}

fn document(operations: &[Operation]) -> Value {
    let mut paths = Map::new();
    for operation in operations {
        let path = paths.entry(operation.path.replace("{*", "{")).or_insert_with(|| json!({}));
        path[operation.method.as_str().to_lowercase()] = operation_json(operation);
    }
    let tags: BTreeSet<&str> = operations.iter().map(|operation| tag(operation.path)).collect();
    let tags: Vec<Value> = tags.into_iter().map(|name| json!({"name": name})).collect();
    let schemas: Map<String, Value> =
        schemas::ALL.iter().map(|(name, text)| ((*name).to_owned(), schema(text))).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Flotilla", "version": env!("CARGO_PKG_VERSION"), "description": ABOUT,
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"basic": []}, {"bearer": []}, {"query": []}],
        "tags": tags,
        "paths": paths,
        "components": {
            "schemas": schemas,
            "parameters": {
                "directory": {
                    "name": "directory", "in": "query", "schema": {"type": "string"},
                    "description": "Names the project. Without it, the header x-opencode-directory does, percent-encoded.",
                },
            },
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
                "query": {
                    "type": "apiKey", "in": "query", "name": "auth_token",
                    "description": "base64 of user:key, for pages that cannot send headers",
                },
            },
        },
    })
}

/// The section of the API that a path belongs to.
fn tag(path: &'static str) -> &'static str {
    path.trim_start_matches('/').split('/').next().unwrap_or_default()
}

/// The parameters of a path.
fn names(path: &str) -> impl Iterator<Item = &str> {
    let braced = path.split('/').filter_map(|piece| piece.strip_prefix('{')?.strip_suffix('}'));
    braced.map(|name| name.trim_start_matches('*'))
}

fn operation_json(operation: &Operation) -> Value {
    let Operation { method, path, summary, .. } = operation;
    let words = path.split('/').map(|piece| piece.trim_matches(['{', '}', '*'])).filter(|it| !it.is_empty());
    let id: Vec<&str> = words.chain([method.as_str()]).collect();
    let mut object = json!({
        "operationId": id.join("_").to_lowercase(), "summary": summary, "tags": [tag(path)],
        "parameters": parameters(operation), "responses": responses(operation),
    });
    if let Some(scope) = operation.scope {
        object["x-flotilla-scope"] = scope.name().into();
    }
    if let Some(body) = operation.body {
        // The body is optional if all its members are.
        let body = schema(body);
        let required = body.get("required").is_some() || body.get("$ref").is_some();
        object["requestBody"] =
            json!({"required": required, "content": {"application/json": {"schema": body}}});
    }
    object
}

fn parameters(operation: &Operation) -> Vec<Value> {
    let text = json!({"type": "string"});
    let names = names(operation.path);
    let mut all: Vec<Value> =
        names.map(|name| json!({"name": name, "in": "path", "required": true, "schema": text})).collect();
    all.push(json!({"$ref": "#/components/parameters/directory"}));
    let query = operation.query.map(schema).unwrap_or_default();
    let required =
        |name: &str| query["required"].as_array().is_some_and(|all| all.iter().any(|it| it == name));
    let members = query["properties"].as_object().into_iter().flatten();
    all.extend(members.map(
        |(name, schema)| json!({"name": name, "in": "query", "required": required(name), "schema": schema}),
    ));
    all
}

fn responses(operation: &Operation) -> Value {
    let content =
        |kind: &str, schema: Value| json!({"description": "Done", "content": {kind: {"schema": schema}}});
    let text = json!({"type": "string"});
    let (status, done) = match operation.answer {
        ResponseShape::Json(answer) => ("200", content("application/json", schema(answer))),
        ResponseShape::Events(event) => ("200", content("text/event-stream", schema(event))),
        ResponseShape::Text(kind) => ("200", content(kind, text)),
        ResponseShape::Nothing => ("204", json!({"description": "Done"})),
        ResponseShape::Socket => ("101", json!({"description": "A WebSocket"})),
    };
    let refusal = schema("Refusal");
    let refused =
        |why: &str| json!({"description": why, "content": {"application/json": {"schema": refusal}}});
    let mut all = Map::from_iter([
        (status.to_owned(), done),
        ("400".to_owned(), refused("The request is invalid")),
        ("default".to_owned(), refused("Too many requests, or a backend is unavailable")),
    ]);
    let mut unknown = json!({"description": "The API key is missing or invalid"});
    if tag(operation.path) == "api" {
        unknown = refused("The API key is missing or invalid");
    }
    all.insert("401".to_owned(), unknown);
    if names(operation.path).next().is_some() {
        all.insert("404".to_owned(), refused("Not found"));
    }
    if operation.acts || operation.scope.is_some_and(|scope| scope != Scope::Read) {
        let why = "The role of the key does not allow this, a page of another site may not do it, or only the operator may";
        all.insert("403".to_owned(), refused(why));
    }
    if operation.body.is_some() {
        all.insert("415".to_owned(), refused("The body is not declared as application/json"));
    }
    if operation.conflicts {
        all.insert("409".to_owned(), refused("The session is busy, or the name is taken"));
    }
    all.into()
}
