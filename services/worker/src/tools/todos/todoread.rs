//! `todoread`: reads the todo list.

use super::todowrite::shown;
use crate::{
    process::store_timeout::with_store_timeout,
    tools::{
        context::CallContext,
        outcome::{Output, ToolError},
        spec::tool_spec,
    },
};
use domain::policy::tool;
use serde_json::json;

pub(crate) fn spec() -> tool::Spec {
    tool_spec(
        "todoread",
        "Returns your current to-do list.",
        json!({"type": "object", "properties": {}, "additionalProperties": false}),
    )
}

pub(crate) async fn run(ctx: &CallContext) -> Result<Output, ToolError> {
    let (tenant, session) = (ctx.identity.tenant, &ctx.identity.session);
    let todos = with_store_timeout(ctx.deps.store.get_todos(tenant, session)).await.map_err(|error| {
        tracing::warn!(error = &error as &dyn std::error::Error, "cannot read the to-do list");
        ToolError::Model("The list cannot be read at the moment. Try again.".to_owned())
    })?;
    Ok(shown(json!(todos)))
}
