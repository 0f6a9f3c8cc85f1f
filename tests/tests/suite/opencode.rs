//! OpenCode's HTTP API as its clients see it: every route with good and with bad input, every event of its streams, and the
//! real clients themselves. Where OpenCode's own description of its API lies beside this repository (in
//! `../shared/contract/openapi.json`), every answer and every event is held against it; what must be so in any case is said here.

mod client;
mod contract;
mod cursors;
mod document;
mod events;
mod installed;
mod notices;
mod routes;
mod run;
mod screen;
mod sdk;
mod strangers;
mod streams;
mod tui;

use e2e::Stack;
use rpc::v1;
use serde_json::Value;

/// Keeps settings for the tenant of a stack.
async fn settle(stack: &Stack, settings: &Value) {
    let request = v1::SetSettingsRequest { document: settings.to_string(), ..Default::default() };
    stack.api.settings().set_settings(request).await.unwrap();
}
