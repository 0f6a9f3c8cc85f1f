//! OpenCode's HTTP API as its clients use it: every route with valid and invalid input, every event of its streams, and the
//! real clients. If OpenCode's description of its API is next to this repository (in
//! `../shared/contract/openapi.json`), every answer and every event is checked against it. The tests also state the essentials.

mod calls;
mod client;
mod contract;
mod cursors;
mod dialogs;
mod directories;
mod document;
mod events;
mod folders;
mod installed;
mod notices;
mod pages;
mod routes;
mod run;
pub(crate) mod screen;
mod sdk;
mod strangers;
mod streams;
mod terminals;
mod tui;
mod variants;
mod visits;
mod waits;
mod worktrees;

use e2e::Stack;
use rpc::v1;
use serde_json::Value;

/// Stores settings for the tenant of a stack.
async fn store_settings(stack: &Stack, settings: &Value) {
    let request = v1::SetSettingsRequest { document: settings.to_string(), ..Default::default() };
    stack.api.settings().set_settings(request).await.unwrap();
}
