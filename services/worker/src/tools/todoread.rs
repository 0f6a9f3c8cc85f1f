//! `todoread`: gives the list of things to do.

use super::{Output, ToolError, described, run::Ctx};
use crate::record::answered;
use domain::tool;
use serde_json::{Map, json};

pub(super) fn spec() -> tool::Spec {
    described(
        "todoread",
        "Gives your list of things to do as it is now.",
        json!({"type": "object", "properties": {}, "additionalProperties": false}),
    )
}

pub(super) async fn run(ctx: &Ctx) -> Result<Output, ToolError> {
    let (tenant, session) = (ctx.identity.tenant, &ctx.identity.session);
    let todos = answered(ctx.deps.store.get_todos(tenant, session)).await.map_err(|error| {
        tracing::warn!(error = &error as &dyn std::error::Error, "the list of things to do was not read");
        ToolError::Model("The list cannot be read just now. Try again.".to_owned())
    })?;
    let (text, metadata) = (serde_json::to_string_pretty(&todos).unwrap_or_default(), Map::new());
    Ok(Output { title: "things to do".to_owned(), text, metadata, ..Output::default() })
}
